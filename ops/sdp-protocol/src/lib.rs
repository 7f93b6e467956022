//! SDP over DAT as an offload protocol of the switch.
//!
//! A connection begins with a rendezvous: a kernel TCP connection to the port that the peer's port
//! mapper names, where a kernel socket listens. The connecting end offers its adapters, and the
//! accepting end chooses one of two ways. If both ends have an RDMA device of the same kind behind
//! the network device of the connection, these devices connect. Otherwise the software provider
//! converts the TCP connection to an RDMA connection (DAT 2.0 iWARP extensions).
//!
//! ```text
//!   connecting                                     accepting
//!   connect to the mapped port, in the kernel ──>  kernel's backlog
//!   adapters, Hello                           ──>
//!                                             <──  a device: address, connection qualifier, token
//!   dat_ep_connect, token                     ──>  the service point of that adapter
//!                                             <──  HelloAck, dat_cr_accept
//!   first message                             ──>  now it can be accepted
//! ```
//!
//! With the software provider, the answer is "convert", and Hello and HelloAck are in the MPA
//! frames (`dat_iw_socket_connect`, `dat_iw_ssp_create`).
//!
//! Because of the rendezvous, connecting never blocks, `fork` inherits the listening socket like
//! any other, and processes share no service point of a device. The software provider and the
//! kernel's software devices (`rdma_rxe`, `siw`) are slower than TCP, so they are used only if a
//! rule names the protocol. [`SdpProtocol::for_all`] uses the software provider for all sockets.
//!
//! | File | Contents |
//! |---|---|
//! | `adapters.rs` | selects the adapter for the connections of a network device |
//! | `adapter.rs` | an adapter, which each process opens for its first connection |
//! | `alarm.rs` | a descriptor that is readable from a deadline on |
//! | `rendezvous.rs` | the wire format of a rendezvous |
//! | `connecting.rs` | the connecting end |
//! | `listener.rs` | the accepting end |
//! | `pending.rs` | connections of a service that the program has not accepted yet |
//! | `settings.rs` | the settings of SDP in rule files |
//! | `stream.rs` | an established connection, and its events |

#![forbid(unsafe_code)]

mod adapter;
mod adapters;
mod alarm;
mod connecting;
mod listener;
mod pending;
mod rendezvous;
mod settings;
mod stream;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use ops::{
    Capabilities, ConnectFailure, Local, OffloadBound, OffloadConnecting, OffloadProtocol,
    RdmaPort, Reason, Sockets, StreamSockets, Target, Terms, Way,
};
use rustix::io::Errno;

use crate::adapters::{Adapters, UsableDevices};
use crate::connecting::{Candidate, SdpConnecting};
use crate::listener::SdpBound;
use crate::pending::Choice;
use crate::rendezvous::AdapterKind;
use crate::settings::{InForce, Settings};

pub use crate::adapters::{ADAPTER_ENV, prefer_libraries_in};
pub use crate::settings::SETTINGS;

/// The name of the protocol in rule files and listings.
pub(crate) const NAME: &str = "sdp";

/// A function that moves a descriptor of this protocol out of the range that programs use.
pub type RaiseDescriptor = fn(OwnedFd) -> Result<OwnedFd, Errno>;

/// The protocol.
#[derive(Debug)]
pub struct SdpProtocol {
    adapters: Arc<Adapters>,
    explains: bool,
    uses: Uses,
    /// True if the last query found no software adapter.
    lacks_adapter: AtomicBool,
}

/// The adapters that carry sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uses {
    /// RDMA hardware; software devices and the software provider if a rule names the protocol.
    Devices,
    /// The software provider, for every socket.
    Software,
}

impl SdpProtocol {
    /// Makes the protocol. `raise` is called for each of its descriptors.
    #[must_use]
    pub fn new(raise: RaiseDescriptor) -> Self {
        Self {
            adapters: Arc::new(Adapters::new(raise)),
            explains: false,
            uses: Uses::Devices,
            lacks_adapter: AtomicBool::new(false),
        }
    }

    /// Makes a protocol for explanations: it opens the adapter even if only
    /// [`reaches`](OffloadProtocol::reaches) is called.
    #[must_use]
    pub fn for_explanations() -> Self {
        Self {
            explains: true,
            ..Self::new(Ok)
        }
    }

    /// With `all`, the software provider carries all sockets that the rules permit, although it is
    /// slower than TCP. Otherwise RDMA hardware carries the sockets, and software only if a rule
    /// names the protocol.
    #[must_use]
    pub fn for_all(self, all: bool) -> Self {
        Self {
            uses: if all { Uses::Software } else { Uses::Devices },
            ..self
        }
    }

