//! DAT 2.0 for Rust: RDMA connections, registered memory and events over any DAT registry library.
//!
//! # A TCP connection becomes an RDMA connection
//!
//! Two programs communicate over an ordinary TCP connection, agree to use RDMA, and convert that
//! connection. The socket moves into the library. If no RDMA connection is established, the socket
//! moves back and the programs continue in streaming mode.
//!
//! In the shortest form, both programs call [`convert()`] with their ends of the connection:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let socket = std::net::TcpStream::connect("192.0.2.1:4000")?;
//! match dat_api::convert(socket) {
//!     Ok(stream) => stream.send(b"hello over RDMA")?,
//!     Err(failed) => println!("continuing in streaming mode: {failed}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A program that speaks to programs in C, or whose protocol has a place for the agreement, makes
//! the two calls of DAT itself. The passive side passes its last message in streaming mode to a
//! *socket service point*, which sends it when the service point is ready for the peer's request:
//!
//! ```no_run
//! use dat_api::{Ep, Node, Ssp};
//! use std::net::TcpStream;
//! use std::time::Duration;
//!
//! fn serve(socket: TcpStream) -> Result<Ep, Box<dyn std::error::Error>> {
//!     let node = Node::open("iwarp-lo")?;
//!     let ep = node.endpoint()?;
//!     let ssp = Ssp::create(socket, &ep, &node.requests, b"RDMA, please\n")?;
//!     let request = ssp.wait_request(Some(Duration::from_secs(5)))?;
//!     let ep = request.accept(None, b"welcome")?;
//!     ep.wait_established(Some(Duration::from_secs(5)))?;
//!     Ok(ep)
//! }
//! ```
//!
//! The active side reads that message and connects its endpoint over the socket, by
//! [`Ep::connect_socket`]. If no RDMA connection is established, the error has the socket.
//!
//! `examples/convert.rs` is the complete conversion; one program can be either side.
//!
//! # Examples
//!
//! | File in `examples` | Shows |
//! |---|---|
//! | `convert.rs` | a TCP connection that becomes an RDMA connection, or stays a TCP connection |
//! | `tutorial.rs` | such a conversion in a few lines; `docs/tutorial.md` explains it |
//! | `tcp_server.rs` | a TCP server whose clients may ask for RDMA, with the conversion marked |
//! | `send_recv.rs` | ping-pong by Send and Receive |
//! | `rdma.rs` | RDMA Write and Read in the memory of a peer whose program does nothing |
//! | `srq_server.rs` | clients that share one queue of receives, refilled at its low watermark |
//! | `cno_poll.rs` | a poll loop in which RDMA is one descriptor among others |
//! | `atomics.rs` | fetch and add, and writes that notify the peer's program |
//! | `kv_store.rs` | a key-value store that clients read by RDMA Read |
//! | `file_transfer.rs` | a file to another process by RDMA Writes, with progress |
//! | `async_evd.rs` | tasks of an asynchronous runtime that await events |
//!
//! All but `convert.rs` and `file_transfer.rs` have both ends in one program. After `cargo xtask
//! stage`:
//!
//! ```text
//! export DAT_LIBRARY=target/stage/lib/libdat2.so.2 DAT_OVERRIDE=target/stage/etc/dat.conf
//! cargo run -p dat-api --example rdma
//! ```
//!
//! Without `DAT_LIBRARY` the library is `lib/libdat2.so.2` next to the directory of the program, as
//! for a program of the stage, or the one that the dynamic loader finds. Without `DAT_OVERRIDE` an
//! `/etc/dat.conf` must list the adapter, or there must be no such file.
//!
//! # Objects
//!
//! | Type | DAT object |
//! |---|---|
//! | [`Node`] | an adapter, a protection zone and dispatchers, made in one expression |
//! | [`Ia`] | interface adapter: the root of all other objects |
//! | [`Pz`] | protection zone: the memory that an endpoint may access |
//! | [`Evd`], [`Cno`] | event dispatcher; notification object to wait for many dispatchers |
//! | [`Ep`] | endpoint: one end of a connection |
//! | [`Region`], [`Lmr`] | registered memory, owned by the crate or by the program |
//! | [`Rmr`] | memory window |
//! | [`Psp`], [`Csp`] | service points for many peers, by qualifier and by address |
//! | [`Rsp`], [`Ssp`] | service points for one endpoint, by qualifier and over a socket |
//! | [`Cr`] | connection request |
//! | [`Srq`] | shared receive queue |
//! | [`Event`] | the events of a dispatcher |
//!
//! Every object is a handle that holds the objects from which it was created. Handles can be cloned
//! where sharing makes sense. Dropping the last handle frees the DAT object. DAT objects are freed
//! before the objects that they use, in whatever order the program drops the handles.
//!
//! # Errors
//!
//! A failed DAT call is an [`Error::Call`]: the name of the C call and the `DAT_RETURN`, whose type
//! [`Error::is`] compares. `docs/calls` in the repository lists the codes that each call of DAT 2.0
//! returns, and when. Errors that this crate detects itself have variants of their own, such as
//! [`Error::OutOfBounds`].
//!
//! A post that succeeds has only been queued. The completion contains the status of the work
//! ([`DtoStatus`]), and the connection event contains the reason why a connection ended
//! ([`ConnectionKind`]).
//!
//! # What is safe and why
//!
//! * Memory that a peer may write is never borrowed. A [`Region`] owns the memory, and copies bytes
//!   in and out atomically. An endpoint keeps each region alive that was posted to that endpoint.
//! * The program's own memory can be registered with [`Lmr::register`], which is `unsafe` and
//!   documents what the program must guarantee.
//! * A socket given to [`Ssp`] or [`Ep::connect_socket`] has one owner at any time. It is returned
//!   as an `OwnedFd` exactly when the provider has released it.
//! * The registry library and the providers that it loads are trusted, as any C library in the
//!   process is.
//!
//! # The registry library
//!
//! The first call loads the file that the environment variable `DAT_LIBRARY` names; else the
//! `libdat2.so.2` in `lib` next to the directory of the program; else the one that the dynamic
//! loader finds. Any implementation can be used. OFA's implementation has no socket service points
//! and returns an error for which [`Error::is_unsupported`] is true. For programs that use the C
//! interface directly, [`Library`] is the table of its functions, and [`abi`] has its types.

