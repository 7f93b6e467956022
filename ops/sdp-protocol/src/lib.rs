//! SDP over DAT as an offload protocol of the switch.
//!
//! A connection begins as a TCP connection of its own, beside that of the program: to a port that
//! the peer's port mapper names, where a plain kernel socket listens. Both ends then turn it into
//! an RDMA connection (DAT 2.0 iWARP extensions), with Hello and HelloAck in its start-up frames.
//!
//! ```text
//!   connecting                                   accepting
//!   connect to the mapped port, in the kernel ──>  kernel's backlog
//!   dat_iw_socket_connect: MPA request, Hello ──>  dat_iw_ssp_create
//!                                             <──  HelloAck, MPA reply
//!   first message                             ──>  now it can be accepted
//! ```
//!
//! So connecting never blocks, the listening socket is inherited over `fork` as any other, and the
//! one adapter of a process carries connections of every address.
//!
//! | File | What |
//! |---|---|
//! | `adapter.rs` | the interface adapter of this process, opened with its first connection |
//! | `alarm.rs` | a descriptor that is readable from a moment on |
//! | `connecting.rs` | the connecting end |
//! | `listener.rs` | the accepting end |
//! | `settings.rs` | what rule files may set |
//! | `stream.rs` | an established connection, and its news |

#![forbid(unsafe_code)]

mod adapter;
mod alarm;
mod connecting;
mod listener;
mod settings;
mod stream;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ops::{
    Capabilities, ConnectFailure, Local, OffloadBound, OffloadConnecting, OffloadProtocol, Reason,
    Setting, Target, Way,
};
use rustix::io::Errno;

use crate::adapter::Adapter;
use crate::connecting::SdpConnecting;
use crate::listener::SdpBound;
use crate::settings::{InForce, Settings};

pub use crate::adapter::{ADAPTER_ENV, prefer_libraries_in};
pub use crate::settings::SETTINGS;

/// What rule files and listings call the protocol.
pub(crate) const NAME: &str = "sdp";

/// Where the descriptors of this protocol are to be, out of the program's way.
pub type Place = fn(OwnedFd) -> Result<OwnedFd, Errno>;

/// The protocol.
#[derive(Debug)]
pub struct SdpProtocol {
    adapter: Arc<Adapter>,
    explains: bool,
    needs_rule: bool,
    /// The last answer was that there is no adapter for it.
    lacks_adapter: AtomicBool,
}

impl SdpProtocol {
    /// Its descriptors are put where `place` puts them.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self {
            adapter: Arc::new(Adapter::new(place)),
            explains: false,
            needs_rule: true,
            lacks_adapter: AtomicBool::new(false),
        }
    }

    /// One for those who want to know what another would do: it opens the adapter for whatever it
    /// is asked.
    #[must_use]
    pub fn for_explanations() -> Self {
        Self {
            explains: true,
            ..Self::new(Ok)
        }
    }

    /// With `all`, carries each socket that no rule keeps from it; without, those for which a rule
    /// names it, because the software provider is slower than TCP.
    #[must_use]
    pub fn for_all(self, all: bool) -> Self {
        Self {
            needs_rule: !all,
            ..self
        }
    }

    /// What helps, where it has just said that no adapter carries a socket.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let lacks = self.lacks_adapter.load(Ordering::Relaxed);
        lacks.then(adapter::advice)
    }
}

impl OffloadProtocol for SdpProtocol {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            number: None,
            ipv4: true,
            ipv6: true,
            self_routing: false,
            // The software provider needs no device.
            needs_rdma: false,
            loopback: true,
            remote: true,
            needs_rule: self.needs_rule,
            asks_peer: true,
        }
    }

    fn reaches(&self, way: &Way<'_>) -> Result<(), Reason> {
        let found = match (self.adapter.name(), way.route) {
            (Err(why), _) => Err(why.to_owned()),
            // Before the clock starts that bounds the attempt.
            (Ok(_), Some(route)) => {
                let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                self.adapter.serves(route.source.unwrap_or(any))
            }
            (Ok(_), None) if self.explains => self.adapter.serves(way.address.ip()),
            // A program that listens may never have a connection to open it for.
            (Ok(_), None) => Ok(()),
        };
        self.lacks_adapter.store(found.is_err(), Ordering::Relaxed);
        found.map_err(Reason::Protocol)
    }

    fn told(&self, settings: &[Setting]) -> String {
        let stack = self.adapter.stack_for(Settings::of(settings));
        let in_force = stack.map(|stack| format!(", {}", InForce(stack.config())));
        let name = self.adapter.name().unwrap_or_default();
        format!("by {name}{}", in_force.unwrap_or_default())
    }

    fn bind(&self, local: Local, settings: &[Setting]) -> Result<Box<dyn OffloadBound>, Errno> {
        let settings = Settings::of(settings);
        Ok(Box::new(SdpBound::new(&self.adapter, local, settings)?))
    }

    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure> {
        let connecting = SdpConnecting::begin(&self.adapter, target);
        Ok(Box::new(connecting.map_err(ConnectFailure::Failed)?))
    }

    fn settle(&self, patience: Duration) {
        self.adapter.settle(patience);
    }

    fn before_fork(&self) -> Option<MutexGuard<'static, ()>> {
        Some(adapter::opening())
    }
}

/// A call of the stack that failed, as a socket call's number.
fn errno_of(error: &std::io::Error) -> Errno {
    match error.kind() {
        std::io::ErrorKind::WouldBlock => Errno::AGAIN,
        std::io::ErrorKind::InvalidInput => Errno::INVAL,
        std::io::ErrorKind::Interrupted => Errno::INTR,
        std::io::ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}

impl fmt::Display for SdpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
