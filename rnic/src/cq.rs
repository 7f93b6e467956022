//! Completion queue entries.

use super::qp::QpToken;

/// Identifies a completion queue to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CqToken(pub u64);

/// Operation of a completed work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WcOpcode {
    /// Send, in all its forms.
    Send,
    /// RDMA Write.
    RdmaWrite,
    /// RDMA Read.
    RdmaRead,
    /// A receive consumed by a Send.
    Recv,
    /// A receive consumed by a Send with Invalidate; the STag is in `Completion::invalidated`.
    RecvInvalidate,
    /// A receive consumed by the Immediate Data of an RDMA Write (RFC 7306), which is in
    /// `Completion::immediate`.
    RecvImmediate,
    /// A receive consumed by a Send with immediate data. The data is in `Completion::immediate`.
    RecvSendImmediate,
    /// RDMA Write followed by Immediate Data.
    RdmaWriteImmediate,
    /// Atomic fetch and add.
    FetchAdd,
    /// Atomic compare and swap.
    CompareSwap,
    /// Memory window bind.
    BindMw,
    /// Local invalidation of a memory window.
    LocalInvalidate,
}

impl WcOpcode {
    /// Returns true for the completion of a receive.
    #[must_use]
    pub const fn is_receive(self) -> bool {
        matches!(
            self,
            Self::Recv | Self::RecvInvalidate | Self::RecvImmediate | Self::RecvSendImmediate
        )
    }
}

/// Completion status of a work request, in the terms of verbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WcStatus {
    /// Done.
    Success,
    /// The queue pair left the connected state before the work request was done.
    Flushed,
    /// The message was longer than the posted receive.
    LocalLength,
    /// Inconsistent work request.
    LocalQpOperation,
    /// A local segment is not memory that allows this access.
    LocalProtection,
    /// The peer's response was invalid.
    BadResponse,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer's receive was too short, or the request was invalid in another way.
    RemoteInvalidRequest,
    /// The peer could not complete the operation.
    RemoteOperation,
    /// The transport failed.
    Transport,
    /// The peer had no receive posted.
    ReceiverNotReady,
    /// The memory window could not be bound.
    BindFailed,
}

/// The waiters that a completion wakes (DAT completion flags, translated by the RNIC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// Any waiter, except for those that wait for solicited events only.
    Always,
    /// Any waiter, including those that wait for solicited events only.
    Solicited,
    /// No waiter; the completion stays in the queue until another completion wakes a waiter
    /// (`DAT_COMPLETION_UNSIGNALLED_FLAG`).
    Never,
}

/// An entry of a completion queue. All fields are valid for every status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Identifier of the work request: the consumer's cookie, unchanged.
    pub wr_id: u64,
    /// The queue pair's token.
    pub qp: QpToken,
    /// The operation.
    pub opcode: WcOpcode,
    /// The completion status.
    pub status: WcStatus,
    /// Length in bytes: as posted for requests, as received for receives and reads.
    pub byte_len: u32,
    /// STag that the peer's Send invalidated.
    pub invalidated: Option<u32>,
    /// Immediate data, as sent by the peer.
    pub immediate: Option<u32>,
    /// The waiters to wake.
    pub notify: Notify,
}

impl Completion {
    /// A flushed completion without content, to initialise arrays.
    pub const EMPTY: Self = Self {
        wr_id: 0,
        qp: QpToken(0),
        opcode: WcOpcode::Send,
        status: WcStatus::Flushed,
        byte_len: 0,
        invalidated: None,
        immediate: None,
        notify: Notify::Always,
    };
}
