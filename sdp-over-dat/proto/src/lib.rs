//! The Sockets Direct Protocol without I/O.
//!
//! No socket, no clock, no thread, no payload byte. What the protocol wants sent is "these header
//! bytes, then the next n bytes of the stream" ([`Transmit`]); what it wants received is "these
//! bytes of the message belong to the stream" ([`Inbound`]) or "so many bytes can be read from
//! there" ([`Connection::begin_read`]). The engine around it owns buffers, registers memory, posts
//! work and keeps time.
//!
//! | Chapter | What |
//! |---|---|
//! | [`wire`] | all 18 messages, parse and emit |
//! | [`Connection`] | one connection: set-up, both halves, both transfer mechanisms |
//! | [`ConnectionState`], [`SendHalf`], [`ReceiveHalf`] | where it is in its life |
//! | `credit` | who may send when: receive buffers as credits |
//! | `exchange` | one source advertisement, seen from the source and from the sink |
//! | `mode` | which transfers a half may use, and who may change that |
//! | [`ProtocolError`], [`Failure`] | every way a connection can end by fault |
//!
//! The life of a connection: [`Connection::connect`] and [`Connection::accept`] exchange Hello and
//! HelloAck; then commands ([`Connection::write`], [`Connection::advertise`],
//! [`Connection::shut_send`]) and [`Connection::poll_transmit`] go out,
//! [`Connection::handle_message`] comes in, and [`Connection::poll_event`] tells what it meant.
//!
//! # Which mechanisms
//!
//! Bcopy and Read Zcopy, in buffered and combined mode. The places of what is missing:
//!
//! | Mechanism | Place | What a peer that tries it gets |
//! |---|---|---|
//! | Write Zcopy, Transaction | a second enum beside those in `exchange` | we never enter pipelined mode as a source, so a SinkAvail breaks the rules |
//! | pipelined mode | `mode`: the row that only a peer may enter | a source may enter it: we allow one advertisement at a time, in Hello, and read or refuse that |
//! | resizing | `connection::inbound`, ChRcvBuf | the present size as the answer, which refuses |
//! | suspend | `connection::inbound`, SuspComm | the connection ends: there is no message that refuses |

#![forbid(unsafe_code)]

mod connection;
mod credit;
mod event;
mod exchange;
mod failure;
mod half;
mod mode;
mod protocol_error;
mod seq;
mod state;
mod transmit;

pub mod wire;

#[cfg(test)]
mod tests;

pub use connection::{Config, Connection, Inbound, Read};
pub use event::Event;
pub use exchange::{Advert, AdvertId, OnCancel};
pub use failure::Failure;
pub use half::{ReceiveHalf, SendHalf};
pub use protocol_error::ProtocolError;
pub use seq::Seq;
pub use state::ConnectionState;
pub use transmit::{Payload, Transmit};

/// The fewest receive buffers with which data can flow: two stay in reserve.
pub const BUFFERS_MIN: u16 = 3;
