//! TCP connections within a host, carried by `AF_UNIX` stream sockets.
//!
//! A service's TCP listener gets a second listener, of `AF_UNIX`, whose abstract name holds the
//! address and port. Abstract names belong to a network namespace, as addresses do. A connecting
//! program tries that name first, and the socket that the kernel connects becomes the program's
//! descriptor. The library adds no bytes to the connection, and none of its code is on the path of
//! the program's bytes.
//!
//! ```text
//!   connecting                                        listening, accepting
//!                                                     bind "ops1at4 127.0.0.1:6379", listen
//!   ask the kernel: which TCP listener?
//!   bind "ops1from4 127.0.0.1:40000 127.0.0.1:6379"
//!   connect to that listener's name          ──>      kernel's backlog
//!   check SO_PEERCRED of the listener                 accept: the peer's name holds both addresses
//!                                                     ask the kernel: this TCP listener?
//! ```
//!
//! The addresses of a connection are in the names that the kernel keeps with its two sockets. So
//! [`Addresses::of`] finds the addresses in each process that holds the descriptor, also after
//! `fork`, `exec` and `SCM_RIGHTS`, without a table.
//!
//! | File | Contents |
//! |---|---|
//! | `names` | abstract names of services and connections, written and parsed |
//! | `connection` | `connect`, `listen`, `accept` |
//! | `admission` | the rule by which both ends decide whether a connection is carried |
//! | `trust` | checks that a listener belongs to the user of the TCP listener |
//! | `settings` | the settings in the rule file |
//! | `ports` | chooses the local port of a connection |
//!
//! The port of a connection is unique among the local connections to one service. It is not
//! reserved in TCP's port space, because that would cost a descriptor for each connection. But the
//! library prefers ports outside the range from which the kernel assigns ports.
//!
//! Listeners with `SO_REUSEPORT` are not offered. Several such listeners, often of processes that
//! share the work, would have one name, and the first would receive all connections. A name for
//! each listener would not help. A client cannot see how many of the names are in use without
//! trying all of them, at each connection that then uses TCP. And a listener of the group whose
//! program runs without the library, or that a program of `SO_ATTACH_REUSEPORT_EBPF` selects,
//! would receive none of the connections that TCP distributes to it.

#![forbid(unsafe_code)]

mod admission;
mod connection;
mod names;
mod ports;
mod settings;
mod trust;

use std::fmt;

use ops::rules::Role;
use ops::{Capabilities, KernelSockets, OffloadProtocol, Reason, Way};

use crate::connection::Sockets;

pub use crate::connection::{is_at, is_listener};
pub use crate::names::Addresses;
pub use crate::settings::SETTINGS;

/// The name of the protocol in rule files and listings.
pub const NAME: &str = "local";

/// The protocol.
#[derive(Debug, Default)]
pub struct LocalProtocol {
    needs_rule: bool,
}

impl LocalProtocol {
    /// Makes the protocol. With `needs_rule`, it carries only connections for which a rule names
    /// it.
    #[must_use]
    pub fn new(needs_rule: bool) -> Self {
        Self { needs_rule }
    }
}

/// Returns the connections and listeners of the protocol.
#[must_use]
pub fn kernel_sockets() -> &'static dyn KernelSockets {
    &Sockets
}

impl OffloadProtocol for LocalProtocol {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            remote: false,
            needs_rule: self.needs_rule,
            needs_rule_within_host: false,
            asks_peer: false,
        }
    }

    fn reaches(&self, _: &Way<'_>) -> Result<(), Reason> {
        Ok(())
    }

    fn explain(&self, way: &Way<'_>) -> String {
        match way.role {
            // The options of a listener that does not exist yet are unknown.
            Role::Listen => "unless SO_REUSEPORT is set on it: one listener of the group would \
                             receive all connections"
                .to_owned(),
            Role::Connect => String::new(),
        }
    }

    fn sockets(&self) -> ops::Sockets<'_> {
        ops::Sockets::Kernel(kernel_sockets())
    }
}

impl fmt::Display for LocalProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}
