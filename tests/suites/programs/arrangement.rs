//! Which side runs under `opsrun`.

use std::fmt;

/// How the two sides of a case are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// Server and clients under `opsrun`.
    Both,
    /// The clients; the server is a plain peer.
    Clients,
    /// The server; the clients are plain peers.
    Server,
    /// The server, which clients of both kinds use one after the other.
    Mixed,
}

/// Where a program's sockets may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Anywhere: it runs under `opsrun`.
    Offloading,
    /// To the kernel's TCP alone.
    Plain,
}

impl Arrangement {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Both, Self::Clients, Self::Server, Self::Mixed];

    /// How the server runs.
    pub(crate) fn server(self) -> Side {
        match self {
            Self::Clients => Side::Plain,
            Self::Both | Self::Server | Self::Mixed => Side::Offloading,
        }
    }

    /// Whether connections are offloaded in it.
    pub(crate) fn may_offload(self) -> bool {
        self.server() == Side::Offloading && self.clients().contains(&Side::Offloading)
    }

    /// How those run that use it, one after the other.
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
