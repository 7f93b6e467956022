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
//! | `stream.rs` | an established connection, and its news |

#![forbid(unsafe_code)]

mod adapter;
mod alarm;
mod connecting;
mod listener;
mod stream;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ops::{
    Capabilities, ConnectFailure, Local, OffloadBound, OffloadConnecting, OffloadProtocol, Reason,
    Target, Way,
};
use rustix::io::Errno;

use crate::adapter::Adapter;
use crate::connecting::SdpConnecting;
use crate::listener::SdpBound;

pub use crate::adapter::{ADAPTER_ENV, prefer_libraries_in};

/// Where the descriptors of this protocol are to be, out of the program's way.
pub type Place = fn(OwnedFd) -> Result<OwnedFd, Errno>;

/// The protocol.
#[derive(Debug)]
pub struct SdpProtocol {
    adapter: Arc<Adapter>,
    opens_early: bool,
}

impl SdpProtocol {
    /// Its descriptors are put where `place` puts them.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self {
            adapter: Arc::new(Adapter::new(place)),
            opens_early: true,
        }
    }

    /// One that connects nothing, for those who want to know what another would do.
    #[must_use]
    pub fn for_explanations() -> Self {
        Self {
            opens_early: false,
            ..Self::new(Ok)
        }
    }
}

impl OffloadProtocol for SdpProtocol {
    fn name(&self) -> &str {
        "sdp"
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
            asks_peer: true,
        }
    }

    fn reaches(&self, way: &Way<'_>) -> Result<(), Reason> {
        match self.adapter.name() {
            Ok(_) => {}
            Err(why) => return Err(Reason::Protocol(why.to_owned())),
        }
        if way.route.is_some() && self.opens_early {
            // Before the clock starts that bounds the attempt.
            let opened = self.adapter.stack();
            opened.map_err(|error| Reason::Protocol(error.to_string()))?;
        }
        Ok(())
    }

    fn bind(&self, local: Local) -> Result<Box<dyn OffloadBound>, Errno> {
        Ok(Box::new(SdpBound::new(&self.adapter, local)?))
    }

    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure> {
        let connecting = SdpConnecting::begin(&self.adapter, target);
        Ok(Box::new(connecting.map_err(ConnectFailure::Failed)?))
    }

    fn settle(&self, patience: Duration) {
        self.adapter.settle(patience);
    }

    fn serve_here(&self) -> Option<bool> {
        self.adapter.opened()?.serve_here()
    }

    fn lie_down(&self, fds: &mut [libc::pollfd]) -> Option<usize> {
        self.adapter.opened()?.lie_down(fds)
    }

    fn get_up(&self) {
        if let Some(stack) = self.adapter.opened() {
            stack.get_up();
        }
    }

    fn leave_to_threads(&self) {
        if let Some(stack) = self.adapter.opened() {
            stack.leave_to_thread();
        }
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
