//! One port and one accept queue over all stacks.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ops_netlink::PortReservation;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use tracing::info;

use crate::decision::Offer;
use crate::local::Local;
use crate::protosw::{OffloadBound, OffloadListener, OffloadStream};
use crate::reason::Reason;

/// How often a port is looked for that is free on every stack.
const PORTS_MAX: u32 = 16;

/// A protocol that has taken the address.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) protocol: String,
    pub(crate) asks_peer: bool,
    pub(crate) bound: Box<dyn OffloadBound>,
}

/// Protocols that take an address that the kernel has, and those that do not.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    pub(crate) taken: Vec<Taken>,
    pub(crate) passed_over: Vec<(String, Reason)>,
}

/// Gives `address` to the kernel socket and to every protocol of the offer.
///
/// The kernel comes first: what it refuses, no other stack gets. Port 0 becomes one that is free on
/// every stack, if such a one is found soon; a port that the program chose is the kernel's even if
/// a protocol has given it away.
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
                .map(|offer| take(offer, Local::of(native, address)))
                .unwrap_or_default());
        }
    };
    for _ in 0..PORTS_MAX {
        let Ok(reserved) = PortReservation::new(address) else {
            break;
        };
        let chosen = SocketAddr::new(address.ip(), reserved.local().port());
        let bound = take(offer, Local::of(native, chosen));
        if bound
            .passed_over
            .iter()
            .any(|(_, reason)| *reason == Reason::PortTaken)
        {
            continue;
        }
        drop(reserved);
        match rustix::net::bind(native, &with_port(address, chosen.port())) {
            // Somebody was faster.
            Err(Errno::ADDRINUSE) => {}
            done => return done.map(|()| bound),
        }
    }
    rustix::net::bind(native, &address)?;
    let local: SocketAddr = rustix::net::getsockname(native)?.try_into()?;
    Ok(take(offer, Local::of(native, local)))
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

fn take(offer: &Offer, local: Local) -> Bound {
    let mut all = Bound::default();
    for protocol in &offer.protocols {
        let name = protocol.name().to_owned();
        match protocol.bind(local, offer.terms()) {
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
                info!(%address, protocol = name, %reason, "listening without a protocol");
                all.passed_over.push((name, reason));
            }
        }
    }
    all
}

/// A connection that was accepted.
#[derive(Debug)]
pub enum Accepted {
    /// By TCP: a kernel socket, with which the switch has nothing more to do.
    Native(OwnedFd),
    /// By an offload protocol.
    Offloaded {
        /// Which one.
        protocol: String,
        /// The connection.
        stream: Box<dyn OffloadStream>,
    },
}

/// A service on every stack. Connections of TCP wait in the kernel, so that its backlog stays what
/// it is; one queue is what `accept` makes of all.
#[derive(Debug)]
pub struct Listening {
    offloads: Vec<(String, Box<dyn OffloadListener>)>,
    turn: usize,
}

impl Listening {
    pub(crate) fn new(offloads: Vec<(String, Box<dyn OffloadListener>)>) -> Self {
        Self { offloads, turn: 0 }
    }

    /// The protocols that listen.
    pub fn protocols(&self) -> impl Iterator<Item = &str> {
        self.offloads.iter().map(|(name, _)| name.as_str())
    }

    /// What to poll for input beside the kernel's listener.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.offloads.iter().map(|(_, listener)| listener.as_fd())
    }

    /// The next connection of any stack; `native` is the kernel's listener, which does not block.
    /// Stacks take turns, so that none of them waits for ever behind another.
    ///
    /// # Errors
    /// When no connection is there and one of the stacks has failed.
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
            // A connection that is gone already; the next one may not be.
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(errno) => return Err(errno),
        }
    }
}
