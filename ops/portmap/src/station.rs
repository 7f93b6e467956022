//! Answering for all processes of a namespace.
//!
//! The first process that offers something takes the seat: an abstract socket name, of which a
//! namespace has one. The others tell it what they offer. When it ends, however that happens, the
//! kernel gives the name back and closes its links; each of the others notices and tries to take
//! the seat, and those that come late tell the new owner. No daemon has to be installed, and
//! nothing has to be cleaned up.

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
use crate::office::Office;
use crate::seat::Seat;

/// The name of the seat in each network namespace. Its number is that of the records.
const SEAT: &[u8] = b"dat-rs.port-mapper.2";

/// How soon a process that found no place looks again; each time twice as late.
const STAND_FOR: Duration = Duration::from_millis(20);

/// It looks again this often at least.
const STAND_AT_MOST: Duration = Duration::from_secs(2);

/// A link that ends sooner was refused, and the next would be too.
const BRIEF: Duration = Duration::from_secs(1);

/// How long an owner keeps the seat with nothing to offer. The next service often follows at once,
/// and the kernel may give names and ports back a moment after they were closed.
const STAY_FOR: Duration = Duration::from_millis(100);

/// This process among those that offer services in a namespace.
#[derive(Debug)]
pub struct Station {
    process: Pid,
    seat: Seat,
    rests: bool,
    own: Mappings,
    addresses: Vec<(IpAddr, u32)>,
    office: Option<Office>,
    link: Option<OwnedFd>,
    link_since: Option<Instant>,
    /// How often in a row it found no place.
    failures: u32,
    stands_until: Option<Instant>,
    /// An owner that nobody needs any more leaves then.
    leaves_at: Option<Instant>,
}

impl Default for Station {
    fn default() -> Self {
        Self::new()
    }
}

impl Station {
    /// One that offers nothing yet, and so takes part in nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            process: rustix::process::getpid(),
            seat: Seat::Standing,
            rests: false,
            own: Mappings::default(),
            addresses: Vec::new(),
            office: None,
            link: None,
            link_since: None,
            failures: 0,
            stands_until: None,
            leaves_at: None,
        }
    }

    /// Where questions are expected: the addresses of this host, each with its device's number.
    /// An answer must come from the address that was asked, so each has a socket of its own.
    pub fn set_addresses(&mut self, addresses: Vec<(IpAddr, u32)>) {
        self.addresses = addresses;
        if let Some(office) = &mut self.office {
            office.listen_at(&self.addresses);
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

    /// Takes no place before [`Station::rise`]: nobody is there to drive it. A seat without answers
    /// would cost each peer its patience, and keep others from it.
    pub fn rest(&mut self) {
        self.rests = true;
        self.leave();
    }

    /// Somebody drives it from now on. Says whether nobody did.
    pub fn rise(&mut self) -> bool {
        std::mem::replace(&mut self.rests, false)
    }

    /// What this process is now.
    #[must_use]
    pub fn seat(&self) -> Seat {
        self.seat
    }

    /// Does what there is to do; never waits.
    pub fn drive(&mut self) {
        if self.process != rustix::process::getpid() {
            // The child of a fork must not answer with what is its parent's.
            self.process = rustix::process::getpid();
            self.leave();
        }
        if self.rests || self.is_done() {
            return self.leave();
        }
        if self.seat == Seat::Member && self.is_link_gone() {
            self.lose_link();
        }
        if self.seat == Seat::Standing && self.stands_until.is_none_or(|at| Instant::now() >= at) {
            self.sit();
        }
        if let Some(office) = &mut self.office {
            office.serve(&self.addresses);
            // The last of the others may just have left.
            if self.is_done() {
                self.leave();
            }
        }
    }

    /// When [`Station::drive`] has something to do though nothing arrives.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let at = match (self.seat, &self.office) {
            (Seat::Standing, _) if !self.own.is_empty() && !self.rests => self.stands_until,
            (_, Some(office)) => office.due().into_iter().chain(self.leaves_at).min(),
            _ => self.leaves_at,
        };
        at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Nobody needs this process at the port mapper, and has not for a while.
    fn is_done(&mut self) -> bool {
        if !self.own.is_empty() || self.office.as_ref().is_some_and(Office::is_needed) {
            self.leaves_at = None;
            return false;
        }
        // Whoever does not answer has nothing to stay for.
        let stays = if self.office.is_some() {
            STAY_FOR
        } else {
            Duration::ZERO
        };
        let now = Instant::now();
        now >= *self.leaves_at.get_or_insert(now + stays)
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

    /// All that it holds open; others after each call of [`Station::drive`].
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_office = self.office.iter().flat_map(Office::descriptors);
        of_office.chain(self.link.as_ref()).map(AsFd::as_fd)
    }

    /// What to poll for input before [`Station::drive`].
    pub fn awaited(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_office = self.office.iter().flat_map(Office::awaited);
        of_office.chain(self.link.as_ref()).map(AsFd::as_fd)
    }

    fn leave(&mut self) {
        self.office = None;
        self.link = None;
        self.leaves_at = None;
        self.stands_until = None;
        self.failures = 0;
        self.seat.on_leave();
    }

    fn tell(&mut self, record: Record) {
        if let Some(office) = &mut self.office {
            office.hear_own(record);
        }
        let Some(link) = &self.link else { return };
        if let Err(error) = link::send(link.as_fd(), record) {
            debug!(%error, "the port mapper's owner does not listen");
            self.lose_link();
        }
    }

    fn is_link_gone(&self) -> bool {
        // The owner sends nothing, so whatever can be read is the end.
        self.link
            .as_ref()
            .is_none_or(|link| link::receive(link.as_fd()) != Received::Nothing)
    }

    /// An owner that ends is followed at once. One that refuses is not asked all the time, and
    /// whether it did either is told by the link that comes after.
    fn lose_link(&mut self) {
        self.link = None;
        self.seat.on_owner_gone();
        let is_brief = self.link_since.is_some_and(|since| since.elapsed() < BRIEF);
        self.failures = if is_brief { self.failures + 1 } else { 0 };
        self.stands_until = (self.failures > 1).then(|| Instant::now() + self.patience());
    }

    fn patience(&self) -> Duration {
        let doubled = 1_u32 << self.failures.saturating_sub(1).min(10);
        (STAND_FOR * doubled).min(STAND_AT_MOST)
    }

    fn sit(&mut self) {
        match self.try_to_sit() {
            Ok(()) => {
                debug!(seat = ?self.seat, "answering port mapper requests");
                self.stands_until = None;
            }
            Err(error) => {
                debug!(%error, "no place at the port mapper, trying again");
                self.failures += 1;
                self.stands_until = Some(Instant::now() + self.patience());
            }
        }
    }

    fn try_to_sit(&mut self) -> Result<(), Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            || rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let socket = || socket().and_then(descriptors::raise);
        let seat = SocketAddrUnix::new_abstract_name(SEAT)?;
        let listener = socket()?;
        match rustix::net::bind(&listener, &seat) {
            Ok(()) => {
                rustix::net::listen(&listener, 128)?;
                let mut office = Office::new(listener, &self.own);
                office.listen_at(&self.addresses);
                self.office = Some(office);
                self.failures = 0;
                self.seat.on_seat_free();
                Ok(())
            }
            Err(Errno::ADDRINUSE) => {
                let link = socket()?;
                rustix::net::connect(&link, &seat)?;
                for offering in self.own.iter() {
                    link::send(link.as_fd(), Record::Offer(offering))?;
                }
                self.link = Some(link);
                self.link_since = Some(Instant::now());
                self.seat.on_seat_taken();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
