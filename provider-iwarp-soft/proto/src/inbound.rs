//! What an inbound segment asks of the engine.

use core::ops::Range;

use crate::{
    Access, CarrierMessage, Stag, TerminateCode,
    wire::rdmap::{AtomicRequest, Opcode},
};

/// The meaning of one inbound DDP segment. `P` is the engine's
/// [`MemoryTable::Place`](crate::MemoryTable::Place).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound<P> {
    /// Payload belongs somewhere; a message may end with it.
    Place(Placement<P>),
    /// The peer wants to read. It was checked and queued; [`crate::Connection::poll_transmit`]
    /// has the answer.
    ReadRequest,
    /// The peer wants an atomic operation. It was checked and queued; the engine executes it now,
    /// before it handles another segment, and reports the original value with
    /// [`crate::Connection::answer_atomic`].
    Atomic {
        /// The operation.
        request: AtomicRequest,
        /// The eight bytes that it changes.
        place: P,
    },
    /// The peer has executed an atomic operation of ours; the engine stores the value where the
    /// work request wants it.
    AtomicResponse {
        /// The work request's token.
        token: u64,
        /// What memory held before the operation.
        original: u64,
    },
    /// The first FPDU of a peer-to-peer set-up (RFC 6581 section 9); nothing for the consumer,
    /// except that the connection is established. A zero-length read wants an answer, so look at
    /// [`crate::Connection::poll_transmit`].
    ReadyToReceive,
    /// A message of a peer of this implementation about the carrier of the connection. After
    /// [`CarrierMessage::Moved`] the peer's segments come by the new carrier.
    Carrier(CarrierMessage),
    /// The peer has ended the stream; stop sending and close. `None`: its Terminate message could
    /// not be understood.
    Terminated(Option<PeerTerminate>),
    /// The stream has already ended; the segment means nothing any more.
    Dropped,
}

/// What a Terminate message of the peer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTerminate {
    /// Why it ended the stream.
    pub code: TerminateCode,
    /// The kind of the message that it complains of, when it quotes a header of it.
    pub about: Option<Opcode>,
    /// The token of our read or atomic that it is about if it is about one: the one whose MSN it
    /// quotes, else the oldest that waits for an answer. `None`: no work request is.
    pub request: Option<u64>,
}

/// Where payload belongs. Every check has been made: the engine copies, then acts on `delivered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement<P> {
    /// The place of the payload.
    pub target: Target<P>,
    /// The payload, as a range of the DDP segment; empty if `target` is [`Target::None`].
    pub payload: Range<usize>,
    /// The message that is complete once the payload is placed.
    pub delivered: Option<Delivery>,
}

/// A place in local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<P> {
    /// Nowhere: there is no payload to place.
    None,
    /// Registered memory.
    Tagged {
        /// The kind of message: [`Access::RemoteWrite`] for an RDMA Write, [`Access::ReadSink`] for
        /// the answer to a read of this end.
        access: Access,
        /// The registration.
        stag: Stag,
        /// The tagged offset of the first byte.
        to: u64,
        /// The bytes that [`crate::MemoryTable::resolve`] returned for the whole payload.
        place: P,
    },
    /// A posted receive.
    Untagged {
        /// Its token.
        receive: u64,
        /// First byte, counted from the start of the receive's memory.
        offset: u32,
    },
}

impl<P> Target<P> {
    /// Drops the resolved bytes. Callers use this when they release the memory table before they
    /// place the payload.
    #[must_use]
    pub fn unresolved(self) -> Target<()> {
        match self {
            Self::None => Target::None,
            Self::Tagged {
                access, stag, to, ..
            } => Target::Tagged {
                access,
                stag,
                to,
                place: (),
            },
            Self::Untagged { receive, offset } => Target::Untagged { receive, offset },
        }
    }
}

/// A message that has arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A Send or Immediate Data: the receive completes.
    Receive {
        /// The receive's token.
        token: u64,
        /// Bytes in it. For Immediate Data, whose bytes are in `immediate`: bytes of the RDMA Write
        /// before it, 0 where a Send or other Immediate Data came between or there was none.
        len: u32,
        /// The peer asked for a solicited event.
        solicited: bool,
        /// Invalidate this STag before the consumer sees the completion (RFC 5040 section 5.5).
        invalidate: Option<Stag>,
        /// The eight bytes of Immediate Data, as they came.
        immediate: Option<[u8; 8]>,
    },
    /// An RDMA Write message has ended; invisible to the consumer by the standard.
    Write,
    /// The answer to a read is complete. Completions in order come from
    /// [`crate::Connection::poll_completion`].
    Read {
        /// The read's token.
        token: u64,
    },
}
