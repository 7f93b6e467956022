//! The library that the loader puts in front of the C library's sockets.
//!
//! The modules form layers: each one uses only those above it in this table.
//!
//! | Module | What |
//! |---|---|
//! | `process` | the process that this library lives in: the C library's functions, threads, signals |
//! | `events` | the thread `ops-events`, started with the first offloaded socket; where threads sleep |
//! | `tcp` | sockets of the kernel's TCP: addresses, options |
//! | `switch` | which sockets leave TCP and what may carry them |
//! | `observing` | the records of this process's sockets, for other processes that look |
//! | `socket` | the connections behind the program's descriptors |
//! | `listener` | a listening socket, and what is next to it |
//! | `table` | the entries of the program's descriptors: two loads for every socket call |
//! | `numbers` | what is put behind a descriptor, and what happens when it is closed |
//! | `registrations` | `epoll` sets that watch a number |
//! | `local` | connections within the host, whose descriptors are sockets of the kernel |
//! | `sharing` | connections that more than one process uses |
//! | `setup` | where a socket comes to an offload protocol: `connect`, `listen`, `accept` |
//! | `lifecycle` | the start of the process, its forks, its end |
//! | `hooks` | the functions that programs call instead of the C library's |

#![allow(
    unreachable_pub,
    reason = "what the loader binds is exported by its name and not by a path"
)]
#![cfg_attr(
    test,
    allow(dead_code, reason = "the hooks, which use all else, are left out")
)]

mod events;
// A test binary would call its own hooks from the test harness; the suites run programs under them.
#[cfg(not(test))]
mod hooks;
mod lifecycle;
mod listener;
mod local;
mod numbers;
mod observing;
mod process;
mod registrations;
mod setup;
mod sharing;
mod socket;
mod switch;
mod table;
mod tcp;
