//! An offload protocol for tests, over `AF_UNIX` sockets.
//!
//! It has what the switch has to deal with and SDP has too: a port space of its own, a handshake
//! that may be refused, be of another version, stall or break off, and connections that exist for
//! the accepting program only when the connecting one has committed itself. So whatever the switch
//! does for it, it does for any protocol.
//!
//! ```text
//!   connecting                      accepting
//!   HELLO version, own address  ──>
//!                              <──  WELCOME, or REFUSE, or another version
//!   COMMIT                      ──>  now it can be accepted
//! ```
//!
//! Messages are those of `SOCK_SEQPACKET`: a kind and its bytes, so that urgent data, half closes
//! and aborts are the protocol's own. A connection goes on when its descriptor's owner says so.
//!
//! A service is an abstract name with its address in it; that of all addresses has a star. How an
//! accepting end misbehaves is [`Behaviour`].

#![deny(unsafe_code)]

mod connecting;
mod listener;
mod stream;
mod wire;

use ops::{
    Capabilities, ConnectFailure, Local, OffloadBound, OffloadConnecting, OffloadProtocol, Reason,
    Target, Terms, Way,
};
use rustix::io::Errno;

use crate::connecting::UnixConnecting;
use crate::listener::UnixBound;

/// Number by which programs ask for it: one that is kept for experiments (RFC 3692).
pub const NUMBER: i32 = 253;

/// How an accepting end treats who connects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behaviour {
    /// As it should.
    #[default]
    Good,
    /// Every connection is refused.
    Refuse,
    /// It speaks another version.
    OtherVersion,
    /// It says nothing.
    Stall,
    /// It breaks off in the middle.
    BreakOff,
}

/// The protocol.
#[derive(Debug, Clone)]
pub struct UnixProtocol {
    /// Its name.
    pub name: String,
    /// What it claims to be able to do.
    pub capabilities: Capabilities,
    /// How its services behave.
    pub behaviour: Behaviour,
}

impl Default for UnixProtocol {
    fn default() -> Self {
        Self {
            name: "unix".to_owned(),
            capabilities: Capabilities {
                number: Some(NUMBER),
                ipv4: true,
                ipv6: true,
                self_routing: false,
                needs_rdma: false,
                loopback: true,
                remote: true,
                needs_rule: false,
                needs_rule_within_host: false,
                asks_peer: false,
            },
            behaviour: Behaviour::Good,
        }
    }
}

impl OffloadProtocol for UnixProtocol {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn reaches(&self, _: &Way<'_>) -> Result<(), Reason> {
        Ok(())
    }

    fn bind(&self, local: Local, _: Terms<'_>) -> Result<Box<dyn OffloadBound>, Errno> {
        Ok(Box::new(UnixBound::new(&self.name, local, self.behaviour)?))
    }

    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure> {
        Ok(Box::new(UnixConnecting::begin(&self.name, target)?))
    }
}
