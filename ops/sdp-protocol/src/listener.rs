//! Services.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ops::{Local, OffloadBound, OffloadListener, OffloadStream};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use sdp_over_dat::{Commitment, PendingHellos, SdpStream};
use tracing::{debug, warn};

use crate::adapter::Adapter;
use crate::alarm::Alarm;
use crate::errno_of;
use crate::settings::Settings;
use crate::stream::{SdpOffload, WakeupFd};

/// Ports below this are given to privileged programs only, and a peer trusts a privileged service
/// only to such a port.
const UNPRIVILEGED: u16 = 1024;

/// Where privileged ports that nobody is known by begin.
const PRIVILEGED_FROM: u16 = 600;

/// An address of a service, and the port beside it.
#[derive(Debug)]
pub(crate) struct SdpBound {
    adapter: Arc<Adapter>,
    service: SocketAddr,
    settings: Settings,
    tcp: OwnedFd,
}

impl SdpBound {
    pub(crate) fn new(
        adapter: &Arc<Adapter>,
        local: Local,
        settings: Settings,
    ) -> Result<Self, Errno> {
        let service = local.address;
        let family = match service {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let tcp = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        if family == AddressFamily::INET6 {
            sockopt::set_ipv6_v6only(&tcp, local.ipv6_only)?;
        }
        let tcp = (adapter.place())(tcp)?;
        bind_beside(&tcp, service)?;
        Ok(Self {
            adapter: Arc::clone(adapter),
            service,
            settings,
            tcp,
        })
    }
}

/// Binds to a port of the same kind as the service's, at the same address.
fn bind_beside(tcp: &OwnedFd, service: SocketAddr) -> Result<(), Errno> {
    let mut beside = service;
    if service.port() >= UNPRIVILEGED {
        beside.set_port(0);
        return rustix::net::bind(tcp, &beside);
    }
    let mut last = Errno::ADDRINUSE;
    for port in (PRIVILEGED_FROM..UNPRIVILEGED).rev() {
        beside.set_port(port);
        match rustix::net::bind(tcp, &beside) {
            Err(Errno::ADDRINUSE) => last = Errno::ADDRINUSE,
            done => return done,
        }
    }
    Err(last)
}

impl OffloadBound for SdpBound {
    fn listen(self: Box<Self>, backlog: u32) -> Result<Box<dyn OffloadListener>, Errno> {
        rustix::net::listen(&self.tcp, i32::try_from(backlog).unwrap_or(i32::MAX))?;
        let listener = SdpListener::new(*self, backlog)?;
        Ok(Box::new(listener))
    }
}

/// A service. Its descriptor is a poller of what may bring a connection nearer.
#[derive(Debug)]
struct SdpListener {
    adapter: Arc<Adapter>,
    service: SocketAddr,
    settings: Settings,
    mapped: SocketAddr,
    tcp: OwnedFd,
    poller: OwnedFd,
    wakeup: Arc<WakeupFd>,
    /// Rings when a peer inside has taken too long and others wait for its place.
    alarm: Alarm,
    /// How many peers may be inside, each with its descriptor and its buffers. The others wait in
    /// the kernel, and go on over TCP when that takes too long.
    room: usize,
    inside: Mutex<Inside>,
}

/// Connections that the kernel has accepted and the program has not.
#[derive(Debug, Default)]
struct Inside {
    /// Those that have not said Hello.
    pending_hellos: Option<PendingHellos>,
    /// Those that have, and whose peer may still give up.
    answered: Vec<Answered>,
}

/// A connection whose peer has said Hello.
#[derive(Debug)]
struct Answered {
    stream: SdpStream,
    /// When its peer is let go of that has not committed itself.
    until: Instant,
}

impl Inside {
    fn count(&self) -> usize {
        self.pending_hellos.as_ref().map_or(0, PendingHellos::len) + self.answered.len()
    }

    /// Lets go of those whose peers take too long, for their Hello or for what comes next: each
    /// holds a place, and a peer that has stopped, or wants no good, would hold it for ever.
    fn forget_silent(&mut self) {
        if let Some(pending_hellos) = &mut self.pending_hellos {
            pending_hellos.forget_silent();
        }
        let now = Instant::now();
        self.answered.retain(|answered| {
            let stays = answered.until > now || answered.stream.commitment() != Commitment::Open;
            if !stays {
                // A last word would wait for the peer's first one.
                answered.stream.abort();
            }
            stays
        });
    }

