//! The accepting end: a service with its rendezvous listener.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use host::descriptors::OwnDescriptor;
use host::locks::IgnorePoison as _;
use ops::{Local, OffloadBound, OffloadListener, OffloadStream};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, ipproto, sockopt};
use tracing::warn;

use crate::adapters::{Adapters, UsableDevices};
use crate::alarm::Alarm;
use crate::pending::{Choice, PendingConnections, Service};
use crate::stream::{SdpOffload, WakeupFd};

/// The first port to which every program can bind. A peer accepts the answer for a service on a
/// privileged port only if the answer names a privileged port too.
const UNPRIVILEGED: u16 = 1024;

/// The lowest privileged port to use. Lower ports belong to well-known services.
const PRIVILEGED_FROM: u16 = 600;

/// The address of a service, and the socket bound to the rendezvous port.
#[derive(Debug)]
pub(crate) struct SdpBound {
    adapters: Arc<Adapters>,
    service: SocketAddr,
    choice: Choice,
    shown: String,
    tcp: OwnedFd,
}

impl SdpBound {
    pub(crate) fn new(
        adapters: &Arc<Adapters>,
        local: Local,
        choice: Choice,
        shown: String,
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
        let tcp = (adapters.raise())(tcp)?;
        bind_rendezvous(&tcp, service)?;
        Ok(Self {
            adapters: Arc::clone(adapters),
            service,
            choice,
            shown,
            tcp,
        })
    }
}

/// Binds to a port at the service's address. The port is privileged if the service's port is.
fn bind_rendezvous(tcp: &OwnedFd, service: SocketAddr) -> Result<(), Errno> {
    let mut address = service;
    if service.port() >= UNPRIVILEGED {
        address.set_port(0);
        return rustix::net::bind(tcp, &address);
    }
    let mut last = Errno::ADDRINUSE;
    for port in (PRIVILEGED_FROM..UNPRIVILEGED).rev() {
        address.set_port(port);
        match rustix::net::bind(tcp, &address) {
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

/// A service. Its descriptor is an `epoll` set of all descriptors on which a connection may make
/// progress.
#[derive(Debug)]
struct SdpListener {
    adapters: Arc<Adapters>,
    service: SocketAddr,
    choice: Choice,
    /// Names of the adapters that the service may use, for listings.
    shown: String,
    mapped: SocketAddr,
    tcp: OwnDescriptor,
    poller: OwnDescriptor,
    wakeup: Arc<WakeupFd>,
    /// Expires when an admitted peer exceeds its time limit while peers wait in the kernel, or when
    /// a connection has waited long enough for an earlier one.
    alarm: Alarm,
    /// The maximum number of admitted peers, each of which has a descriptor and buffers. Further
    /// peers wait in the kernel, and continue over TCP after a time.
    room: AtomicUsize,
    pending: Mutex<PendingConnections>,
}

impl SdpListener {
    fn new(bound: SdpBound, backlog: u32) -> Result<Self, Errno> {
        let SdpBound {
            adapters,
            service,
            choice,
            shown,
            tcp,
        } = bound;
        let raise = adapters.raise();
        let poller = raise(epoll::create(CreateFlags::CLOEXEC)?)?;
        let wakeup = Arc::new(WakeupFd::new(raise)?);
        // One event need not wake all processes that share the service.
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&poller, &tcp, EventData::new_u64(0), flags)?;
        epoll::add(&poller, &*wakeup, EventData::new_u64(1), EventFlags::IN)?;
        let alarm = Alarm::new(raise)?;
        epoll::add(&poller, &alarm, EventData::new_u64(3), EventFlags::IN)?;
        let mapped = rustix::net::getsockname(&tcp)?.try_into()?;
        open_soon(&adapters, service.ip(), choice.devices);
        Ok(Self {
            adapters,
            service,
            choice,
            shown,
            mapped,
            tcp: tcp.into(),
            poller: poller.into(),
            wakeup,
            alarm,
            room: room_of(backlog).into(),
            pending: Mutex::default(),
        })
    }

    fn pending(&self) -> MutexGuard<'_, PendingConnections> {
        self.pending.lock().ignore_poison()
    }

    fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    fn service(&self) -> Service<'_> {
        Service {
            port: self.service.port(),
            adapters: &self.adapters,
            choice: self.choice,
            poller: &self.poller,
            wakeup: &self.wakeup,
        }
    }

    /// Accepts kernel connections while there is room.
    fn admit(&self, pending: &mut PendingConnections) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        pending.drop_expired(&self.service());
        if self.tcp.is_lost() {
            // The program has closed the descriptor and may use its number for another socket.
            return;
        }
        while !pending.is_full(self.room())
            && let Ok(tcp) = rustix::net::accept_with(&self.tcp, flags)
        {
            let tcp = match host::reserve::is_short() {
                true => Err(Errno::NOMEM),
                false => (self.adapters.raise())(tcp),
            };
            let admitted = tcp
                .map_err(io::Error::from)
                .and_then(|tcp| pending.admit(&self.service(), tcp));
            // A connection that cannot be served is closed, and its peer continues over TCP.
            if let Err(error) = admitted {
                warn!(%error, service = %self.service, "an offloaded connection is refused");
            }
        }
    }
}

