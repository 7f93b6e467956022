//! The sides that run under `opsrun`.

use std::fmt;

/// The way in which the two sides of a case are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// Server and clients under `opsrun`.
    Both,
    /// The clients under `opsrun`; the server over TCP only.
    Clients,
    /// The server under `opsrun`; the clients over TCP only.
    Server,
    /// The server under `opsrun`; clients of both kinds use it one after the other.
    Mixed,
}

/// The transports that a program's sockets may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Any transport: the program runs under `opsrun`.
    Offloading,
    /// The kernel's TCP only.
    Plain,
}

impl Arrangement {
    pub(crate) const ALL: [Self; 4] = [Self::Both, Self::Clients, Self::Server, Self::Mixed];

    pub(crate) fn server(self) -> Side {
        match self {
            Self::Clients => Side::Plain,
            Self::Both | Self::Server | Self::Mixed => Side::Offloading,
        }
    }

    /// True if the arrangement has offloaded connections.
    pub(crate) fn may_offload(self) -> bool {
        self.server() == Side::Offloading && self.clients().contains(&Side::Offloading)
    }

    /// The sides of the clients, one after the other.
    pub(crate) fn clients(self) -> &'static [Side] {
        match self {
            Self::Both | Self::Clients => &[Side::Offloading],
            Self::Server => &[Side::Plain],
            Self::Mixed => &[Side::Offloading, Side::Plain],
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "both",
            Self::Clients => "client only",
            Self::Server => "server only",
            Self::Mixed => "mixed clients",
        })
    }
}