    /// When the next of them is let go of.
    fn next_due(&self) -> Option<Instant> {
        let silent = self
            .pending_hellos
            .as_ref()
            .and_then(PendingHellos::next_due);
        let answered = self.answered.iter().map(|answered| answered.until);
        answered.chain(silent).min()
    }
}

impl SdpListener {
    fn new(bound: SdpBound, backlog: u32) -> Result<Self, Errno> {
        let SdpBound {
            adapter,
            service,
            settings,
            tcp,
        } = bound;
        let poller = (adapter.place())(epoll::create(CreateFlags::CLOEXEC)?)?;
        let wakeup = Arc::new(WakeupFd::new(adapter.place())?);
        // Processes that share the service need not all wake.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&poller, &tcp, EventData::new_u64(0), flags)?;
        epoll::add(&poller, &*wakeup, EventData::new_u64(1), EventFlags::IN)?;
        let alarm = Alarm::new(adapter.place())?;
        epoll::add(&poller, &alarm, EventData::new_u64(3), EventFlags::IN)?;
        let mapped = rustix::net::getsockname(&tcp)?.try_into()?;
        Ok(Self {
            adapter,
            service,
            settings,
            mapped,
            tcp,
            poller,
            wakeup,
            alarm,
            room: (backlog as usize).saturating_add(1),
            inside: Mutex::default(),
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what the kernel has accepted to where it may say Hello.
    fn admit(&self, inside: &mut Inside) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        inside.forget_silent();
        while inside.count() < self.room
            && let Ok(tcp) = rustix::net::accept_with(&self.tcp, flags)
        {
            // One that cannot be served is closed, and its peer goes on over TCP.
            if let Err(error) = self.admit_one(inside, tcp) {
                warn!(%error, service = %self.service, "an offloaded connection is turned away");
            }
        }
    }

    fn admit_one(&self, inside: &mut Inside, tcp: OwnedFd) -> io::Result<()> {
        let peer: SocketAddr = rustix::net::getpeername(&tcp)?
            .ok_or(Errno::NOTCONN)?
            .try_into()?;
        let own: SocketAddr = rustix::net::getsockname(&tcp)?.try_into()?;
        let local = SocketAddr::new(own.ip().to_canonical(), self.service.port());
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        let pending_hellos = match &mut inside.pending_hellos {
            Some(pending_hellos) => pending_hellos,
            None => {
                let pending_hellos = PendingHellos::new(&self.adapter.stack_for(self.settings)?)?;
                epoll::add(
                    &self.poller,
                    &pending_hellos,
                    EventData::new_u64(2),
                    EventFlags::IN,
                )?;
                inside.pending_hellos.insert(pending_hellos)
            }
        };
        pending_hellos.admit((self.adapter.place())(tcp)?, local, peer)
    }

    /// Answers those who have said Hello.
    fn answer(&self, inside: &mut Inside) {
        let Some(pending_hellos) = &mut inside.pending_hellos else {
            return;
        };
        while let Some(stream) = pending_hellos.next_answered() {
            stream.set_nonblocking(true);
            stream.watch(Arc::clone(&self.wakeup) as _);
            inside.answered.push(Answered {
                stream,
                until: Instant::now() + PendingHellos::PATIENCE,
            });
        }
    }

    /// The first whose peer has committed itself. Those who have given up are let go of.
    fn next_committed(&self, inside: &mut Inside) -> Option<SdpStream> {
        let mut at = 0;
        while let Some(answered) = inside.answered.get(at) {
            match answered.stream.commitment() {
                // What the peer has said is there to be read, if it has gone as well.
                Commitment::Made => {
                    let stream = inside.answered.remove(at).stream;
                    if !inside.answered.is_empty() {
                        // Others may have signalled what this look has not come to.
                        self.wakeup.signal();
                    }
                    return Some(stream);
                }
                Commitment::Withdrawn => {
                    let gone = inside.answered.remove(at).stream;
                    let error = gone.take_error().map(|error| errno_of(&error));
                    debug!(service = %self.service, ?error, "a peer gave up");
                }
                Commitment::Open => at += 1,
            }
        }
        None
    }
}

impl OffloadListener for SdpListener {
    fn mapped(&self) -> SocketAddr {
        self.mapped
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut own = vec![self.tcp.as_raw_fd(), self.poller.as_raw_fd()];
        own.push(self.wakeup.as_fd().as_raw_fd());
        own.push(self.alarm.as_fd().as_raw_fd());
        own
    }

    fn device(&self) -> &str {
        self.adapter.name().unwrap_or_default()
    }

    fn accept(&self) -> Result<Option<Box<dyn OffloadStream>>, Errno> {
        let mut inside = self.inside();
        self.wakeup.clear();
        self.alarm.silence();
        loop {
            self.admit(&mut inside);
            self.answer(&mut inside);
            let was_full = inside.count() >= self.room;
            if let Some(stream) = self.next_committed(&mut inside) {
                return Ok(Some(Box::new(SdpOffload::new(stream, &self.adapter))));
            }
            // Those who wait in the kernel signal no second time.
            if !was_full {
                return Ok(None);
            }
            if inside.count() >= self.room {
                // Nor does a peer that stays silent.
                self.alarm.set(inside.next_due());
                return Ok(None);
            }
        }
    }
}

impl AsFd for SdpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