/// As in the kernel, one connection more than the backlog may wait.
fn room_of(backlog: u32) -> usize {
    (backlog as usize).saturating_add(1)
}

/// Opens the adapters of the devices behind an address on a thread of its own, because a peer that
/// waited for this would exceed its time limit.
fn open_soon(adapters: &Adapters, at: IpAddr, usable: UsableDevices) {
    let ports = adapters.ports_at(at, usable);
    let found = ports.iter().filter_map(|port| adapters.device(port).ok());
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return;
    }
    let open = move || {
        for adapter in found {
            // The caller that needs the adapter gets the error.
            let _ = adapter.stack();
        }
    };
    // If no thread can be started, the first connection opens the adapters.
    drop(host::threads::spawn_quiet("sdp-open", open));
}

impl OffloadListener for SdpListener {
    fn mapped(&self) -> SocketAddr {
        self.mapped
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let own = [
            &self.tcp,
            &self.poller,
            self.wakeup.descriptor(),
            self.alarm.descriptor(),
        ];
        let own = own.into_iter().filter(|fd| !fd.is_lost());
        own.map(AsRawFd::as_raw_fd).collect()
    }

    fn device(&self) -> &str {
        &self.shown
    }

    fn set_backlog(&self, backlog: u32) {
        self.room.store(room_of(backlog), Ordering::Relaxed);
        if !self.tcp.is_lost() {
            let _ = rustix::net::listen(&self.tcp, i32::try_from(backlog).unwrap_or(i32::MAX));
        }
        // Peers that wait in the kernel cause no event when there is room for them.
        self.wakeup.signal();
    }

    fn has_connecting(&self) -> bool {
        let mut queued = [PollFd::new(&self.tcp, PollFlags::IN)];
        let is_queued =
            !self.tcp.is_lost() && poll(&mut queued, Some(&Timespec::default())) == Ok(1);
        is_queued || !self.pending().is_empty()
    }

    fn withdraw(&self) {
        if !self.tcp.is_lost() {
            // A listener that was shut down would be reported without end.
            let _ = epoll::delete(&self.poller, &self.tcp);
            let _ = rustix::net::shutdown(&self.tcp, Shutdown::Both);
        }
    }

    fn accept(&self) -> Result<Option<Box<dyn OffloadStream>>, Errno> {
        let mut pending = self.pending();
        self.wakeup.clear();
        self.alarm.clear();
        let service = self.service();
        loop {
            self.admit(&mut pending);
            // Read before entries become free, because peers may wait in the kernel for these
            // entries.
            let was_full = pending.is_full(self.room());
            pending.answer_offers(&service);
            pending.answer(&service);
            if let Some((stream, adapter)) = pending.next_committed(&self.wakeup) {
                return Ok(Some(Box::new(SdpOffload::new(stream, adapter))));
            }
            // Peers that wait in the kernel cause no second event.
            let held_until = pending.held_until();
            if !was_full {
                self.alarm.set(held_until);
                return Ok(None);
            }
            if pending.is_full(self.room()) {
                // A silent peer causes no event either, so the alarm is set.
                self.alarm.set(held_until.or(pending.next_due()));
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
