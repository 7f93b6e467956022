//! Does the peer offload?
//!
//! The iWARP port mapper answers that by UDP port 3935: a Request names a TCP service, an Accept
//! the port at which the same service is offered over RDMA, a Reject says that it is not. A peer
//! that knows nothing of this sees a datagram at a port that nobody uses, and not one byte at its
//! service.
//!
//! | Part | What | System calls |
//! |---|---|---|
//! | [`Message`] | the datagrams, read and written | none |
//! | [`Question`] | asking: when to send again, what an answer means, when to give up | none |
//! | [`Answers`] | what peers said lately | none |
//! | [`Asking`] | a [`Question`] with its socket | its own |
//! | [`Mappings`] | which services are offered, and what to say about them | none |
//! | [`PortMapper`] | answering for all processes of a namespace, by the first of them, then by a survivor | its own |
//!
//! Nothing here starts a thread or waits longer than it is told to.

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