#[macro_use]
mod debug;

mod address;
#[cfg(feature = "tokio")]
mod asynchronous;
mod attr;
mod cno;
mod connection;
mod convert;
mod counters;
mod environment;
mod error;
mod event;
mod handle;
mod ia;
mod leak;
mod library;
mod lmr;
mod lock;
mod node;
mod posted_regions;
mod private_data;
mod pz;
mod region;
mod registry;
mod rmr;
mod segment;
mod socket;
mod sp;
mod srq;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncEp, AsyncEvd};
pub use attr::{Extension, IaAttr, NamedAttr, ProviderAttr};
pub use cno::Cno;
pub use connection::{
    AnswerError, Close, CompletionFlags, ConnectError, ConnectFailure, Cr, Ep, EpAttr, EpEvds,
    EpInfo, EpState, EpStatus, Evd, EvdFlags, Event, SocketRefused,
};
pub use convert::{
    ConvertError, ConvertFailure, MESSAGE_MAX, RdmaStream, WINDOW, convert, convert_on,
};
/// The C types of DAT 2.0.
pub use dat_abi as abi;
pub use error::{CallError, Error, Result, SocketError};
pub use event::{
    AsyncError, AsyncKind, BindCompletion, ConnectionEvent, ConnectionKind, DtoCompletion,
    DtoStatus,
};
pub use handle::{EpId, EvdId, ObjectId, RmrId, SpId, SrqId};
pub use ia::Ia;
pub use library::{
    DatExtensionOpFunc, DatRegistryListProvidersFunc, DatStrerrorFunc, LIBRARY_ENV, LIBRARY_NAME,
    Library, LoadError,
};
pub use lmr::{Lmr, Privileges, RemoteRegion};
pub use node::{Node, NodeBuilder};
pub use pz::Pz;
pub use region::Region;
pub use registry::{ProviderInfo, list_providers, register_provider};
pub use rmr::Rmr;
pub use segment::Segment;
pub use sp::{Csp, Psp, Rsp, Ssp, SspState, SspWaitError};
pub use srq::{Srq, SrqInfo};

/// The code of the README, which is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
