//! Identity and limits of an RNIC, and what names it.

use std::net::SocketAddr;

/// What a `dat.conf` line says of an interface adapter.
#[derive(Debug, Clone)]
pub struct RnicConfig {
    /// Field 1, the name under which consumers open it.
    pub ia_name: String,
    /// Field 7, `ia_params`, without its quotes. By convention the network device, address or host
    /// name, then blank-separated settings of the provider.
    pub ia_params: String,
}

/// A name and a value for `DAT_NAMED_ATTR`; neither may hold a zero byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttr {
    /// Attribute name, for example `DAT_IB_TRANSPORT_MTU`.
    pub name: &'static str,
    /// Its value as text.
    pub value: String,
}

/// Identity and limits of an open RNIC.
#[derive(Debug, Clone)]
pub struct RnicAttr {
    /// Name of the network or verbs device.
    pub adapter_name: String,
    /// Who makes it.
    pub vendor_name: String,
    /// Address of the interface adapter. Consumers print it as IPv4, so it is that where there is
    /// one.
    pub address: SocketAddr,
    /// Largest private data of a consumer, in bytes.
    pub private_data_len_max: u32,
    /// Queue pairs.
    pub qp_max: u32,
    /// Work requests of one queue.
    pub wr_max: u32,
    /// Segments of one Send or Receive.
    pub sge_max: u32,
    /// Local segments of one RDMA Read.
    pub read_sge_max: u32,
    /// Completion queues.
    pub cq_max: u32,
    /// Completions in one queue.
    pub cqe_max: u32,
    /// Memory regions.
    pub mr_max: u32,
    /// Bytes of one region, as DAT can say it.
    pub mr_len_max: u64,
    /// Memory windows; 0 where there are none.
    pub mw_max: u32,
    /// Protection domains.
    pub pd_max: u32,
    /// Shared receive queues; 0 where there are none.
    pub srq_max: u32,
    /// Work requests of one shared receive queue.
    pub srq_wr_max: u32,
    /// Inbound RDMA Reads outstanding on one queue pair (IRD).
    pub ird_max: u32,
    /// Outbound RDMA Reads outstanding on one queue pair (ORD).
    pub ord_max: u32,
    /// Bytes of one message.
    pub message_len_max: u32,
    /// Whether Socket Service Points and `dat_iw_socket_connect` work here.
    pub socket_service_points: bool,
    /// Whether Immediate Data and Atomics work here.
    pub immediate_and_atomics: bool,
    /// Whether the addresses of a region may count from 0.
    pub zero_based_regions: bool,
    /// Whether [`Rnic::set_recv_watermarks`](super::Rnic::set_recv_watermarks) works here.
    pub recv_watermarks: bool,
    /// Provider specific attributes beyond those that the access layer derives itself.
    pub named: Vec<NamedAttr>,
}
