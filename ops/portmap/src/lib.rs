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
//! | [`Station`] | answering for all processes of a namespace, taken over by a survivor | its own |
//!
//! Nothing here starts a thread or waits longer than it is told to.

#![forbid(unsafe_code)]

mod answers;
mod asking;
mod link;
mod mappings;
mod message;
mod office;
mod question;
mod seat;
mod station;
mod users;

pub use answers::Answers;
pub use asking::Asking;
pub use mappings::{Mappings, Offering};
pub use message::{Kind, Malformed, Message};
pub use question::{Answer, Question};
pub use seat::Seat;
pub use station::Station;

/// The UDP port of port mappers.
pub const PORT: u16 = 3935;
