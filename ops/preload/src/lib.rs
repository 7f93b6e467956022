//! The library that the loader puts in front of the C library's sockets.
//!
//! | File | What |
//! |---|---|
//! | `hooks` | the functions that programs call instead of the C library's |
//! | `real` | the C library's |
//! | `table` | which descriptors are offloaded |
//! | `socket` | an offloaded socket, with the meaning of a TCP socket |
//! | `guard`, `start` | calls and threads of the stack itself, which stay on TCP |
//! | `undisturbed` | work that no signal handler of the program interrupts |
//! | `connecting`, `listening` | where a socket comes to an offload protocol, and back |
//! | `not_offered` | services that no protocol offered a moment ago |
//! | `switch`, `tcp_only` | which sockets leave TCP and what may carry them; options that keep one there |
//! | `local` | connections within the host, whose descriptors are sockets of the kernel |
//! | `cancelling` | threads that are cancelled while they sleep in a call |
//! | `spinning` | polling before sleeping, where `opsrun --spin` asks for it |
//! | `restarting` | waiting that signals end as they end `accept` |
//! | `registrations` | `epoll` sets that watch a number |
//! | `sharing` | connections that more than one process uses |
//! | `observing` | what this process tells of its sockets to those who look |
//! | `event_thread`, `watches` | the thread `ops-events`, started with the first offloaded socket; whom it calls |
//! | `loading`, `exiting` | what is kept of the program's start; what was written leaves before its end |
//! | `process`, `per_process` | whose table it is, after `fork` and in a `vfork`ed child; what a process has for itself |
//! | `internal` | descriptors of ours, out of the program's way |
//! | `vector`, `errno` | lists of buffers and results, as C has them |

#![allow(
    unreachable_pub,
    reason = "what the loader binds is exported by its name and not by a path"
)]

mod cancelling;
mod connecting;
mod errno;
mod event_thread;
mod exiting;
mod guard;
mod hooks;
mod internal;
mod listening;
mod loading;
mod local;
mod not_offered;
mod observing;
mod per_process;
mod process;
mod real;
mod registrations;
mod restarting;
mod sharing;
mod socket;
mod spinning;
mod start;
mod switch;
mod table;
mod tcp_only;
mod undisturbed;
mod vector;
mod watches;
