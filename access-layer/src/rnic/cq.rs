//! Completion queue entries.

use super::qp::QpToken;

/// Names an EVD's completion queue to the access layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CqToken(pub u64);

/// What a completed work request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WcOpcode {
    /// Send, in all its forms.
    Send,
    /// RDMA Write.
    RdmaWrite,
    /// RDMA Read.
    RdmaRead,
    /// A receive that took a Send.
    Recv,
    /// A receive that took a Send with Invalidate; `Completion::invalidated` has the STag.
    RecvInvalidate,
    /// A receive that took the Immediate Data of an RDMA Write (RFC 7306);
    /// `Completion::immediate` has it.
    RecvImmediate,
    /// A receive that took a Send with Immediate Data, which only peers of InfiniBand can post;
    /// `Completion::immediate` has it.
    RecvSendImmediate,
    /// RDMA Write followed by Immediate Data.
    RdmaWriteImmediate,
    /// Atomic fetch and add.
    FetchAdd,
    /// Atomic compare and swap.
    CompareSwap,
    /// Memory window bind.
    BindMw,
}

/// How a work request ended, in verbs words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WcStatus {
    /// Done.
    Success,
    /// The queue pair left the connected state before it was done.
    Flushed,
    /// The message was longer than the posted receive.
    LocalLength,
    /// Inconsistent work request.
    LocalQpOperation,
    /// A local segment names no memory that may be used so.
    LocalProtection,
    /// The peer's response made no sense.
    BadResponse,
    /// The peer refused access to its memory.
    RemoteAccess,
    /// The peer could not do it.
    RemoteOperation,
    /// The transport failed.
    Transport,
    /// The peer had no receive posted.
    ReceiverNotReady,
    /// The memory window could not be bound.
    BindFailed,
}

/// Whom a completion wakes (DAT completion flags, translated by the RNIC).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notify {
    /// Anybody who waits.
    Always,
    /// Also those who wait for solicited events only.
    Solicited,
    /// Nobody; it rests in the queue until something else wakes
    /// (`DAT_COMPLETION_UNSIGNALLED_FLAG`).
    Never,
}

/// One entry of a completion queue. All fields are valid whatever the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The work request's own identifier: the consumer's cookie, unchanged.
    pub wr_id: u64,
    /// The queue pair's token.
    pub qp: QpToken,
    /// What it was.
    pub opcode: WcOpcode,
    /// How it ended.
    pub status: WcStatus,
    /// Bytes: as posted for requests, as received for receives and reads.
    pub byte_len: u32,
    /// STag that the peer's Send invalidated.
    pub invalidated: Option<u32>,
    /// Immediate data, as given by the peer.
    pub immediate: Option<u32>,
    /// Whom it wakes.
    pub notify: Notify,
}

impl Completion {
    /// A flushed completion that says nothing yet; something to fill arrays with.
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
