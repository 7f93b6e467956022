//! The port mapper: asks a peer whether it offers a service over RDMA, and answers such questions.
//!
//! The protocol is the iWARP port mapper over UDP port 3935. A Request names a TCP service. An
//! Accept names the port at which the same service is offered over RDMA; a Reject says that it is
//! not offered. A peer without a port mapper receives a datagram at an unused port, and not one
//! byte at its service.
//!
//! | Part | Contents | System calls |
//! |---|---|---|
//! | [`Message`] | the datagrams, read and written | none |
//! | [`Question`] | one question: when to send again, what an answer means, when to stop | none |
//! | [`Answers`] | a cache of the answers of peers | none |
//! | [`Asking`] | a [`Question`] with its socket | its own |
//! | [`Mappings`] | the services that are offered, and the answers about them | none |
//! | [`PortMapper`] | answers for all processes of a namespace, by the first of them, then by one that remains | its own |
//!
//! Nothing here starts a thread or waits longer than the caller permits.

#![forbid(unsafe_code)]

mod answers;
mod asking;
mod link;
mod mappings;
mod message;
mod port_mapper;
mod question;
mod role;
mod server;
mod users;

pub use answers::Answers;
pub use asking::Asking;
pub use mappings::{Mappings, Offering};
pub use message::{Kind, Malformed, Message};
pub use port_mapper::PortMapper;
pub use question::{Answer, Question};
pub use role::Role;

/// The UDP port of port mappers.
pub const PORT: u16 = 3935;
