//! The queries to the rules.

use std::net::SocketAddr;

/// The call that a socket is about to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Waits for connections at an address of this host.
    Listen,
    /// Connects to the address of a peer.
    Connect,
}

impl Role {
    /// Returns the keyword in a rule.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Connect => "connect",
        }
    }
}

/// A socket at the moment of the decision.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The call that the socket is about to make.
    pub role: Role,
    /// Path of the program's file, or its base name alone.
    pub program: &'a str,
    /// The name by which the program was started, with or without directories. It differs from the
    /// name of the file if the program was started through a link.
    pub called: &'a str,
    /// Effective user id of the program.
    pub user: u32,
    /// The socket's own address if it listens, the peer's if it connects.
    pub address: SocketAddr,
    /// The device of the route, or the device that has the listening address, if there is exactly
    /// one.
    pub interface: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Returns the names of the program without directories: the name of its file, and the name by
    /// which it was started.
    #[must_use]
    pub fn base_names(&self) -> [&'a str; 2] {
        [self.program, self.called].map(|name| name.rsplit('/').next().unwrap_or(name))
    }
}
