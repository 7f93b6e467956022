//! MPA, DDP and RDMAP (iWARP) without I/O.
//!
//! No socket, no clock, no thread, no payload byte. What the protocol wants sent is "these header
//! bytes, then this range of that work request, then pad and CRC" ([`TransmitFpdu`]); what it
//! wants received is "this range of the segment belongs there" ([`Placement`]). The engine around
//! it moves bytes, computes CRCs and keeps time.
//!
//! | Chapter | What |
//! |---|---|
//! | [`wire`] | frames and headers of RFC 5040, 5041, 5044, 6581, 7306, parse and emit |
//! | [`mpa`] | start-up: [`mpa::Initiator`], [`mpa::Responder`], [`mpa::Negotiated`] |
//! | [`Connection`] | one stream in full operation: DDP and RDMAP, both directions |
//! | [`peer`] | who the peer is, and what siw needs |
//! | [`MemoryTable`], [`ReceiveQueue`] | what it asks the engine |
//! | [`WorkRequest`], [`Completion`] | what the engine asks it |
//! | [`ProtocolError`], [`TerminateCode`] | every way a stream can end by fault |
//!
//! The life of a stream: `Initiator::request` and `Responder::accept` exchange the start-up
//! frames; both sides make a [`Connection`] from what was negotiated; then
//! [`Connection::post`] and [`Connection::poll_transmit`] go out,
//! [`wire::fpdu::peek`] and [`Connection::handle_ulpdu`] come in, until one side closes or
//! [`Connection::terminate`] has the last word.
//!
//! Two ends of this implementation may move a stream from TCP to another carrier
//! ([`CarrierMessage`], [`Connection::queue_carrier`]). [`Connection::poll_transmit`] returns
//! segments for that carrier then, and [`Connection::handle_segment`] takes those it delivers.

#![forbid(unsafe_code)]

mod connection;
mod inbound;
mod memory;
mod msn;
mod protocol_error;
mod stag;
mod terminate_code;
mod transmit;
mod work;

pub mod mpa;
pub mod peer;
pub mod wire;

#[cfg(test)]
mod tests;

pub use connection::{CarrierError, Config, Connection, OwnOffer, Role, StreamState};
pub use inbound::{Delivery, Inbound, PeerTerminate, Placement, Target};
pub use memory::{
    Access, InvalidateFault, MemoryTable, ProtectionFault, ReceiveBuffer, ReceiveQueue,
};
pub use msn::Msn;
pub use peer::Peer;
pub use protocol_error::ProtocolError;
pub use stag::Stag;
pub use terminate_code::{
    MpaError, RemoteOperation, RemoteProtection, TaggedError, TerminateCode, UntaggedError,
};
pub use transmit::{Ends, HEADER_MAX, SEGMENT_MAX, TransmitFpdu, TransmitPayload};
pub use wire::carrier::CarrierMessage;
pub use work::{Completion, CompletionStatus, PostError, WorkKind, WorkRequest};
