//! Answers port mapper requests for all processes of a namespace.
//!
//! The first process that offers a service becomes the server: it binds an abstract socket name,
//! which exists once per network namespace. The other processes are its clients and send their
//! offerings to it. When the server ends, for whatever reason, the kernel releases the name and
//! closes the links. Each client notices this and tries to bind the name; the clients that fail
//! connect to the new server. No daemon has to be installed, and nothing has to be cleaned up.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use host::descriptors::OwnDescriptor;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use tracing::debug;

use crate::portmap::link::{self, Received, Record};
use crate::portmap::mappings::{Mappings, Offering};
use crate::portmap::role::Role;
use crate::portmap::server::Server;

/// The name that the server of each network namespace binds. The number is the version of the
/// records.
const SERVER_NAME: &[u8] = b"dat-rs.port-mapper.2";

/// The delay before a process that is neither server nor client tries again. It doubles each time.
const RETRY_MIN: Duration = Duration::from_millis(2);

/// The longest delay before another try after a failure or a refusal.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// The longest delay before another try while servers change. They may end one after the other, and
/// meanwhile no process answers for the services of this one.
const TAKE_OVER_MAX: Duration = Duration::from_millis(20);

/// A link that ends sooner counts as a failure.
const SHORT_LINK: Duration = Duration::from_secs(1);

