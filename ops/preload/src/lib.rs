//! The library that the loader puts in front of the C library's sockets.
//!
//! | Module | What |
//! |---|---|
//! | `process` | the process that this library lives in: the C library's functions, threads, signals |
//! | `events` | the thread `ops-events`, started with the first offloaded socket; where threads sleep |
//! | `tcp` | sockets of the kernel's TCP: addresses, options |
//! | `switch` | which sockets leave TCP and what may carry them |
//! | `socket` | an offloaded socket, with the meaning of a TCP socket |
//! | `passing` | connections on their way to another process that accepts |
//! | `table`, `numbers` | which descriptors are offloaded; numbers that are named anew and closed |
//! | `registrations` | `epoll` sets that watch a number |
//! | `observing` | what this process tells of its sockets to those who look |
//! | `sharing` | connections that more than one process uses |
//! | `local` | connections within the host, whose descriptors are sockets of the kernel |
//! | `connecting`, `listening` | where a socket comes to an offload protocol, and back |
//! | `not_offered` | services that no protocol offered a moment ago |
//! | `lifecycle` | the start of the process, its forks, its end |
//! | `hooks` | the functions that programs call instead of the C library's |

#![allow(
    unreachable_pub,
    reason = "what the loader binds is exported by its name and not by a path"
)]

mod connecting;
mod events;
mod hooks;
mod lifecycle;
mod listening;
mod local;
mod not_offered;
mod numbers;
mod observing;
mod passing;
mod process;
mod registrations;
mod sharing;
mod socket;
mod switch;
mod table;
mod tcp;