    /// Returns advice for the user if the last query found no software adapter.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let lacks = self.lacks_adapter.load(Ordering::Relaxed);
        lacks.then(adapters::advice)
    }

    fn may_use_software(&self, terms: Terms<'_>) -> bool {
        self.uses == Uses::Software || terms.is_named
    }

    /// Returns the RDMA devices that may carry sockets on these terms.
    fn usable_devices(&self, terms: Terms<'_>) -> UsableDevices {
        match self.uses {
            Uses::Software => UsableDevices::None,
            Uses::Devices if terms.is_named => UsableDevices::All,
            Uses::Devices => UsableDevices::Hardware,
        }
    }

    /// Returns the adapters of the usable ones of these RDMA ports.
    fn devices(&self, ports: &[RdmaPort], terms: Terms<'_>) -> Vec<Candidate> {
        let usable = self.usable_devices(terms);
        let candidate = |port: &RdmaPort| match self.adapters.device(port) {
            Ok(adapter) => Some(Candidate {
                adapter,
                kind: AdapterKind::of_device(port.is_iwarp),
            }),
            Err(why) => {
                tracing::info!(device = port.device, why, "an RDMA device is not used");
                None
            }
        };
        let ports = ports.iter().filter(|port| usable.contains(port));
        ports.filter_map(candidate).collect()
    }

    /// Checks whether the software provider can carry a socket on this route.
    fn software_reaches(&self, way: &Way<'_>) -> Result<(), Reason> {
        let found = match way.route {
            // The attempt opens the adapter if the peer offers the service, on the event thread of
            // a program that does not wait.
            Some(_) if !self.explains && adapter::is_opening() => Ok(()),
            Some(route) => {
                let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                let source = route.source.unwrap_or(any);
                let found = self.adapters.software_at(source, self.explains);
                found.map(drop)
            }
            None if self.explains => self.adapters.software_at(way.address.ip(), true).map(drop),
            // For a listener the adapter is not opened, because no connection may ever need it.
            None => self.adapters.software().map(drop),
        };
        self.lacks_adapter.store(found.is_err(), Ordering::Relaxed);
        found.map_err(Reason::Protocol)
    }

    /// Returns the names of the adapters through which a service at this address may accept.
    fn shown(&self, at: IpAddr, terms: Terms<'_>) -> String {
        let software = self.may_use_software(terms);
        if self.uses == Uses::Software {
            let adapter = self.adapters.software();
            return adapter.map_or_else(|_| String::new(), |it| it.shown().to_owned());
        }
        let devices = self.adapters.ports_at(at, self.usable_devices(terms));
        let names: BTreeSet<String> = devices.into_iter().map(|port| port.device).collect();
        let mut names = Vec::from_iter(names);
        if software && let Ok(adapter) = self.adapters.software() {
            names.push(adapter.shown().to_owned());
        }
        names.join(",")
    }
}

impl OffloadProtocol for SdpProtocol {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            remote: true,
            // Whether a rule is needed depends on the route: see `reaches`.
            needs_rule: false,
            needs_rule_within_host: self.uses == Uses::Devices,
            asks_peer: true,
        }
    }

    fn reaches(&self, way: &Way<'_>) -> Result<(), Reason> {
        let software = self.may_use_software(way.terms);
        if !software && way.ports.is_empty() {
            let device = way.device.map(str::to_owned);
            return Err(Reason::NoRdma { device });
        }
        if !self.devices(way.ports, way.terms).is_empty() {
            return Ok(());
        }
        if software {
            return self.software_reaches(way);
        }
        if let Some(port) = way.ports.first()
            && way.ports.iter().all(|port| port.is_software)
        {
            let device = port.device.clone();
            return Err(Reason::SoftwareDevice { device });
        }
        let why = way.ports.first().map(|port| self.adapters.device(port));
        let why = why.and_then(Result::err).unwrap_or_default();
        Err(Reason::Protocol(why))
    }

    fn explain(&self, way: &Way<'_>) -> String {
        let best = self.devices(way.ports, way.terms).into_iter().next();
        let best = best.map(|candidate| Ok(candidate.adapter));
        let Ok(adapter) = best.unwrap_or_else(|| self.adapters.software()) else {
            return String::new();
        };
        let in_force = match adapter.stack_for(Settings::of(way.terms)) {
            Ok(stack) => format!(", {}", InForce(stack.config())),
            Err(error) => format!(", but {error}"),
        };
        format!("by {}{in_force}", adapter.described())
    }

    fn sockets(&self) -> Sockets<'_> {
        Sockets::Streams(self)
    }

    fn settle(&self, patience: Duration) {
        self.adapters.settle(patience);
    }

    fn before_fork(&self) -> Option<MutexGuard<'static, ()>> {
        Some(adapter::opening())
    }
}

impl StreamSockets for SdpProtocol {
    fn bind(&self, local: Local, terms: Terms<'_>) -> Result<Box<dyn OffloadBound>, Errno> {
        let choice = Choice {
            settings: Settings::of(terms),
            may_use_software: self.may_use_software(terms),
            devices: self.usable_devices(terms),
        };
        let bound = SdpBound::new(
            &self.adapters,
            local,
            choice,
            self.shown(local.address.ip(), terms),
        )?;
        Ok(Box::new(bound))
    }

    fn connect(&self, target: &Target<'_>) -> Result<Box<dyn OffloadConnecting>, ConnectFailure> {
        let mut candidates = self.devices(target.ports, target.terms);
        if self.may_use_software(target.terms) {
            let kind = AdapterKind::Socket;
            match self.adapters.software_at(target.local.ip(), true) {
                Ok(adapter) => candidates.push(Candidate { adapter, kind }),
                Err(why) if candidates.is_empty() => return Err(ConnectFailure::Unusable(why)),
                Err(_) => {}
            }
        }
        let connecting = SdpConnecting::begin(&self.adapters, candidates, target);
        Ok(Box::new(connecting.map_err(ConnectFailure::Failed)?))
    }
}

/// Converts an error of the SDP stack to the error of a socket call.
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
