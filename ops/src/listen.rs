//! A service with one port and one accept queue over all stacks.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::SocketFlags;
use tracing::info;

use crate::decision::Offer;
use crate::local::Local;
use crate::netlink::PortReservation;
use crate::protosw::{OffloadBound, OffloadListener, OffloadStream};
use crate::reason::Reason;

/// The number of ports that are tried until one is free on every stack.
const PORTS_MAX: u32 = 16;

/// A protocol that is bound to the address.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) protocol: String,
    pub(crate) asks_peer: bool,
    pub(crate) bound: Box<dyn OffloadBound>,
}

/// The protocols that are bound to the kernel socket's address, and those whose bind failed.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    pub(crate) taken: Vec<Taken>,
    pub(crate) failures: Vec<(String, Reason)>,
}

/// Binds the kernel socket and every protocol of the offer to `address`.
///
/// The kernel decides first: no protocol is bound to an address that the kernel refuses. Port 0
/// becomes a port that is free on every stack, if `PORTS_MAX` tries find one. A port that the
/// program chose is bound in the kernel even if a protocol uses it for another socket.
pub(crate) fn bind(
    native: &OwnedFd,
    address: SocketAddr,
    offer: Option<&Offer>,
) -> Result<Bound, Errno> {
    let offer = match offer {
        Some(offer) if address.port() == 0 => offer,
        offer => {
            rustix::net::bind(native, &address)?;
            return Ok(offer
                .map(|offer| bind_protocols(offer, Local::of(native, address)))
                .unwrap_or_default());
        }
    };
    for _ in 0..PORTS_MAX {
        let Ok(reserved) = PortReservation::new(address) else {
            break;
        };
        let chosen = SocketAddr::new(address.ip(), reserved.local().port());
        let bound = bind_protocols(offer, Local::of(native, chosen));
        if bound
            .failures
            .iter()
            .any(|(_, reason)| *reason == Reason::PortTaken)
        {
            continue;
        }
        drop(reserved);
        match rustix::net::bind(native, &with_port(address, chosen.port())) {
            // Another socket took the port between the reservation and this bind.
            Err(Errno::ADDRINUSE) => {}
            done => return done.map(|()| bound),
        }
    }
    rustix::net::bind(native, &address)?;
    let local: SocketAddr = rustix::net::getsockname(native)?.try_into()?;
    Ok(bind_protocols(offer, Local::of(native, local)))
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn bind_protocols(offer: &Offer, local: Local) -> Bound {
    let mut all = Bound::default();
    for protocol in &offer.protocols {
        // A protocol whose connections are kernel sockets listens next to a kernel socket that
        // listens already.
        let Some(streams) = protocol.sockets().streams() else {
            continue;
        };
        let name = protocol.name().to_owned();
        match streams.bind(local, offer.terms()) {
            Ok(bound) => all.taken.push(Taken {
                protocol: name,
                asks_peer: protocol.capabilities().asks_peer,
                bound,
            }),
            Err(errno) => {
                let reason = match errno {
                    Errno::ADDRINUSE => Reason::PortTaken,
                    other => Reason::Failed(other),
                };
                let address = local.address;
                info!(%address, protocol = name, %reason, "a protocol does not listen");
                all.failures.push((name, reason));
            }
        }
    }
    all
}

/// A connection that was accepted.
#[derive(Debug)]
pub enum Accepted {
    /// Accepted by TCP: a kernel socket, which the switch no longer handles.
    Native(OwnedFd),
    /// Accepted by an offload protocol.
    Offloaded {
        /// Name of the protocol.
        protocol: String,
        /// The connection.
        stream: Box<dyn OffloadStream>,
    },
}

/// A service on every stack. TCP connections are queued in the kernel, so its backlog is unchanged;
/// `accept` merges the queues of all stacks.
#[derive(Debug)]
pub struct Listening {
    offloads: Vec<(String, Box<dyn OffloadListener>)>,
    turn: usize,
}

impl Listening {
    pub(crate) fn new(offloads: Vec<(String, Box<dyn OffloadListener>)>) -> Self {
        Self { offloads, turn: 0 }
    }

    /// Returns the protocols that listen.
    pub fn protocols(&self) -> impl Iterator<Item = &str> {
        self.offloads.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the descriptors to poll for input in addition to the kernel's listener.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.offloads.iter().map(|(_, listener)| listener.as_fd())
    }

    /// Returns the next connection of any stack; `native` is the kernel's non-blocking listener.
    /// The stacks take turns, so that a busy stack does not starve another.
    ///
    /// # Errors
    /// Fails if no connection is queued and one of the stacks has failed.
    pub(crate) fn accept(&mut self, native: &OwnedFd) -> Result<Option<Accepted>, Errno> {
        let stacks = self.offloads.len() + 1;
        let mut failure = None;
        for step in 0..stacks {
            let at = (self.turn + step) % stacks;
            let accepted = match self.offloads.get(at) {
                Some((name, listener)) => listener.accept().map(|stream| {
                    let protocol = name.clone();
                    stream.map(|stream| Accepted::Offloaded { protocol, stream })
                }),
                None => accept_native(native),
            };
            match accepted {
                Ok(Some(accepted)) => {
                    self.turn = (at + 1) % stacks;
                    return Ok(Some(accepted));
                }
                Ok(None) => {}
                Err(errno) => failure = Some(errno),
            }
        }
        failure.map_or(Ok(None), Err)
    }
}

fn accept_native(native: &OwnedFd) -> Result<Option<Accepted>, Errno> {
    loop {
        match rustix::net::accept_with(native, SocketFlags::CLOEXEC) {
            Ok(socket) => return Ok(Some(Accepted::Native(socket))),
            Err(Errno::AGAIN) => return Ok(None),
            // A connection that was aborted before it was accepted; the next one may be alive.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
}
