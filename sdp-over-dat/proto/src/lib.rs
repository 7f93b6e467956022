//! The Sockets Direct Protocol without I/O.
//!
//! This crate uses no socket, clock, thread or payload byte. A message to send is a header and a
//! number of bytes of the stream ([`Transmit`]). A received message is described by the part of it
//! that belongs to the stream ([`Inbound`]). An advertisement is described by the bytes that can be
//! read from the peer's memory ([`Connection::begin_read`]). The engine around the protocol owns
//! buffers, registers memory, posts work and keeps time.
//!
//! | Chapter | Contents |
//! |---|---|
//! | [`wire`] | all 18 messages, parse and emit |
//! | [`Connection`] | one connection: set-up, both halves, both transfer mechanisms |
//! | [`ConnectionState`], [`SendHalf`], [`ReceiveHalf`] | the states of a connection and of its halves |
//! | `credit` | the right to send: receive buffers as credits |
//! | `exchange` | one source advertisement, seen from the source and from the sink |
//! | `mode` | the transfers that a half may use, and the end that may change that |
//! | [`ProtocolError`], [`Failure`] | all failures that end a connection |
//!
//! The life of a connection: [`Connection::connect`] and [`Connection::accept`] exchange Hello and
//! HelloAck. Then the engine passes commands ([`Connection::write`], [`Connection::advertise`],
//! [`Connection::shut_send`]) and received messages ([`Connection::handle_message`]) to the
//! connection. It sends the messages of [`Connection::poll_transmit`] and handles the events of
//! [`Connection::poll_event`].
//!
//! # Supported mechanisms
//!
//! Bcopy and Read Zcopy, in buffered and combined mode. The other mechanisms would be added at
//! these places:
//!
//! | Mechanism | Place | Response to a peer that uses it |
//! |---|---|---|
//! | Write Zcopy, Transaction | a second enum next to those in `exchange` | a SinkAvail is a violation, because we never enter pipelined mode as a source |
//! | pipelined mode | `mode`: the row that only a peer may enter | a source may enter it: we permit one advertisement at a time, in Hello, and read or refuse it |
//! | resizing | `connection::inbound`, ChRcvBuf | the answer with the present size, which refuses |
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
