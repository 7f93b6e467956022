//! An offload protocol for tests, over `AF_UNIX` sockets.
//!
//! The protocol has the properties of SDP that matter to the switch. It has its own port space. Its
//! handshake may be refused, be of another version, stall or be aborted. A connection can be
//! accepted only after the connecting end has committed itself. So a behaviour of the switch that
//! is tested with this protocol is the same for any protocol.
//!
//! ```text
//!   connecting                      accepting
//!   HELLO version, own address  ──>
//!                              <──  WELCOME, or REFUSE, or another version
//!   COMMIT                      ──>  now it can be accepted
//! ```
//!
//! An established connection carries short messages of bytes and nothing else.
//!
//! A service is an abstract name with its address in it; the name of a service at all addresses has
//! a star. [`Behaviour`] selects how an accepting end misbehaves.

mod connecting;
mod listener;
mod stream;
mod wire;

use ops::{
    Capabilities, ConnectFailure, Local, OffloadBound, OffloadConnecting, OffloadProtocol, Reason,
    Sockets, StreamSockets, Target, Terms, Way,
};
use rustix::io::Errno;

use crate::unix_protocol::connecting::UnixConnecting;
use crate::unix_protocol::listener::UnixBound;

/// The behaviour of an accepting end in the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Behaviour {
    /// Follows the protocol.
    #[default]
    Good,
    /// Refuses every connection.
    Refuse,
    /// Answers with another version.
    OtherVersion,
    /// Sends no answer.
    Stall,
    /// Closes the connection during the handshake.
    BreakOff,
}

#[derive(Debug, Clone)]
pub(super) struct UnixProtocol {
    /// The name of the protocol.
    pub(super) name: &'static str,
    /// The capabilities that the protocol claims.
    pub(super) capabilities: Capabilities,
    pub(super) behaviour: Behaviour,
}

impl Default for UnixProtocol {
    fn default() -> Self {
        Self {
            name: "unix",
            capabilities: Capabilities {
                remote: true,
                needs_rule: false,
                needs_rule_within_host: false,
                asks_peer: false,
            },
            behaviour: Behaviour::Good,
        }
    }
}

impl UnixProtocol {
    pub(super) fn named(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    pub(super) fn with_behaviour(behaviour: Behaviour) -> Self {
        Self {
            behaviour,
            ..Self::default()
        }
    }
}

impl OffloadProtocol for UnixProtocol {
    fn name(&self) -> &'static str {
        self.name
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn reaches(&self, _: &Way<'_>) -> Result<(), Reason> {
        Ok(())
    }

    fn sockets(&self) -> Sockets<'_> {
        Sockets::Streams(self)
    }
}

impl StreamSockets for UnixProtocol {
    fn bind(&self, local: Local, _: Terms<'_>) -> Result<Box<dyn OffloadBound>, Errno> {
        Ok(Box::new(UnixBound::new(self.name, local, self.behaviour)?))
    }

    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure> {
        Ok(Box::new(UnixConnecting::begin(self.name, target)?))
    }
}
