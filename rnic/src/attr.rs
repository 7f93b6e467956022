//! Configuration, identity and limits of an RNIC.

use std::net::SocketAddr;

/// Configuration of an interface adapter, from its line in `dat.conf`.
#[derive(Debug, Clone)]
pub struct RnicConfig {
    /// Field 1, the name under which consumers open it.
    pub ia_name: String,
    /// Field 7, `ia_params`, without its quotes. By convention the network device, address or host
    /// name, then blank-separated settings of the provider.
    pub ia_params: String,
}

/// A name and a value for `DAT_NAMED_ATTR`; neither contains a zero byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttr {
    /// Attribute name, for example `DAT_IB_TRANSPORT_MTU`.
    pub name: &'static str,
    /// The value as text.
    pub value: String,
}

/// Identity and limits of an open RNIC.
#[derive(Debug, Clone)]
pub struct RnicAttr {
    /// Name of the network or verbs device.
    pub adapter_name: String,
    /// Name of the vendor.
    pub vendor_name: String,
    /// Address of the interface adapter. It is an IPv4 address if the adapter has one, because
    /// consumers print it as IPv4.
    pub address: SocketAddr,
    /// Maximum length of a consumer's private data, in bytes.
    pub private_data_len_max: u32,
    /// Maximum number of queue pairs.
    pub qp_max: u32,
    /// Maximum number of work requests of one queue.
    pub wr_max: u32,
    /// Maximum number of segments of one Send or Receive.
    pub sge_max: u32,
    /// Maximum number of local segments of one RDMA Read.
    pub read_sge_max: u32,
    /// Maximum number of completion queues.
    pub cq_max: u32,
    /// Maximum number of completions in one queue.
    pub cqe_max: u32,
    /// Maximum number of memory regions.
    pub mr_max: u32,
    /// Maximum length of one region in bytes, within the range of DAT's type.
    pub mr_len_max: u64,
    /// Maximum number of memory windows; 0 if they are not supported.
    pub mw_max: u32,
    /// Maximum number of protection domains.
    pub pd_max: u32,
    /// Maximum number of shared receive queues; 0 if they are not supported.
    pub srq_max: u32,
    /// Maximum number of work requests of one shared receive queue.
    pub srq_wr_max: u32,
    /// Maximum number of inbound RDMA Reads outstanding on one queue pair (IRD).
    pub ird_max: u32,
    /// Maximum number of outbound RDMA Reads outstanding on one queue pair (ORD).
    pub ord_max: u32,
    /// Maximum length of one message in bytes.
    pub message_len_max: u32,
    /// True if Immediate Data and Atomics are supported.
    pub immediate_and_atomics: bool,
    /// True if the addresses of a region may start at 0.
    pub zero_based_regions: bool,
    /// True if [`Rnic::set_recv_watermarks`](super::Rnic::set_recv_watermarks) is supported.
    pub recv_watermarks: bool,
    /// Provider specific attributes, in addition to those that the client derives itself.
    pub named: Vec<NamedAttr>,
}
