//! The library that the loader puts in front of the C library's sockets.
//!
//! | File | What |
//! |---|---|
//! | `hooks` | the functions that programs call instead of the C library's |
//! | `real` | the C library's |
//! | `table` | which descriptors are offloaded |
//! | `socket` | an offloaded socket, with the meaning of a TCP socket |
//! | `guard`, `start` | calls and threads of the stack itself, which stay on TCP |
//! | `connecting`, `listening`, `accepting` | where a socket comes to an offload protocol, and back |
//! | `decision`, `protocol` | which sockets leave TCP, and what may carry them |
//! | `listener`, `registrations` | what stands beside a listening socket; `epoll` sets that watch a number |
//! | `sharing` | connections that more than one process uses |
//! | `observing` | what this process tells of its sockets to those who look |
//! | `steward` | the one thread of ours, started with the first offloaded socket |
//! | `process` | whose table it is, after `fork` and in a `vfork`ed child |
//! | `internal` | descriptors of ours, out of the program's way |
//! | `test_protocol` | a protocol for tests alone |
//! | `vector`, `errno` | lists of buffers and results, as C has them |

#![allow(
    unreachable_pub,
    reason = "what the loader binds is exported by its name and not by a path"
)]

mod accepting;
mod connecting;
mod decision;
mod errno;
mod guard;
mod hooks;
mod internal;
mod listener;
mod listening;
mod observing;
mod process;
mod protocol;
mod real;
mod registrations;
mod sharing;
mod socket;
mod start;
mod steward;
mod table;
mod test_protocol;
mod vector;
