//! The result of an inbound segment, for the engine.

use core::ops::Range;

use crate::{
    Access, CarrierMessage, Stag, TerminateCode,
    wire::rdmap::{AtomicRequest, Opcode},
};

/// The meaning of one inbound DDP segment. `P` is the engine's
/// [`MemoryTable::Place`](crate::MemoryTable::Place).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inbound<P> {
    /// The payload must be placed; a message may end with it.
    Place(Placement<P>),
    /// A Read Request of the peer. It was checked and queued; [`crate::Connection::poll_transmit`]
    /// returns the answer.
    ReadRequest,
    /// An atomic operation of the peer. It was checked and queued. The engine executes it now,
    /// before it handles another segment, and reports the original value with
    /// [`crate::Connection::answer_atomic`].
    Atomic {
        /// The operation.
        request: AtomicRequest,
        /// The eight bytes that the operation changes.
        place: P,
    },
    /// The peer has executed an atomic operation of ours. The engine stores the value in the memory
    /// of the work request, and then calls [`crate::Connection::on_answer_stored`].
    AtomicResponse {
        /// The work request's token.
        token: u64,
        /// The value of the memory before the operation.
        original: u64,
    },
    /// The first FPDU of a peer-to-peer set-up (RFC 6581 section 9). It establishes the connection,
    /// and carries no message for the consumer. A zero-length read requires an answer, so call
    /// [`crate::Connection::poll_transmit`].
    ReadyToReceive,
    /// A message about the carrier of the connection, from a peer that runs this implementation.
    /// After [`CarrierMessage::Moved`] the peer sends its segments over the new carrier.
    Carrier(CarrierMessage),
    /// The peer has ended the stream; stop sending and close. `None`: its Terminate message could
    /// not be decoded.
    Terminated(Option<PeerTerminate>),
    /// The segment begins a message for which no receive is posted, and has had no effect. The
    /// engine presents it again before any other segment, once a receive is posted. Only with
    /// [`crate::Connection::wait_for_receives`].
    Unready,
    /// The stream has already ended; the segment is ignored.
    Dropped,
}

/// The content of a Terminate message of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerTerminate {
    /// The reason why the peer ended the stream.
    pub code: TerminateCode,
    /// The kind of the message that the Terminate is about, if it quotes a header of that message.
    pub about: Option<Opcode>,
    /// The token of our read or atomic that the Terminate is about: the one whose MSN it quotes,
    /// else the oldest that waits for an answer. `None`: it is about no work request.
    pub request: Option<u64>,
}

/// The target of a payload. Every check has been made: the engine copies, then acts on `delivered`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement<P> {
    /// The place of the payload.
    pub target: Target<P>,
    /// The payload, as a range of the DDP segment; empty if `target` is [`Target::None`].
    pub payload: Range<usize>,
    /// The message that is complete once the payload is placed.
    pub delivered: Option<Delivery>,
}

/// A location in local memory.
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

/// The immediate data of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Immediate {
    /// The eight bytes of Immediate Data (RFC 7306 section 6), as received.
    OfWrite([u8; 8]),
    /// The value that a Send carries between two ends of this implementation.
    OfSend(u32),
}

/// A message that was received completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A Send or Immediate Data: the receive completes.
    Receive {
        /// The receive's token.
        token: u64,
        /// The length in bytes. For Immediate Data, whose bytes are in `immediate`, it is the
        /// length of the RDMA Write before it: 0 if a Send or other Immediate Data was received
        /// between them, or there was no Write.
        len: u32,
        /// The peer asked for a solicited event.
        solicited: bool,
        /// The STag to invalidate before the consumer sees the completion (RFC 5040 section 5.5).
        invalidate: Option<Stag>,
        /// The immediate data of the message, if it has any.
        immediate: Option<Immediate>,
    },
    /// An RDMA Write message has ended. By the standard the consumer does not see it.
    Write,
    /// The answer to a read is complete. The engine places the payload, and then calls
    /// [`crate::Connection::on_answer_stored`]; [`crate::Connection::poll_completion`] returns
    /// completions in order.
    Read {
        /// The read's token.
        token: u64,
    },
}
