//! The `LD_PRELOAD` library that replaces the C library's socket functions.
//!
//! The modules form layers: each module uses only modules above it in this table.
//!
//! | Module | Contents |
//! |---|---|
//! | `process` | the process into which this library is loaded: the C library's functions, threads, signals |
//! | `marks` | properties of descriptors besides their entries |
//! | `deferred_removal` | a removal from an `epoll` set that the kernel has not seen yet |
//! | `events` | the thread `ops-events`, which starts with the first offloaded socket; sleeping threads |
//! | `tcp` | sockets of the kernel's TCP: addresses, options |
//! | `switch` | the decision which protocol carries a socket |
//! | `observing` | the records of this process's sockets, which `opsrun ss` reads |
//! | `socket` | the connections behind the program's descriptors |
//! | `listener` | a listening TCP socket, and the offload listeners next to it |
//! | `table` | the entries of the program's descriptors; a call on a native socket costs two loads |
//! | `numbers` | adds, replaces and removes the table entries of descriptors |
//! | `registrations` | the program's `epoll` sets that watch a descriptor |
//! | `local` | connections within the host, whose descriptors are `AF_UNIX` sockets |
//! | `sharing` | connections that more than one process uses |
//! | `setup` | moves a socket to an offload protocol: `connect`, `listen`, `accept` |
//! | `lifecycle` | the start of the process, `fork`, `exec`, exit |
//! | `hooks` | the exported functions, which programs call instead of the C library's |

#![allow(
    unreachable_pub,
    reason = "the loader binds exported functions by name and not by path"
)]
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "test builds omit the hooks, which use all other modules"
    )
)]

mod deferred_removal;
mod events;
// A test binary would call its own hooks from the test harness; the suites run programs under them.
#[cfg(not(test))]
mod hooks;
mod lifecycle;
mod listener;
mod local;
mod marks;
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