/// The time for which a server without offerings continues. The next service often follows at once,
/// and the kernel may release names and ports a moment after they were closed.
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// The role of this process among those that offer services in a namespace.
#[derive(Debug)]
pub struct PortMapper {
    process: Pid,
    role: Role,
    is_suspended: bool,
    own: Mappings,
    addresses: Vec<(IpAddr, u32)>,
    server: Option<Server>,
    link: Option<OwnDescriptor>,
    link_since: Option<Instant>,
    /// The number of consecutive failures to become server or client.
    failures: u32,
    retry_at: Option<Instant>,
    /// The time at which a server that no process needs stops.
    stops_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkEnd {
    /// The server has ended, so that this process may take over.
    ServerGone,
    /// The server has no room for this process, or does not receive its records.
    Refused,
}

impl LinkEnd {
    /// Returns the longest delay before another try.
    fn retry_max(self) -> Duration {
        match self {
            Self::ServerGone => TAKE_OVER_MAX,
            Self::Refused => RETRY_MAX,
        }
    }
}

impl Default for PortMapper {
    fn default() -> Self {
        Self::new()
    }
}

impl PortMapper {
    /// Returns a port mapper without offerings, which takes no part in answering yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            process: rustix::process::getpid(),
            role: Role::Idle,
            is_suspended: false,
            own: Mappings::default(),
            addresses: Vec::new(),
            server: None,
            link: None,
            link_since: None,
            failures: 0,
            retry_at: None,
            stops_at: None,
        }
    }

    /// Sets the addresses of this host at which requests are expected, each with its device's
    /// number. An answer must be sent from the address that was asked, so each address has its own
    /// socket.
    pub fn set_addresses(&mut self, addresses: Vec<(IpAddr, u32)>) {
        self.addresses = addresses;
        if let Some(server) = &mut self.server {
            server.listen_at(&self.addresses);
        }
    }

    /// Offers a TCP service; the new offering takes precedence over all others at its address.
    pub fn offer(&mut self, offering: Offering) {
        self.own.insert(offering);
        self.send_record(Record::Offer(offering));
        self.drive();
    }

    /// Removes an offering.
    pub fn withdraw(&mut self, service: SocketAddr, mapped: SocketAddr) {
        if !self.own.remove(service, mapped) {
            return;
        }
        self.send_record(Record::Withdraw { service, mapped });
        self.drive();
    }

    /// Returns the address over RDMA of a service that this process offers.
    #[must_use]
    pub fn own_mapping(&self, service: SocketAddr) -> Option<SocketAddr> {
        self.own.find(service)
    }

    /// Makes this process neither server nor client until [`PortMapper::resume`], because no thread
    /// calls [`PortMapper::drive`]. A server that does not answer would cost each peer its timeout,
    /// and keep other processes from binding the name.
    pub fn suspend(&mut self) {
        self.is_suspended = true;
        self.leave();
    }

    /// Ends a suspension: a thread calls [`PortMapper::drive`] from now on. Returns true if the
    /// port mapper was suspended.
    pub fn resume(&mut self) -> bool {
        std::mem::replace(&mut self.is_suspended, false)
    }

    /// Returns the current role of this process.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Does the work that is due; never waits.
    pub fn drive(&mut self) {
        if self.process != rustix::process::getpid() {
            // The child of a fork must not answer with its parent's offerings.
            self.process = rustix::process::getpid();
            self.leave();
        }
        if self.is_suspended || self.is_done() {
            return self.leave();
        }
        let is_lost = self.server.as_ref().is_some_and(Server::is_lost)
            || self.link.as_ref().is_some_and(OwnDescriptor::is_lost);
        if is_lost {
            self.leave();
        }
        if self.role == Role::Client
            && let Some(end) = self.link_end()
        {
            self.lose_link(end);
        }
        if self.role == Role::Idle && self.retry_at.is_none_or(|at| Instant::now() >= at) {
            self.join();
        }
        if let Some(server) = &mut self.server {
            server.serve(&self.addresses);
            // The last client may just have closed its link.
            if self.is_done() {
                self.leave();
            }
        }
    }

    /// The time until [`PortMapper::drive`] has work even if nothing is received.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let at = match (self.role, &self.server) {
            (Role::Idle, _) if !self.own.is_empty() && !self.is_suspended => self.retry_at,
            (_, Some(server)) => server.due().into_iter().chain(self.stops_at).min(),
            _ => self.stops_at,
        };
        at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// True if no process has needed this port mapper for some time.
    fn is_done(&mut self) -> bool {
        if !self.own.is_empty() || self.server.as_ref().is_some_and(Server::is_needed) {
            self.stops_at = None;
            return false;
        }
        // A process that is not the server stops at once.
        let stays = if self.server.is_some() {
            IDLE_TIMEOUT
        } else {
            Duration::ZERO
        };
        let now = Instant::now();
        now >= *self.stops_at.get_or_insert(now + stays)
    }

    /// Waits until there is work to do, at most for `within`, and does it.
    pub fn wait(&mut self, within: Duration) {
        let due = self.due().unwrap_or(within);
        let mut polled: Vec<PollFd<'_>> = self
            .awaited()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(due.min(within)).ok();
        // The result of poll does not matter: `drive` checks the descriptors itself.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        drop(polled);
        self.drive();
    }

    /// The open descriptors. They change with each call of [`PortMapper::drive`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_server = self.server.iter().flat_map(Server::descriptors);
        let all = of_server.chain(self.link.as_ref());
        all.filter(|fd| !fd.is_lost()).map(AsFd::as_fd)
    }

    /// The descriptors to poll for input before [`PortMapper::drive`].
    pub fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_server = self.server.iter().flat_map(Server::awaited);
        of_server.chain(self.link.as_ref()).map(AsFd::as_fd)
    }

    fn leave(&mut self) {
        self.server = None;
        self.link = None;
        self.stops_at = None;
        self.retry_at = None;
        self.failures = 0;
        self.role.on_leave();
    }

    fn send_record(&mut self, record: Record) {
        if let Some(server) = &mut self.server {
            server.record_own(record);
        }
        let Some(link) = &self.link else { return };
        if let Err(error) = link::send(link.as_fd(), record) {
            debug!(%error, "the port mapper's server does not take records");
            let end = self.link_end().unwrap_or(LinkEnd::Refused);
            self.lose_link(end);
        }
    }

    fn link_end(&self) -> Option<LinkEnd> {
        let link = self.link.as_ref()?;
        // The server sends nothing but a refusal.
        match link::receive(link.as_fd()) {
            Received::Nothing => None,
            Received::Gone => Some(LinkEnd::ServerGone),
            Received::Record(_) | Received::Nonsense => Some(LinkEnd::Refused),
        }
    }

    /// Handles the end of a link. This process tries again at once, and after several short links
    /// in a row it waits before it tries again.
    fn lose_link(&mut self, end: LinkEnd) {
        self.link = None;
        self.role.on_server_gone();
        let is_short = self
            .link_since
            .is_some_and(|since| since.elapsed() < SHORT_LINK);
        self.failures = if is_short { self.failures + 1 } else { 0 };
        let delay = self.backoff().min(end.retry_max());
        self.retry_at = (self.failures > 1).then(|| Instant::now() + delay);
    }

    fn backoff(&self) -> Duration {
        let doubled = 1_u32 << self.failures.saturating_sub(1).min(10);
        (RETRY_MIN * doubled).min(RETRY_MAX)
    }

    fn join(&mut self) {
        match self.bind_or_connect() {
            Ok(()) => {
                debug!(role = ?self.role, "answering port mapper requests");
                self.retry_at = None;
            }
            Err(error) => {
                debug!(%error, "neither server nor client of the port mapper, trying again");
                self.failures += 1;
                let longest = match error {
                    // Another process has bound the name and does not listen yet.
                    Errno::CONNREFUSED => TAKE_OVER_MAX,
                    _ => RETRY_MAX,
                };
                self.retry_at = Some(Instant::now() + self.backoff().min(longest));
            }
        }
    }

    fn bind_or_connect(&mut self) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = || socket().and_then(host::descriptors::raise);
        let name = SocketAddrUnix::new_abstract_name(SERVER_NAME)?;
        let listener = socket()?;
        match rustix::net::bind(&listener, &name) {
            Ok(()) => {
                rustix::net::listen(&listener, 128)?;
                let mut server = Server::new(listener, &self.own);
                server.listen_at(&self.addresses);
                self.server = Some(server);
                self.failures = 0;
                self.role.on_name_bound();
                Ok(())
            }
            Err(Errno::ADDRINUSE) => {
                let link = socket()?;
                rustix::net::connect(&link, &name)?;
                for offering in self.own.iter() {
                    link::send(link.as_fd(), Record::Offer(offering))?;
                }
                self.link = Some(link.into());
                self.link_since = Some(Instant::now());
                self.role.on_name_in_use();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
