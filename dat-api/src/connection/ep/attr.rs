//! Attributes, status and state of an endpoint.

use std::net::SocketAddr;

use dat_abi::*;

/// Limits of an endpoint (`DAT_EP_ATTR`). The default suits a small request-and-answer program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpAttr {
    /// Maximum length of a Send in bytes; 0 selects the provider's value.
    pub max_message_size: u32,
    /// Maximum length of an RDMA Read or Write in bytes; 0 selects the provider's value.
    pub max_rdma_size: u32,
    /// Maximum number of outstanding Receives.
    pub max_recv_dtos: i32,
    /// Maximum number of outstanding Sends, RDMA Reads, RDMA Writes and binds.
    pub max_request_dtos: i32,
    /// Maximum number of segments of a Receive.
    pub max_recv_iov: i32,
    /// Maximum number of segments of a Send.
    pub max_request_iov: i32,
    /// Maximum number of the peer's RDMA Reads that are served at once.
    pub max_rdma_read_in: i32,
    /// Maximum number of RDMA Reads of this endpoint that are outstanding at once.
    pub max_rdma_read_out: i32,
    /// Maximum number of segments of an RDMA Read.
    pub max_rdma_read_iov: i32,
    /// Maximum number of segments of an RDMA Write.
    pub max_rdma_write_iov: i32,
    /// Completion flags allowed for receives (`DAT_COMPLETION_FLAGS`).
    pub recv_completion_flags: u32,
    /// Completion flags allowed for requests (`DAT_COMPLETION_FLAGS`).
    pub request_completion_flags: u32,
    /// Number of receives of a shared queue that the endpoint may hold before an asynchronous event
    /// is delivered; 0 for no mark.
    pub srq_soft_watermark: i32,
}

impl Default for EpAttr {
    fn default() -> Self {
        Self {
            max_message_size: 0,
            max_rdma_size: 0,
            max_recv_dtos: 16,
            max_request_dtos: 16,
            max_recv_iov: 1,
            max_request_iov: 1,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            max_rdma_read_iov: 1,
            max_rdma_write_iov: 1,
            recv_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
            request_completion_flags: DAT_COMPLETION_DEFAULT_FLAG,
            srq_soft_watermark: 0,
        }
    }
}

impl EpAttr {
    /// The members of `DAT_EP_ATTR` that [`EpAttr`] contains.
    pub(crate) const MASK: DatEpParamMask = DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE
        | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE
        | DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS
        | DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS
        | DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS
        | DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS
        | DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV
        | DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV
        | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN
        | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT
        | DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW
        | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV
        | DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV;

    pub(crate) fn to_raw(self) -> DatEpAttr {
        let mut raw = DatEpAttr::zeroed();
        raw.service_type = DAT_SERVICE_TYPE_RC;
        raw.qos = DAT_QOS_BEST_EFFORT;
        raw.max_message_size = self.max_message_size;
        raw.max_rdma_size = self.max_rdma_size;
        raw.recv_completion_flags = self.recv_completion_flags;
        raw.request_completion_flags = self.request_completion_flags;
        raw.max_recv_dtos = self.max_recv_dtos;
        raw.max_request_dtos = self.max_request_dtos;
        raw.max_recv_iov = self.max_recv_iov;
        raw.max_request_iov = self.max_request_iov;
        raw.max_rdma_read_in = self.max_rdma_read_in;
        raw.max_rdma_read_out = self.max_rdma_read_out;
        raw.max_rdma_read_iov = self.max_rdma_read_iov;
        raw.max_rdma_write_iov = self.max_rdma_write_iov;
        raw.srq_soft_hw = self.srq_soft_watermark;
        raw
    }

    pub(crate) fn from_raw(raw: &DatEpAttr) -> Self {
        Self {
            max_message_size: raw.max_message_size,
            max_rdma_size: raw.max_rdma_size,
            max_recv_dtos: raw.max_recv_dtos,
            max_request_dtos: raw.max_request_dtos,
            max_recv_iov: raw.max_recv_iov,
            max_request_iov: raw.max_request_iov,
            max_rdma_read_in: raw.max_rdma_read_in,
            max_rdma_read_out: raw.max_rdma_read_out,
            max_rdma_read_iov: raw.max_rdma_read_iov,
            max_rdma_write_iov: raw.max_rdma_write_iov,
            recv_completion_flags: raw.recv_completion_flags,
            request_completion_flags: raw.request_completion_flags,
            srq_soft_watermark: raw.srq_soft_hw.max(0),
        }
    }
}

/// Result of `dat_ep_get_status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpStatus {
    /// State.
    pub state: EpState,
    /// True if every posted receive has completed.
    pub recv_idle: bool,
    /// True if every posted request has completed.
    pub request_idle: bool,
}

/// Result of `dat_ep_query`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpInfo {
    /// State.
    pub state: EpState,
    /// Address of this end.
    pub local: Option<SocketAddr>,
    /// Port of this end.
    pub local_port: u64,
    /// The peer's address, once connected.
    pub remote: Option<SocketAddr>,
    /// The peer's port, once connected.
    pub remote_port: u64,
    /// Limits as the provider granted them.
    pub attr: EpAttr,
}

/// State of an endpoint (`DAT_EP_STATE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EpState {
    /// Free to connect.
    Unconnected,
    /// Reserved by a service point for a request.
    Reserved,
    /// A connection request for the endpoint waits for the consumer's answer.
    PassiveConnectionPending,
    /// Connecting.
    ActiveConnectionPending,
    /// Created by the provider for a connection request.
    TentativeConnectionPending,
    /// A request was accepted, and the connection is not usable yet.
    CompletionPending,
    /// Connected.
    Connected,
    /// Disconnecting.
    DisconnectPending,
    /// Disconnected. [`Ep::reset`](crate::Ep::reset) makes the endpoint usable again.
    Disconnected,
    /// A number that this crate does not define.
    Other(u32),
}

impl EpState {
    pub(crate) fn from_raw(raw: DatEpState) -> Self {
        match raw {
            DAT_EP_STATE_UNCONNECTED => Self::Unconnected,
            DAT_EP_STATE_RESERVED => Self::Reserved,
            DAT_EP_STATE_PASSIVE_CONNECTION_PENDING => Self::PassiveConnectionPending,
            DAT_EP_STATE_ACTIVE_CONNECTION_PENDING => Self::ActiveConnectionPending,
            DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING => Self::TentativeConnectionPending,
            DAT_EP_STATE_COMPLETION_PENDING => Self::CompletionPending,
            DAT_EP_STATE_CONNECTED
            | DAT_EP_STATE_CONNECTED_SINGLE_PATH
            | DAT_EP_STATE_CONNECTED_MULTI_PATH => Self::Connected,
            DAT_EP_STATE_DISCONNECT_PENDING => Self::DisconnectPending,
            DAT_EP_STATE_DISCONNECTED => Self::Disconnected,
            other => Self::Other(other),
        }
    }
}
