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
//! | `exchange` | advertisements of both kinds, each seen from the source and from the sink |
//! | `mode` | the transfers that a half may use, and the end that may change that |
//! | `resize` | requests for another size of receive buffers |
//! | `suspension` | the state of a suspension |
//! | [`ProtocolError`], [`Failure`] | all failures that end a connection |
//!
//! The life of a connection: [`Connection::connect`] and [`Connection::accept`] exchange Hello and
//! HelloAck. Then the engine passes commands ([`Connection::write`], [`Connection::advertise`],
//! [`Connection::shut_send`]) and received messages ([`Connection::handle_message`]) to the
//! connection. It sends the messages of [`Connection::poll_transmit`] and handles the events of
//! [`Connection::poll_event`].
//!
//! # Mechanisms
//!
//! | Mechanism | Commands of the engine | Mode of the half |
//! |---|---|---|
//! | Bcopy | [`Connection::write`], [`Connection::write_registered`] | any |
//! | Read Zcopy | [`Connection::advertise`], [`Connection::begin_read`], [`Connection::refuse_advert`] | combined: one advertisement; pipelined: several |
//! | Write Zcopy | [`Connection::advertise_sink`], [`Connection::cancel_sinks`], [`Transmit::into`] | pipelined |
//! | Transaction | none: a SinkAvail carries the bytes that wait for a message | the other half is pipelined, this one is not |
//!
//! The two halves of a connection are independent, and each has a mode. The source of a half
//! decides about pipelined mode ([`Connection::go_pipelined`], [`Connection::leave_pipelined`]),
//! which it enters without a command when two advertisements wait. The sink can only request
//! pipelined mode ([`Connection::ask_pipelined`]). The mode requires a peer that accepts more than
//! one advertisement ([`Config::adverts_max`]), so a peer that accepts one never receives a message
//! of the pipelined mechanisms. `exchange` contains the rules.
//!
//! # Suspension
//!
//! An end may pass its connection to another process ([`Connection::suspend`]): both ends stop, and
//! the peer connects again, to a service that the other process offers ([`Connection::resume`]).

#![forbid(unsafe_code)]

mod connection;
mod credit;
mod event;
mod exchange;
mod failure;
mod half;
mod mode;
mod protocol_error;
mod resize;
mod seq;
mod state;
mod suspension;
mod transmit;

pub mod wire;

#[cfg(test)]
mod tests;

pub use connection::{Config, Connection, Inbound, Read};
pub use credit::reserve;
pub use event::Event;
pub use exchange::{Advert, AdvertId, OnCancel, SinkAdvert};
pub use failure::Failure;
pub use half::{ReceiveHalf, SendHalf};
pub use protocol_error::ProtocolError;
pub use seq::Seq;
pub use state::ConnectionState;
pub use transmit::{Payload, PeerMemory, Transmit};

/// The fewest receive buffers with which data can flow: two stay in reserve.
pub const BUFFERS_MIN: u16 = 3;
