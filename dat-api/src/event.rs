//! The data of events (DAT 2.0 chapter 6, section "Event data").

use std::fmt;

use dat_abi::*;

use crate::handle::{EpId, ObjectId, RmrId};

/// The completion of a data transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DtoCompletion {
    /// The endpoint to which the transfer was posted.
    pub ep: EpId,
    /// The cookie of the post.
    pub cookie: u64,
    /// The completion status.
    pub status: DtoStatus,
    /// Bytes transferred; meaningful on success.
    pub transferred: u32,
    /// The kind of transfer, where the provider reports it; OFA's providers do not.
    pub operation: DatDtos,
    /// Immediate data of the peer's RDMA Write or Send, in the completion of the receive that the
    /// data consumed (IB extension).
    pub immediate: Option<u32>,
    /// The RMR context of the memory window that the peer's Send with Invalidate invalidated.
    pub invalidated: Option<u32>,
}

/// The completion of a bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindCompletion {
    /// The window.
    pub rmr: RmrId,
    /// The cookie of the post.
    pub cookie: u64,
    /// The completion status.
    pub status: DtoStatus,
}

/// A change of the state of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// The endpoint.
    pub ep: EpId,
    /// The kind of change.
    pub kind: ConnectionKind,
    /// Private data that the peer passed to its accept or reject.
    pub private_data: Vec<u8>,
}

/// Kinds of connection events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConnectionKind {
    /// The connection is established: both sides may send.
    Established,
    /// The peer's program rejected the request.
    PeerRejected,
    /// No program listens at the address, or the peer does not use RDMA.
    NonPeerRejected,
    /// The peer ended an accepted connection before it was usable.
    AcceptCompletionError,
    /// The connection was closed in an orderly way.
    Disconnected,
    /// The connection failed.
    Broken,
    /// The timeout of the attempt expired.
    TimedOut,
    /// No route, or no answer from the network.
    Unreachable,
}

/// An asynchronous event: an error or a warning that is not related to posted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncError {
    /// The kind of error.
    pub kind: AsyncKind,
    /// The object that the error concerns.
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
    /// (`DAT_SRQ_TRANSFER_TO_ERROR`). For such a queue and its endpoints the reason distinguishes
    /// other events: `DAT_SRQ_LOW_WATERMARK_EVENT`, `DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT`, or
    /// `DAT_EP_TRANSFER_TO_ERROR` when a disconnected endpoint has completed its last receive.
    EpBroken,
    /// A timeout of the provider expired.
    TimedOut,
    /// A fault inside the provider.
    ProviderInternal,
}

/// Completion status of posted work (`DAT_DTO_COMPLETION_STATUS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DtoStatus {
    /// The work was done.
    Success,
    /// The work was not done, because the connection ended or earlier work failed.
    Flushed,
    /// The local memory was too short.
    LocalLength,
    /// The local endpoint failed.
    LocalEp,
    /// The local memory does not permit the access.
    LocalProtection,
    /// The peer's answer was not expected.
    BadResponse,
    /// The peer's memory does not permit the access.
    RemoteAccess,
    /// The peer could not complete the work.
    RemoteResponder,
    /// The connection failed.
    Transport,
    /// The peer had posted no receive.
    ReceiverNotReady,
    /// Only a part of a message was received.
    PartialPacket,
    /// A bind failed.
    BindFailed,
    /// Memory management failed.
    LocalMemory,
    /// A number that this crate does not define.
    Other(u32),
}

impl DtoStatus {
    /// Returns true if the work was done.
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
            Self::LocalEp => "the local endpoint failed",
            Self::LocalProtection => "the local memory does not permit the access",
            Self::BadResponse => "the peer sent an unexpected answer",
            Self::RemoteAccess => "the peer's memory does not permit the access",
            Self::RemoteResponder => "the peer could not complete the work",
            Self::Transport => "the connection failed",
            Self::ReceiverNotReady => "the peer had posted no receive",
            Self::PartialPacket => "only a part of a message was received",
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
            Self::NonPeerRejected => "refused: no program listens, or the peer does not use RDMA",
            Self::AcceptCompletionError => "the peer ended the connection before it was usable",
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

    /// Converts a completion event of the IB extension.
    pub(crate) fn from_extension(raw: &DatDtoCompletionEventData, data: &[u64; 8]) -> Self {
        // The words are type and status, then the immediate data.
        let [kind, immediate] = [data[0], data[1]].map(|word| word as u32);
        let has_immediate = matches!(kind, DAT_IB_RDMA_WRITE_IMMED_DATA | DAT_IB_RECV_IMMED_DATA);
        Self {
            immediate: (has_immediate && raw.status == DAT_DTO_SUCCESS).then_some(immediate),
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
