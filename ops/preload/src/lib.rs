//! The `LD_PRELOAD` library that replaces the C library's socket functions.
//!
//! The modules form layers: each module uses only modules above it in this table.
//!
//! | Module | Contents |
//! |---|---|
//! | `process` | the process into which this library is loaded: the C library's functions, threads, signals |
//! | `observing` | the records of this process's sockets, which `opsrun ss` reads |
//! | `fd` | the program's descriptors; a call on a native socket costs two loads |
//! | `events` | the thread `ops-events`, which starts with the first offloaded socket; sleeping threads |
//! | `tcp` | sockets of the kernel's TCP: addresses, options |
//! | `foreign` | offload protocols in shared objects, which the rule file names |
//! | `switch` | the decision which protocol carries a socket |
//! | `socket` | the connections behind the program's descriptors |
//! | `listener` | a listening TCP socket, and the offload listeners next to it |
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

host::allocate_with_reserve!();

mod events;
mod fd;
mod foreign;
// A test binary would call its own hooks from the test harness; the suites run programs under them.
#[cfg(not(test))]
mod hooks;
mod lifecycle;
mod listener;
mod local;
mod observing;
mod process;
mod setup;
mod sharing;
mod socket;
mod switch;
mod tcp;
