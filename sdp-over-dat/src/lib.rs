//! Stream sockets over RDMA: the Sockets Direct Protocol as a consumer of DAT.
//!
//! ```no_run
//! use sdp_over_dat::{SdpStream, Stack};
//! use std::io::{Read, Write};
//!
//! fn greet() -> std::io::Result<()> {
//!     let stack = Stack::open("iwarp-lo")?;
//!     let mut stream = SdpStream::connect(&stack, ([127, 0, 0, 1], 4711).into())?;
//!     stream.write_all(b"hello")?;
//!     let mut answer = [0; 5];
//!     stream.read_exact(&mut answer)
//! }
//! ```
//!
//! | File | What |
//! |---|---|
//! | `stack.rs` | an interface adapter, and the thread that serves sockets whose users do something else |
//! | `adapter.rs` | that adapter as its sockets see it, and how they reach the thread |
//! | `stream.rs`, `listener.rs` | the public sockets |
//! | `over_socket.rs` | connections over TCP sockets that somebody else has connected |
//! | `rendezvous.rs` | connections to peers that were met elsewhere, at a service point of an adapter |
//! | `options.rs`, `config.rs` | what a user may set, and what a stack is made of |
//! | `socket/` | one connection: protocol, buffers, and which thread takes its events |
//! | `readiness/` | what `poll` should say, and a descriptor that says it |
//! | `wakeup.rs` | what wakes the stack's thread |
//! | `transport.rs` | the TCP socket below a stream that was made over one |
//! | `user_memory.rs` | the caller's own memory, registered for one call |
//! | `errors.rs` | from DAT's failures to those of a socket |
//! | `trace.rs` | every message into a file, for `sdp-checker` (`SDP_TRACE=directory`) |
//!
//! # How bytes move
//!
//! *Bcopy*: a write copies into the socket's registered ring and returns; the message is posted
//! with its header from one place and its payload from the ring. The peer receives into a
//! registered buffer, from which its read copies. A blocking write from [`Config::lend_threshold`]
//! bytes on registers the caller's memory instead of copying it and returns when the transport has
//! taken the bytes. *Read Zcopy*: a blocking write from [`Config::zcopy_threshold`] bytes on
//! registers the caller's memory and advertises it. A reader that waits with as much room has the
//! bytes read straight into its memory; for all others they are read into the socket's staging
//! memory, as soon as they are advertised, so that a writer waits for a slow reader no sooner than
//! over TCP.
//!
//! | Way | Copies here, at the writer and at the reader | Calls of DAT per message |
//! |---|---|---|
//! | Bcopy | 1 and 1 | a Send, one Receive posted again |
//! | Bcopy, lent | 0 and 1 | the same; a registration for the write |
//! | Read Zcopy, reader waits | 0 and 0 | a registration at each end, one RDMA Read, two Sends |
//! | Read Zcopy, staged | 0 and 1 | the same less the reader's registration |
//!
//! Which way pays depends on the provider ([`Config::suited_to`]). Where the processor does an
//! adapter's work, the provider copies twice for a Send and for a Read alike: of the four copies of
//! Bcopy, Read Zcopy saves one with staging and two without, and it costs more messages.
//!
//! What a provider copies and how many system calls it makes comes on top. Of 64 bytes there and
//! back over the software provider, `strace -f` shows at each end and for each round: one `sendto`,
//! one `recvfrom` that brings the answer and one or two before it that find nothing, and a `ppoll`
//! where the answer takes longer than a spin. Credits travel in these messages. In a one-way stream
//! the reader sends one message for every four that it has read.
//!
//! # Which thread makes progress
//!
//! A call of a socket makes progress on the calling thread. A call that waits sleeps in the
//! socket's event dispatcher itself, so no other thread is in the path. The dispatchers of a socket
//! that has a watch, or whose user is gone, are attached to the CNO on which the stack's thread
//! sleeps: a program that waits for many sockets by `poll` sleeps on what their watches show, and
//! the stack's thread shows it. Bytes that a call leaves behind because there is no credit for them
//! are sent by the next call, or by the stack's thread a tick of 10 ms later.
//!
//! Sleeping in a dispatcher or in the CNO is arm, sleep and drive of the provider. This crate adds
//! no role of its own: no other thread sleeps in the place of the stack's thread.
//!
//! # Memory
//!
//! A socket over an adapter begins with 96 KiB of receive buffers and 32 KiB for what is written
//! ([`Start::Small`]), because an adapter pins it. Each time that twice as many buffers were read
//! as there are, their number doubles, and a write that finds the ring full makes the next one four
//! times as long, up to what [`Config`] permits; shorter rings stay registered until
//! the end of the connection. Staging memory is made by the first RDMA Read.
//!
//! # What is not here
//!
//! No registration outlives the call that needed it, so none can serve memory that was unmapped or
//! mapped anew since. A cache would have to hear of each `munmap`; its place is
//! `user_memory.rs`, and it pays on hardware, where registering pins pages. The mechanisms that the
//! protocol core does not speak are listed in `sdp-proto`.

// `transport` and `user_memory` are the exceptions, each with its reason below.
#![deny(unsafe_code)]

mod adapter;
mod config;
mod errors;
mod listener;
mod options;
mod over_socket;
mod readiness;
mod rendezvous;
mod socket;
mod stack;
mod stream;
mod trace;
#[allow(unsafe_code, reason = "a number may have come to mean another file")]
mod transport;
#[allow(
    unsafe_code,
    reason = "the caller's memory is registered here, for one call"
)]
mod user_memory;
mod wakeup;

pub use config::{Config, Start};
pub use listener::SdpListener;
pub use options::Options;
pub use over_socket::PendingHellos;
pub use readiness::{Readiness, StandIn, Watch};
pub use rendezvous::{Rendezvous, Token};
pub use socket::{Commitment, Statistics};
pub use stack::Stack;
pub use stream::SdpStream;
