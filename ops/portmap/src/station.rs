//! Answering for all processes of a namespace.
//!
//! The first process that offers something takes the seat: an abstract socket name, of which a
//! namespace has one. The others tell it what they offer. When it ends, however that happens, the
//! kernel gives the name back and closes its links; each of the others notices and tries to take
//! the seat, and those that come late tell the new owner. No daemon has to be installed, and
//! nothing has to be cleaned up.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use rustix::process::Pid;
use tracing::{debug, info, warn};

use crate::PORT;
use crate::link::{self, Received, Record};
use crate::mappings::Mappings;
use crate::seat::Seat;

/// The name of the seat in each network namespace.
const SEAT: &[u8] = b"dat-rs.port-mapper.1";

/// Links to other processes.
const MEMBERS_MAX: usize = 1024;

/// Services of one other process.
const SERVICES_MAX: usize = 1024;

/// Datagrams and records that are looked at in one go.
const BATCH: usize = 64;

/// How soon a process that found no place looks again.
const STAND_FOR: Duration = Duration::from_millis(20);

/// How long an owner keeps the seat with nothing to offer. The next service often follows at once,
/// and the kernel may give names and ports back a moment after they were closed.
const STAY_FOR: Duration = Duration::from_millis(100);

/// How soon an address that another port mapper holds is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Duplicates the TCP socket of a service for the moment in which it is shown to the owner of the
/// seat; `None` when it is closed. No duplicate is kept, because that would keep the port.
pub struct Proof(Box<dyn Fn() -> Option<OwnedFd> + Send>);

impl Proof {
    /// Of this function.
    pub fn new(duplicate: impl Fn() -> Option<OwnedFd> + Send + 'static) -> Self {
        Self(Box::new(duplicate))
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Proof")
    }
}

/// This process among those that offer services in a namespace.
#[derive(Debug)]
pub struct Station {
    process: Pid,
    seat: Seat,
    own: Mappings,
    proofs: BTreeMap<SocketAddr, Proof>,
    addresses: Vec<(IpAddr, u32)>,
    office: Option<Office>,
    link: Option<OwnedFd>,
    /// An owner that nobody needs any more leaves then.
    leaves_at: Option<Instant>,
}

/// What the owner of the seat holds.
#[derive(Debug)]
struct Office {
    listener: OwnedFd,
    members: Vec<Member>,
    ears: BTreeMap<(IpAddr, u32), OwnedFd>,
    try_again: Option<Instant>,
}

/// Another process, as the owner of the seat sees it.
#[derive(Debug)]
struct Member {
    link: OwnedFd,
    mappings: Mappings,
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
            own: Mappings::default(),
            proofs: BTreeMap::new(),
            addresses: Vec::new(),
            office: None,
            link: None,
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

    /// Offers a TCP service at `mapped`.
    pub fn offer(&mut self, service: SocketAddr, mapped: SocketAddr, proof: Proof) {
        insert(&mut self.own, (proof.0)().as_ref(), service, mapped);
        self.proofs.insert(service, proof);
        self.tell(Record::Offer { service, mapped });
        self.drive();
    }

    /// Offers a service no longer.
    pub fn withdraw(&mut self, service: SocketAddr) {
        if !self.own.remove(service) {
            return;
        }
        self.proofs.remove(&service);
        self.tell(Record::Withdraw { service });
        self.drive();
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
        if self.is_done() {
            return self.leave();
        }
        if self.seat == Seat::Member && self.is_link_gone() {
            self.link = None;
            self.seat.on_owner_gone();
        }
        if self.seat == Seat::Standing {
            self.sit();
        }
        if let Some(office) = &mut self.office {
            office.serve(&self.own, &self.addresses);
            // The last of the others may just have left.
            if self.is_done() {
                self.leave();
            }
        }
    }

