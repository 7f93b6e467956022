//! Events as a Rust enum (DAT 2.0 chapter 6, section "Event data").

use std::fmt;

use dat_abi::*;

use crate::cr::Cr;
use crate::handle::{EpId, ObjectId, RmrId, SpId};

/// Something that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A Send, Receive, RDMA Read or RDMA Write has ended.
    Dto(DtoCompletion),
    /// A bind of a memory window has ended.
    Bind(BindCompletion),
    /// A peer asks for a connection. Dropping the request unanswered rejects it.
    ConnectionRequest(Cr),
    /// News of a connection.
    Connection(ConnectionEvent),
    /// The socket of a Socket Service Point is not connected any more, or what came over it was no
    /// request for RDMA (DAT 2.0 iWARP extensions 3.1.1). [`Ssp::free`](crate::Ssp::free) gives it
    /// back.
    SocketDown(SpId),
    /// An error or a warning that belongs to no posted work.
    Async(AsyncError),
    /// A number posted with [`Evd::post_software`](crate::Evd::post_software).
    Software(usize),
    /// An event of an extension, or one this crate does not know.
    Other {
        /// Its number.
        number: u32,
        /// Its extension data.
        data: [u64; 8],
    },
}

/// The end of a data transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DtoCompletion {
    /// The endpoint it was posted to.
    pub ep: EpId,
    /// The cookie it was posted with.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes transferred; meaningful on success.
    pub transferred: u32,
    /// What it was, where the provider says; OFA's do not.
    pub operation: DatDtos,
    /// Immediate data of the peer's RDMA Write or Send, in the completion of the receive that it
    /// took (IB extension).
    pub immediate: Option<u32>,
    /// The RMR context of the memory window that the peer's Send with Invalidate invalidated.
    pub invalidated: Option<u32>,
}

/// The end of a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindCompletion {
    /// The window.
    pub rmr: RmrId,
    /// The cookie it was posted with.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
}

/// News of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// The endpoint.
    pub ep: EpId,
    /// What happened.
    pub kind: ConnectionKind,
    /// What the peer gave to its accept or reject.
    pub private_data: Vec<u8>,
}

/// What happened to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionKind {
    /// Both sides may send.
    Established,
    /// The peer's program declined.
    PeerRejected,
    /// Nobody listens there, or what answered does not speak RDMA.
    NonPeerRejected,
    /// The peer went away before an accepted connection was usable.
    AcceptCompletionError,
    /// It ended in good order.
    Disconnected,
    /// It broke.
    Broken,
    /// The time given to the attempt passed.
    TimedOut,
    /// No route, or no answer from the network.
    Unreachable,
}

/// An asynchronous event: an error or a warning that belongs to no posted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncError {
    /// What it was.
    pub kind: AsyncKind,
    /// Which object it concerns.
    pub object: ObjectId,
    /// The reason, whose meaning depends on the object.
    pub reason: u32,
}

/// Kinds of asynchronous errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AsyncKind {
    /// A dispatcher's queue was full and an event was lost.
    EvdOverflow,
    /// The adapter is gone or unusable.
    IaCatastrophic,
    /// An endpoint failed, or the shared receive queue that is the object
    /// (`DAT_SRQ_TRANSFER_TO_ERROR`). For such a queue and its endpoints the reason tells other
    /// things apart: `DAT_SRQ_LOW_WATERMARK_EVENT`, `DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT`, or
    /// `DAT_EP_TRANSFER_TO_ERROR` when a disconnected endpoint has completed its last receive.
    EpBroken,
    /// The provider gave up waiting for something.
    TimedOut,
    /// A fault inside the provider.
    ProviderInternal,
}

/// How work ended (`DAT_DTO_COMPLETION_STATUS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DtoStatus {
    /// Well.
    Success,
    /// Not done, because the connection ended or earlier work failed.
    Flushed,
    /// The local memory was too short.
    LocalLength,
    /// The endpoint could not do it.
    LocalEp,
    /// The local memory does not allow it.
    LocalProtection,
    /// The peer answered something unexpected.
    BadResponse,
    /// The peer's memory does not allow it.
    RemoteAccess,
    /// The peer could not do it.
    RemoteResponder,
    /// The connection failed.
    Transport,
    /// The peer had posted no receive.
    ReceiverNotReady,
    /// A message arrived in part.
    PartialPacket,
    /// A bind failed.
    BindFailed,
    /// Memory management failed.
    LocalMemory,
    /// A number this crate does not know.
    Other(u32),
}

