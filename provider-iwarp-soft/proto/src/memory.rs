//! The interface to the memory and the receive queue that the engine owns.
//!
//! The protocol never touches payload. Before it asks the engine to place or to fetch bytes, it
//! resolves the STag here, which checks whether the peer may access them. Every refusal has exactly
//! one Terminate code ([`crate::TerminateCode`]).

use crate::Stag;

/// The kind of access that a peer requests to a range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// An RDMA Write segment wants to place bytes.
    RemoteWrite,
    /// An RDMA Read Request wants to fetch bytes.
    RemoteRead,
    /// A segment of the response to a read of our own wants to place bytes. The protocol has
    /// already checked that the segment belongs to the oldest outstanding read and continues it
    /// exactly. The engine only checks that the memory is still registered.
    ReadSink,
    /// An atomic operation wants to change eight bytes (RFC 7306 section 5).
    RemoteAtomic,
}

/// The reason why memory must not be accessed, in the order in which an implementation checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ProtectionFault {
    /// The index is unknown, the key differs, or the registration is not valid any more.
    #[error("the STag is not valid")]
    InvalidStag,
    /// The STag belongs to another protection domain or endpoint than this stream.
    #[error("the STag is not associated with this stream")]
    NotAssociated,
    /// The STag does not carry the required right.
    #[error("the STag does not grant this access")]
    AccessViolation,
    /// Tagged offset plus length exceeds 2^64.
    #[error("the tagged offset wraps")]
    Wrap,
    /// A part of the range is outside the registered range.
    #[error("the range is outside the registration")]
    Bounds,
}

/// The reason why an STag must not be invalidated by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum InvalidateFault {
    /// There is no such STag.
    #[error("the STag to invalidate is not valid")]
    InvalidStag,
    /// The STag belongs to another stream.
    #[error("the STag to invalidate is not associated with this stream")]
    NotAssociated,
    /// The registration is of a kind that a peer may not invalidate, for example one that several
    /// streams share (RFC 5042 section 6.4.5).
    #[error("the STag cannot be invalidated")]
    NotInvalidatable,
}

/// The STag table of the engine, seen from one stream.
pub trait MemoryTable {
    /// A range of memory that the peer may access. It is part of the placement
    /// ([`crate::Target::Tagged`]), so that the engine does not search for the STag again.
    type Place;

    /// Returns the `len` bytes from `to` under `stag`, if the peer of this stream may access them.
    ///
    /// `len` is never 0: RFC 5041 section 5.2 exempts empty segments from every check of STag and
    /// TO.
    ///
    /// # Errors
    ///
    /// An implementation checks in the order in which [`ProtectionFault`] lists the faults.
    fn resolve(
        &self,
        access: Access,
        stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<Self::Place, ProtectionFault>;

    /// Checks whether the peer of this stream may invalidate `stag`. The engine performs the
    /// invalidation when it gets the [`crate::Delivery`] that asks for it.
    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateFault>;
}

/// A posted receive, taken for one inbound message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveBuffer {
    /// The engine's name for the receive work request.
    pub token: u64,
    /// The number of bytes that the receive can hold in all its segments together.
    pub len: u32,
}

/// The source of the buffers for Sends and Immediate Data: a receive queue or a shared one.
pub trait ReceiveQueue {
    /// Takes the next posted receive, once per message. `None` at the message's first segment ends
    /// the stream, because iWARP has no "receiver not ready". While that segment is incomplete
    /// ([`crate::Connection::predict_target`]), `None` only means that the protocol asks again.
    fn next(&mut self) -> Option<ReceiveBuffer>;
}
