//! What is asked of the rules.

use std::net::SocketAddr;

/// What a socket is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Wait for connections at an address of its own.
    Listen,
    /// Connect to an address of a peer.
    Connect,
}

impl Role {
    /// Its keyword.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Connect => "connect",
        }
    }
}

/// One socket at the moment of the decision.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// What it is about to do.
    pub role: Role,
    /// Path of the program's file, or its base name alone.
    pub program: &'a str,
    /// The name that the program was started by, with directories or without: another one than its
    /// file's where that was a link.
    pub called: &'a str,
    /// Effective user id of the program.
    pub user: u32,
    /// Its own address if it listens, the peer's if it connects.
    pub address: SocketAddr,
    /// Device by which the route leaves or on which the address lives, if there is one such device.
    pub interface: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// The names that the program has without directories: its file's, and the one that it was
    /// started by.
    #[must_use]
    pub fn base_names(&self) -> [&'a str; 2] {
        [self.program, self.called].map(|name| name.rsplit('/').next().unwrap_or(name))
    }
}
