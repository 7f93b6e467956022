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
//! [`net`] has `TcpStream` and `TcpListener` with the methods of `std::net`, for programs that
//! change their `use` line only. `AsyncSdpStream` (feature `tokio`) is for tasks.
//!
//! | File | Contents |
//! |---|---|
//! | `stack.rs` | an interface adapter, and the thread that serves sockets while their users do something else |
//! | `adapter.rs` | the adapter as its sockets use it |
//! | `stream.rs`, `listener.rs` | the public sockets |
//! | `submission.rs` | writes that are submitted, and complete later |
//! | `net.rs`, `tokio_net.rs` | the same with the methods of `std::net`, and for tasks of tokio |
//! | `rendezvous.rs` | connections whose ends exchange their addresses over a TCP connection first |
//! | `options.rs`, `config.rs` | the options of a socket, and the sizes and limits of a stack's sockets |
//! | `socket/` | one connection: protocol, buffers, and the thread that takes its events |
//! | `readiness/` | the state that `poll` reports, and a descriptor that shows it |
//! | `statistics.rs` | the counters of a socket |
//! | `wakeup.rs` | the wake-up of the stack's thread |
//! | `transport.rs` | the TCP socket below a stream that was made over one |
//! | `user_memory.rs` | the caller's own memory, registered for one call |
//! | `errors.rs` | conversion of DAT's failures to those of a socket |
//! | `trace.rs` | a record of every message in a file, for `sdp-checker` (`SDP_TRACE=directory`) |
//!
//! # How bytes move
//!
//! *Bcopy*: a write copies into the socket's registered ring and returns. The message is posted
//! with its header from one region and its payload from the ring. The peer receives into a
//! registered buffer, from which its read copies. A blocking write of at least
//! [`Config::registered_threshold`] bytes registers the caller's memory instead of copying it, and
//! returns when the transport has taken the bytes.
//!
//! *Read Zcopy*: a blocking write of at least [`Config::zcopy_threshold`] bytes registers the
//! caller's memory and advertises it. If a reader waits with enough room, the bytes are read
//! straight into its memory. Otherwise they are read into the socket's staging memory as soon as
//! they are advertised, so that a writer waits for a slow reader no sooner than over TCP.
//!
//! *Write Zcopy*: a read that waits with room for at least [`Config::sink_threshold`] bytes
//! registers its memory and advertises it. The peer writes the next bytes of the stream there by
//! RDMA Write, from its ring or from its writer's memory. The stream is in pipelined mode then,
//! which its writer begins ([`Config::pipelined_threshold`]). Bytes that were sent before the peer
//! received the advertisement use it up. So once readers of the peer advertise, a blocking writer
//! waits a moment for the next advertisement, and registers its memory meanwhile.
//!
//! | Mechanism | Copies here, at the writer and at the reader | Calls of DAT per message |
//! |---|---|---|
//! | Bcopy | 1 and 1 | a Send, one Receive posted again |
//! | Bcopy, from the caller's memory | 0 and 1 | as Bcopy; a registration for the write |
//! | Read Zcopy, reader waits | 0 and 0 | a registration at each end, one RDMA Read, two Sends |
//! | Write Zcopy | 1 and 0, or 0 and 0 from the writer's memory | a registration for the read, an RDMA Write, two Sends |
//! | Read Zcopy, staged | 0 and 1 | as with a waiting reader, without the reader's registration |
//!
//! Where the provider has the choice, the Sends of Bcopy ask it to copy the payload at the sender
//! (`CompletionFlags::INLINE`). Over the shared memory of the software provider the sender then
//! copies a byte twice and the receiver twice. Without the flag, the receiver would read the
//! payload in the sender's ring, which takes about twice as long as a copy out of shared memory,
//! while the sender has nothing to do.
//!
//! [`SdpStream::submit`] transfers memory in the same ways and does not wait: a [`Submission`]
//! completes later. Several of them use pipelined mode. [`SdpStream::send_in_place`] and
//! [`SdpStream::receive_in_place`] are for layers whose calls end for more reasons than the options
//! of a stream know.
//!
//! The best mechanism depends on the provider ([`Config::suited_to`]). Read Zcopy costs more
//! messages than Bcopy. Write Zcopy costs two registrations, during which no byte moves.
//!
//! The provider's own copies and system calls are not counted above. For a round trip of 64 bytes
//! over the software provider, `strace -f` shows at each end: one `sendto`, one `recvfrom` that
//! returns the answer and one or two before it that return nothing, and a `ppoll` where the answer
//! takes longer than a spin. Credits are carried by these messages. In a one-way stream the reader
//! sends one message for every four that it has read.
//!
//! Over a device by `libdapl-ib.so.2`, the stack's thread makes two system calls for a message that
//! wakes it, a `ppoll` and a `read`, in addition to those that update the watch. rxe needs one
//! more to arm the queue, and rxe and siw need one for each Send.
//!
//! # Which thread makes progress
//!
//! A call of a socket makes progress on the calling thread. A call that waits sleeps in the
//! socket's event dispatcher itself, so no other thread is involved. If a socket has a watch, or
//! its user has closed it, its dispatchers are attached to the CNO on which the stack's thread
//! sleeps. So a program that waits for many sockets by `poll` sleeps on the descriptors of their
//! watches, and the stack's thread updates these. While its user polls by
//! [`SdpStream::poll_readable`], the dispatchers are detached, and a message wakes no thread; a
//! tick of 10 ms detects that the user has stopped. Bytes that a call could not send for want of
//! credits are sent by the next call, or by the stack's thread a tick later.
//!
//! A sleep in a dispatcher or in the CNO uses the provider's progress operations: it arms the
//! provider's queues, sleeps on the provider's descriptors, and then makes progress.
//!
//! # Suspension
//!
//! [`SdpStream::suspend`] passes a connection to another process of the host, for example to the
//! next version of a server. Both ends stop, and the peer connects to a port where that process
//! listens. The peer's stream stays, with its unread and unsent bytes. If the process is not there,
//! the peer's next call reports a reset. The provider must have room for a Hello in the private
//! data of a request, 64 bytes; the connection managers of InfiniBand and RoCE have 56.
//!
//! # Memory
//!
//! A socket over an adapter begins with 160 KiB of receive buffers and 32 KiB of send ring
//! ([`Start::Small`]), because an adapter pins the memory. When twice as many buffers were read as
//! exist, their number doubles. A write that finds the ring full makes the next one four times as
//! long. Both grow up to the limits of [`Config`]; shorter rings stay registered until the end of
//! the connection. The first RDMA Read creates the staging memory.
//!
//! # What is not here
//!
//! No registration outlives the call that needed it, so none can be used for memory that was
//! unmapped or mapped again since. A cache of registrations would have to be notified of each
//! `munmap`. It would belong in `user_memory.rs`, and would save time on hardware, where
//! registration pins pages.

// The modules `transport`, `tokio_net` and `user_memory` are the exceptions; their `allow`
// attributes give the reasons.
#![deny(unsafe_code)]

mod adapter;
mod config;
mod errors;
mod listener;
pub mod net;
mod options;
mod readiness;
mod rendezvous;
mod socket;
mod stack;
mod statistics;
mod stream;
mod submission;
#[cfg(feature = "tokio")]
#[allow(unsafe_code, reason = "a runtime is given a descriptor")]
mod tokio_net;
mod trace;
#[allow(unsafe_code, reason = "a descriptor may refer to another file by now")]
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
pub use readiness::{Readiness, StandIn, Watch};
pub use rendezvous::{Rendezvous, Token};
pub use socket::{Commitment, Decision, ReceiveFlags};
pub use stack::Stack;
pub use statistics::{Stalls, Statistics};
pub use stream::{SdpStream, SuspendError, Suspended};
pub use submission::Submission;
#[cfg(feature = "tokio")]
pub use tokio_net::AsyncSdpStream;
