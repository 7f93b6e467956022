//! MPA, DDP and RDMAP (iWARP) without I/O.
//!
//! There is no socket, no clock, no thread, and no payload byte. To send, the protocol returns
//! "these header bytes, then this range of that work request, then pad and CRC" ([`TransmitFpdu`]).
//! On receive, it returns "this range of the segment belongs at that location" ([`Placement`]). The
//! engine around it moves bytes, computes CRCs and keeps time.
//!
//! | Chapter | Contents |
//! |---|---|
//! | [`wire`] | frames and headers of RFC 5040, 5041, 5044, 6581, 7306, parse and emit |
//! | [`mpa`] | start-up: [`mpa::Initiator`], [`mpa::Responder`], [`mpa::Negotiated`] |
//! | [`Connection`] | one stream in full operation: DDP and RDMAP, both directions |
//! | [`peer`] | the peer's implementation, and the rules for siw |
//! | [`MemoryTable`], [`ReceiveQueue`] | the interfaces by which the protocol queries the engine |
//! | [`WorkRequest`], [`Completion`] | the work requests of the engine, and their completions |
//! | [`ProtocolError`], [`TerminateCode`] | every fault that can end a stream |
//!
//! The life of a stream: `Initiator::request` and `Responder::accept` exchange the start-up frames;
//! both sides make a [`Connection`] from the negotiated parameters. Then [`Connection::post`] and
//! [`Connection::poll_transmit`] produce output, and [`wire::fpdu::peek`] and
//! [`Connection::handle_ulpdu`] take input, until one side closes or [`Connection::terminate`]
//! makes the last message.
//!
//! Two ends of this implementation may move a stream from TCP to another carrier
//! ([`CarrierMessage`], [`Connection::queue_carrier`]). [`Connection::poll_transmit`] then returns
//! segments for that carrier, and [`Connection::handle_segment`] takes the segments that it
//! delivers.

#![forbid(unsafe_code)]

mod connection;
mod inbound;
mod memory;
mod msn;
mod protocol_error;
mod role;
mod stag;
mod terminate_code;
mod transmit;
mod work;

pub mod mpa;
pub mod peer;
pub mod wire;

#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use connection::{CarrierError, Config, Connection, OwnOffer, StreamState};
pub use inbound::{Delivery, Immediate, Inbound, PeerTerminate, Placement, Target};
pub use memory::{
    Access, InvalidateFault, MemoryTable, ProtectionFault, ReceiveBuffer, ReceiveQueue,
};
pub use msn::Msn;
pub use peer::Peer;
pub use protocol_error::ProtocolError;
pub use role::Role;
pub use stag::Stag;
pub use terminate_code::{
    MpaError, RemoteOperation, RemoteProtection, TaggedError, TerminateCode, UntaggedError,
};
pub use transmit::{Ends, HEADER_MAX, SEGMENT_MAX, TransmitFpdu, TransmitPayload};
pub use wire::carrier::CarrierMessage;
pub use work::{Completion, CompletionStatus, PostError, WorkKind, WorkRequest};