    /// When [`Station::drive`] has something to do though nothing arrives.
    #[must_use]
    pub fn due(&self) -> Option<Duration> {
        let leaves_at = self
            .leaves_at
            .map(|at| at.saturating_duration_since(Instant::now()));
        match (self.seat, &self.office) {
            (Seat::Standing, _) if !self.own.is_empty() => Some(STAND_FOR),
            (_, Some(office)) if office.try_again.is_some() => Some(TRY_AGAIN),
            _ => leaves_at,
        }
    }

    /// Nobody needs this process at the port mapper, and has not for a while.
    fn is_done(&mut self) -> bool {
        if !self.own.is_empty() || self.is_needed() {
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
            .descriptors()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeout = Timespec::try_from(due.min(within)).ok();
        // What poll says is seen by driving as well.
        let _ = rustix::event::poll(&mut polled, timeout.as_ref());
        drop(polled);
        self.drive();
    }

    /// What to poll for input before [`Station::drive`]; others after each call of it.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let of_office = self.office.iter().flat_map(|office| {
            let members = office.members.iter().map(|member| &member.link);
            members
                .chain(office.ears.values())
                .chain([&office.listener])
        });
        of_office.chain(self.link.as_ref()).map(AsFd::as_fd)
    }

    /// Whether others depend on this process though it offers nothing itself any more.
    fn is_needed(&self) -> bool {
        self.office
            .as_ref()
            .is_some_and(|office| !office.members.is_empty())
    }

    fn leave(&mut self) {
        self.office = None;
        self.link = None;
        self.leaves_at = None;
        self.seat.on_leave();
    }

    fn tell(&mut self, record: Record) {
        let Some(link) = &self.link else { return };
        if let Err(error) = show(link, record, &self.proofs) {
            debug!(%error, "the port mapper's owner does not listen");
            self.link = None;
            self.seat.on_owner_gone();
        }
    }

    fn is_link_gone(&self) -> bool {
        // The owner sends nothing, so whatever can be read is the end.
        self.link
            .as_ref()
            .is_none_or(|link| !matches!(link::receive(link.as_fd()), Received::Nothing))
    }

    fn sit(&mut self) {
        match self.try_to_sit() {
            Ok(()) => debug!(seat = ?self.seat, "answering port mapper requests"),
            Err(error) => debug!(%error, "no place at the port mapper, trying again"),
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
                let mut office = Office::new(listener);
                office.listen_at(&self.addresses);
                self.office = Some(office);
                self.seat.on_seat_free();
                Ok(())
            }
            Err(Errno::ADDRINUSE) => {
                let link = socket()?;
                rustix::net::connect(&link, &seat)?;
                for (service, mapped) in self.own.iter() {
                    show(&link, Record::Offer { service, mapped }, &self.proofs)?;
                }
                self.link = Some(link);
                self.seat.on_seat_taken();
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Sends a record with what proves it; one that nothing proves any more is left out.
fn show(link: &OwnedFd, record: Record, proofs: &BTreeMap<SocketAddr, Proof>) -> Result<(), Errno> {
    let proof = match record {
        Record::Withdraw { .. } => return link::send(link.as_fd(), record, None),
        Record::Offer { service, .. } => proofs.get(&service).and_then(|proof| (proof.0)()),
    };
    match proof {
        Some(socket) => link::send(link.as_fd(), record, Some(&socket)),
        None => Ok(()),
    }
}

impl Office {
    fn new(listener: OwnedFd) -> Self {
        Self {
            listener,
            members: Vec::new(),
            ears: BTreeMap::new(),
            try_again: None,
        }
    }

    /// Opens a socket at each of these addresses, and none elsewhere.
    fn listen_at(&mut self, addresses: &[(IpAddr, u32)]) {
        self.ears.retain(|address, _| addresses.contains(address));
        self.try_again = None;
        for address in addresses {
            if self.ears.contains_key(address) {
                continue;
            }
            match open_ear(*address) {
                Ok(ear) => drop(self.ears.insert(*address, ear)),
                Err(error) => {
                    // Another port mapper, such as iwpmd, says that nothing is offered here: peers
                    // stay on TCP, which is no harm.
                    info!(address = %address.0, %error, "cannot answer port mapper requests");
                    self.try_again = Some(Instant::now() + TRY_AGAIN);
                }
            }
        }
    }

    fn serve(&mut self, own: &Mappings, addresses: &[(IpAddr, u32)]) {
        if self.try_again.is_some_and(|at| Instant::now() >= at) {
            self.listen_at(addresses);
        }
        self.accept();
        self.members.retain_mut(Member::hear);
        let members = &self.members;
        for ear in self.ears.values() {
            answer_at(ear, |datagram| {
                let all = members.iter().map(|member| &member.mappings);
                // The first that offers the service; a Reject only if none does.
                std::iter::once(own)
                    .chain(all)
                    .filter_map(|mappings| mappings.answer(datagram))
                    .min_by_key(|answer| answer.kind() == crate::Kind::Reject)
                    .map(|answer| answer.to_bytes())
            });
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(link) = rustix::net::accept_with(&self.listener, flags) {
            if self.members.len() == MEMBERS_MAX {
                // It tries again, and by then others may be gone.
                continue;
            }
            let Ok(link) = descriptors::raise(link) else {
                continue;
            };
            self.members.push(Member {
                link,
                mappings: Mappings::default(),
            });
        }
    }
}

impl Member {
    /// Takes what this member says. Whether it stays.
    fn hear(&mut self) -> bool {
        for _ in 0..BATCH {
            match link::receive(self.link.as_fd()) {
                Received::Record(Record::Offer { service, mapped }, Some(proof))
                    if link::proves(&proof, service) && self.mappings.len() < SERVICES_MAX =>
                {
                    insert(&mut self.mappings, Some(&proof), service, mapped);
                }
                Received::Record(Record::Offer { service, .. }, _) => {
                    warn!(%service, "a process offers a service that is not its own");
                    return false;
                }
                Received::Record(Record::Withdraw { service }, _) => {
                    self.mappings.remove(service);
                }
                Received::Nothing => return true,
                Received::Nonsense | Received::Gone => return false,
            }
        }
        true
    }
}

/// The socket of a service tells for which peers it is.
fn insert(
    mappings: &mut Mappings,
    socket: Option<&OwnedFd>,
    service: SocketAddr,
    mapped: SocketAddr,
) {
    let ipv6_only = |socket| sockopt::ipv6_v6only(socket) == Ok(true);
    if service.is_ipv6() && socket.is_some_and(ipv6_only) {
        mappings.insert_ipv6_only(service, mapped);
    } else {
        mappings.insert(service, mapped);
    }
}

fn open_ear((ip, device): (IpAddr, u32)) -> Result<OwnedFd, Errno> {
    let (family, scope) = match ip {
        IpAddr::V4(_) => (AddressFamily::INET, 0),
        IpAddr::V6(v6) => (AddressFamily::INET6, scope_of(v6, device)),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ear = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let ear = descriptors::raise(ear)?;
    let mut address = SocketAddr::new(ip, PORT);
    if let SocketAddr::V6(v6) = &mut address {
        sockopt::set_ipv6_v6only(&ear, true)?;
        v6.set_scope_id(scope);
    }
    rustix::net::bind(&ear, &address)?;
    Ok(ear)
}

fn scope_of(ip: Ipv6Addr, device: u32) -> u32 {
    if ip.is_unicast_link_local() {
        device
    } else {
        0
    }
}

fn answer_at(ear: &OwnedFd, answer: impl Fn(&[u8]) -> Option<Vec<u8>>) {
    let mut bytes = [0; 128];
    for _ in 0..BATCH {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let Ok((len, whole, from)) = rustix::net::recvfrom(ear, &mut bytes, flags) else {
            return;
        };
        let (Some(from), true) = (from, len == whole) else {
            continue;
        };
        if let Some(answer) = answer(&bytes[..len]) {
            // An answer that cannot be sent is one that was lost: the question comes again.
            let _ = rustix::net::sendto(ear, &answer, SendFlags::DONTWAIT, &from);
        }
    }
}
