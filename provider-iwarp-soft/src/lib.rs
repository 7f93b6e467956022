//! The software iWARP RNIC: RDMAP, DDP and MPA over kernel TCP, in user space, without privileges.
//!
//! | File | Contents |
//! |---|---|
//! | `rnic`, `objects` | the trait that the access layer calls, and the objects that it returns |
//! | `cm` | listen, connect, accept, reject, consumers' sockets |
//! | `qp`, `cq`, `srq` | queue pairs, completion queues, shared receive queues |
//! | `adapter` | the state that all objects of an RNIC share |
//! | `conn` | a connection in full operation |
//! | `startup`, `lingering` | a connection's socket before full operation, and after it |
//! | `carrier` | the transport of a connection's segments: TCP, or shared memory within a host |
//! | `work`, `memory` | queued work requests, registered memory |
//! | `progress` | the descriptors to sleep on, and which thread makes progress |
//! | `exiting` | the end of the process, which waits until peers have received what was sent |
//! | `socket` | own sockets and consumers' sockets |
//! | `policing` | limits of the administrator |
//! | `half_open` | connections that have not sent their first message |
//! | `engine` | the thread that does all work outside consumers' calls, its poller and timers |
//! | `config`, `pool`, `tally` | utilities of the other modules |
//!
//! A module uses only modules below it in this table. `cargo xtask tidy` checks that.
//!
//! A connection begins on TCP. If both ends are on one host and share a user or a directory
//! (`local`, `local_dir` in the IA's settings), it moves to shared memory once it is in use.
//!
//! The crate `iwarp-proto` implements the protocol itself, without access to sockets. This crate
//! sends and places the data that the protocol selects.
//!
//! # System calls, copies, locks and allocations of one small Send
//!
//! | | sender | receiver |
//! |---|---|---|
//! | system calls, TCP | 1 (`send`), or a share of one | 1 (`recv`), or a share of one |
//! | system calls, shared memory | none; 1 (`send`) if the receiver sleeps | none; 1 (`process_vm_readv`) for a payload above 8 KiB |
//! | copies in user space, TCP | 1, into the staging buffer | 1, to its place |
//! | copies, shared memory | 1, into the ring; none above 8 KiB, unless the Send asks for a copy | 1, to its place |
//! | locks taken, uncontended | connection, memory table, queue | connection, memory table, receives, queue |
//! | allocations | none | none |

mod adapter;
mod carrier;
mod cm;
mod config;
mod conn;
mod cq;
mod engine;
mod exiting;
mod half_open;
mod lingering;
mod memory;
mod objects;
mod policing;
mod pool;
mod progress;
mod qp;
mod rnic;
mod socket;
mod srq;
mod startup;
mod tally;
mod work;

// The support code of the integration tests, for unit tests that must act between two steps.
#[cfg(test)]
extern crate self as provider_iwarp_soft;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

pub use adapter::SoftRnic;
pub use cm::armed::SoftArmed;
pub use cm::request::SoftRequest;
pub use objects::{SoftCq, SoftListener, SoftMr, SoftMw, SoftPd, SoftQp, SoftSrq};

// An allocator with a reserve. If a process runs out of memory, the calls that need memory return
// an error.
host::allocate_with_reserve!();

access_layer::export_provider!(SoftRnic);