impl DtoStatus {
    /// Whether the work was done.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Self::Success
    }

    pub(crate) fn from_raw(raw: DatDtoCompletionStatus) -> Self {
        match raw {
            DAT_DTO_SUCCESS => Self::Success,
            DAT_DTO_ERR_FLUSHED => Self::Flushed,
            DAT_DTO_ERR_LOCAL_LENGTH => Self::LocalLength,
            DAT_DTO_ERR_LOCAL_EP => Self::LocalEp,
            DAT_DTO_ERR_LOCAL_PROTECTION => Self::LocalProtection,
            DAT_DTO_ERR_BAD_RESPONSE => Self::BadResponse,
            DAT_DTO_ERR_REMOTE_ACCESS => Self::RemoteAccess,
            DAT_DTO_ERR_REMOTE_RESPONDER => Self::RemoteResponder,
            DAT_DTO_ERR_TRANSPORT => Self::Transport,
            DAT_DTO_ERR_RECEIVER_NOT_READY => Self::ReceiverNotReady,
            DAT_DTO_ERR_PARTIAL_PACKET => Self::PartialPacket,
            DAT_RMR_OPERATION_FAILED => Self::BindFailed,
            DAT_DTO_ERR_LOCAL_MM_ERROR => Self::LocalMemory,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for DtoStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "done",
            Self::Flushed => "flushed: the connection ended or earlier work failed",
            Self::LocalLength => "the local memory is too short",
            Self::LocalEp => "the endpoint could not do it",
            Self::LocalProtection => "the local memory does not allow it",
            Self::BadResponse => "the peer answered something unexpected",
            Self::RemoteAccess => "the peer's memory does not allow it",
            Self::RemoteResponder => "the peer could not do it",
            Self::Transport => "the connection failed",
            Self::ReceiverNotReady => "the peer had posted no receive",
            Self::PartialPacket => "a message arrived in part",
            Self::BindFailed => "the bind failed",
            Self::LocalMemory => "memory management failed",
            Self::Other(number) => return write!(f, "unknown completion status {number}"),
        })
    }
}

impl ConnectionKind {
    pub(crate) fn from_raw(raw: DatEventNumber) -> Option<Self> {
        Some(match raw {
            DAT_CONNECTION_EVENT_ESTABLISHED => Self::Established,
            DAT_CONNECTION_EVENT_PEER_REJECTED => Self::PeerRejected,
            DAT_CONNECTION_EVENT_NON_PEER_REJECTED => Self::NonPeerRejected,
            DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR => Self::AcceptCompletionError,
            DAT_CONNECTION_EVENT_DISCONNECTED => Self::Disconnected,
            DAT_CONNECTION_EVENT_BROKEN => Self::Broken,
            DAT_CONNECTION_EVENT_TIMED_OUT => Self::TimedOut,
            DAT_CONNECTION_EVENT_UNREACHABLE => Self::Unreachable,
            _ => return None,
        })
    }
}

impl fmt::Display for ConnectionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Established => "established",
            Self::PeerRejected => "rejected by the peer's program",
            Self::NonPeerRejected => "refused: nobody listens there, or the peer speaks no RDMA",
            Self::AcceptCompletionError => "the peer went away before the connection was usable",
            Self::Disconnected => "disconnected",
            Self::Broken => "broken",
            Self::TimedOut => "timed out",
            Self::Unreachable => "unreachable",
        })
    }
}

impl AsyncKind {
    pub(crate) fn from_raw(raw: DatEventNumber) -> Option<Self> {
        Some(match raw {
            DAT_ASYNC_ERROR_EVD_OVERFLOW => Self::EvdOverflow,
            DAT_ASYNC_ERROR_IA_CATASTROPHIC => Self::IaCatastrophic,
            DAT_ASYNC_ERROR_EP_BROKEN => Self::EpBroken,
            DAT_ASYNC_ERROR_TIMED_OUT => Self::TimedOut,
            DAT_ASYNC_ERROR_PROVIDER_INTERNAL_ERROR => Self::ProviderInternal,
            _ => return None,
        })
    }
}

impl DtoCompletion {
    pub(crate) fn from_raw(raw: &DatDtoCompletionEventData) -> Self {
        Self {
            ep: EpId::of(raw.ep_handle),
            cookie: raw.user_cookie.to_u64(),
            status: DtoStatus::from_raw(raw.status),
            transferred: raw.transfered_length,
            operation: raw.operation,
            immediate: None,
            invalidated: (raw.operation == DAT_DTO_RECEIVE_WITH_INVALIDATE)
                .then_some(raw.rmr_context),
        }
    }

    /// The same of an event of the IB extension.
    pub(crate) fn from_extension(raw: &DatDtoCompletionEventData, data: &[u64; 8]) -> Self {
        // The words are type and status, then the immediate data.
        let [kind, immediate] = [data[0], data[1]].map(|word| word as u32);
        let comes_with_it = matches!(kind, DAT_IB_RDMA_WRITE_IMMED_DATA | DAT_IB_RECV_IMMED_DATA);
        Self {
            immediate: (comes_with_it && raw.status == DAT_DTO_SUCCESS).then_some(immediate),
            ..Self::from_raw(raw)
        }
    }
}

impl BindCompletion {
    pub(crate) fn from_raw(raw: &DatRmrBindCompletionEventData) -> Self {
        Self {
            rmr: RmrId::of(raw.rmr_handle),
            cookie: raw.user_cookie.to_u64(),
            status: DtoStatus::from_raw(raw.status),
        }
    }
}
