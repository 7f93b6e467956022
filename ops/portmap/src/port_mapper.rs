//! Answering for all processes of a namespace.
//!
//! The first process that offers something becomes the server: it binds an abstract socket name, of
//! which a namespace has one. The others are its clients and tell it what they offer. When it ends,
//! however that happens, the kernel gives the name back and closes its links; each client notices
//! and tries to bind the name, and those that come late tell the new server. No daemon has to be
//! installed, and nothing has to be cleaned up.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::Pid;
use tracing::debug;

use crate::link::{self, Received, Record};
use crate::mappings::{Mappings, Offering};
use crate::role::Role;
use crate::server::Server;

/// The name that the server of each network namespace binds. Its number is that of the records.
const SERVER_NAME: &[u8] = b"dat-rs.port-mapper.2";

/// How soon a process that is neither server nor client tries again; each time twice as late.
const RETRY_MIN: Duration = Duration::from_millis(20);

/// It tries again this often at least.
const RETRY_MAX: Duration = Duration::from_secs(2);

/// A link that ends sooner was refused, and the next would be too.
const SHORT_LINK: Duration = Duration::from_secs(1);

/// How long a server stays with nothing to offer. The next service often follows at once,
/// and the kernel may give names and ports back a moment after they were closed.
const IDLE_TIMEOUT: Duration = Duration::from_millis(100);

/// This process among those that offer services in a namespace.
#[derive(Debug)]
pub struct PortMapper {
    process: Pid,
    role: Role,
    is_suspended: bool,
    own: Mappings,
    addresses: Vec<(IpAddr, u32)>,
    server: Option<Server>,
    link: Option<OwnedFd>,
    link_since: Option<Instant>,
    /// How often in a row it could be neither server nor client.
    failures: u32,
    retry_at: Option<Instant>,
    /// A server that nobody needs any more stops then.
    stops_at: Option<Instant>,
}

impl Default for PortMapper {
    fn default() -> Self {
        Self::new()
    }
}

impl PortMapper {
    /// One that offers nothing yet, and so takes part in nothing.
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

    /// Where questions are expected: the addresses of this host, each with its device's number.
    /// An answer must come from the address that was asked, so each has a socket of its own.
    pub fn set_addresses(&mut self, addresses: Vec<(IpAddr, u32)>) {
        self.addresses = addresses;
        if let Some(server) = &mut self.server {
            server.listen_at(&self.addresses);
        }
    }

    /// Offers a TCP service, before all others at its address.
    pub fn offer(&mut self, offering: Offering) {
        self.own.insert(offering);
        self.tell(Record::Offer(offering));
        self.drive();
    }

    /// Offers a service no longer at this place.
    pub fn withdraw(&mut self, service: SocketAddr, mapped: SocketAddr) {
        if !self.own.remove(service, mapped) {
            return;
        }
        self.tell(Record::Withdraw { service, mapped });
        self.drive();
    }

    /// Is neither server nor client before [`PortMapper::resume`]: nobody is there to drive it. A
    /// server that does not answer would cost each peer its patience, and keep others from the
    /// name.
    pub fn suspend(&mut self) {
        self.is_suspended = true;
        self.leave();
    }

    /// Somebody drives it from now on. Says whether nobody did.
    pub fn resume(&mut self) -> bool {
        std::mem::replace(&mut self.is_suspended, false)
    }

    /// What this process is now.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Does what there is to do; never waits.
    pub fn drive(&mut self) {
        if self.process != rustix::process::getpid() {
            // The child of a fork must not answer with what is its parent's.
            self.process = rustix::process::getpid();
            self.leave();
        }
        if self.is_suspended || self.is_done() {
            return self.leave();
        }
        if self.role == Role::Client && self.is_link_gone() {
            self.lose_link();
        }
        if self.role == Role::Idle && self.retry_at.is_none_or(|at| Instant::now() >= at) {
            self.join();
        }
        if let Some(server) = &mut self.server {
            server.serve(&self.addresses);
            // The last of the others may just have left.
            if self.is_done() {
                self.leave();
            }
        }
    }

    /// When [`PortMapper::drive`] has something to do though nothing arrives.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let at = match (self.role, &self.server) {
            (Role::Idle, _) if !self.own.is_empty() && !self.is_suspended => self.retry_at,
            (_, Some(server)) => server.due().into_iter().chain(self.stops_at).min(),
            _ => self.stops_at,
        };
        at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Nobody needs this process at the port mapper, and has not for a while.
    fn is_done(&mut self) -> bool {
        if !self.own.is_empty() || self.server.as_ref().is_some_and(Server::is_needed) {
            self.stops_at = None;
            return false;
        }
        // Whoever does not answer has nothing to stay for.
        let stays = if self.server.is_some() {
            IDLE_TIMEOUT
        } else {
            Duration::ZERO
        };
        let now = Instant::now();
        now >= *self.stops_at.get_or_insert(now + stays)
    }

    /// Waits until there is something to do, at most for `within`, and does it.
    pub fn wait(&mut self, within: Duration) {
        let due = self.due().unwrap_or(within);
        let mut polled: Vec<PollFd<'_>> = self
            .awaited()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(due.min(within)).ok();
        // What poll says is seen by driving as well.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        drop(polled);
        self.drive();
    }

    /// All that it holds open; others after each call of [`PortMapper::drive`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_server = self.server.iter().flat_map(Server::descriptors);
        of_server.chain(self.link.as_ref()).map(AsFd::as_fd)
    }

    /// What to poll for input before [`PortMapper::drive`].
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

    fn tell(&mut self, record: Record) {
        if let Some(server) = &mut self.server {
            server.record_own(record);
        }
        let Some(link) = &self.link else { return };
        if let Err(error) = link::send(link.as_fd(), record) {
            debug!(%error, "the port mapper's server does not take records");
            self.lose_link();
        }
    }

    fn is_link_gone(&self) -> bool {
        // The server sends nothing, so whatever can be read is the end.
        self.link
            .as_ref()
            .is_none_or(|link| link::receive(link.as_fd()) != Received::Nothing)
    }

    /// A server that ends is followed at once. One that refuses is not asked all the time, and
    /// whether it did either is told by the link that comes after.
    fn lose_link(&mut self) {
        self.link = None;
        self.role.on_server_gone();
        let is_short = self
            .link_since
            .is_some_and(|since| since.elapsed() < SHORT_LINK);
        self.failures = if is_short { self.failures + 1 } else { 0 };
        self.retry_at = (self.failures > 1).then(|| Instant::now() + self.backoff());
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
                self.retry_at = Some(Instant::now() + self.backoff());
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
                self.link = Some(link);
                self.link_since = Some(Instant::now());
                self.role.on_name_in_use();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
