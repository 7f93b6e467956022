//! The server: receives the offerings of its clients, and answers for all processes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use host::descriptors::OwnDescriptor;
use host::peer::PeerCredentials;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrAny, SocketFlags, SocketType, sockopt,
};
use tracing::{debug, info};

use crate::portmap::PORT;
use crate::portmap::link::{self, Received, Record};
use crate::portmap::mappings::{Mappings, Offerer};
use crate::portmap::users::{Limits, ListenCheck, User};

/// The maximum number of datagrams, links or records that one call handles.
const BATCH: usize = 64;

/// The delay before the server tries again to bind an address that another socket has bound. It
/// doubles each time: a server that has just ended frees its addresses within milliseconds, and
/// another port mapper may keep them for ever.
const TRY_AGAIN_MIN: Duration = Duration::from_millis(2);

/// The longest delay before another try.
const TRY_AGAIN_MAX: Duration = Duration::from_secs(2);

/// The time for which a process without a free descriptor accepts no links. Otherwise a waiting
/// client would wake it all the time.
const OUT_OF_DESCRIPTORS: Duration = Duration::from_secs(1);

/// The state of the server. The fields are dropped in this order: the end of a link makes a client
/// take over, so the addresses and the name must be free by then.
#[derive(Debug)]
pub(super) struct Server {
    udp_sockets: BTreeMap<(IpAddr, u32), OwnDescriptor>,
    listener: OwnDescriptor,
    clients: Vec<Client>,
    links_accepted: u64,
    /// The offerings of this process and of the clients.
    all: Mappings,
    listen_check: ListenCheck,
    try_again: Option<Instant>,
    try_again_after: Duration,
    accepts_from: Option<Instant>,
}

#[derive(Debug)]
struct Datagram {
    /// The address of the socket that received the datagram.
    at: (IpAddr, u32),
    from: SocketAddrAny,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Client {
    link: OwnDescriptor,
    user: User,
    offerer: Offerer,
    services: usize,
}

impl Server {
    /// Starts with the offerings of this process.
    pub(super) fn new(listener: OwnedFd, own: &Mappings) -> Self {
        Self {
            udp_sockets: BTreeMap::new(),
            listener: listener.into(),
            clients: Vec::new(),
            links_accepted: 0,
            all: own.clone(),
            listen_check: ListenCheck::default(),
            try_again: None,
            try_again_after: TRY_AGAIN_MIN,
            accepts_from: None,
        }
    }

    /// Adds or removes an offering of this process.
    pub(super) fn record_own(&mut self, record: Record) {
        match record {
            Record::Offer(offering) => self.all.insert(offering),
            Record::Withdraw { service, mapped } => drop(self.all.remove(service, mapped)),
        }
    }

    /// True if a client depends on the server.
    pub(super) fn is_needed(&self) -> bool {
        !self.clients.is_empty()
    }

    /// The time at which there is work to do even if nothing is received.
    pub(super) fn due(&self) -> Option<Instant> {
        self.try_again.into_iter().chain(self.accepts_from).min()
    }

    /// Returns true if the program has closed a descriptor of the server. The number may belong to
    /// the program by now.
    pub(super) fn is_lost(&self) -> bool {
        self.descriptors().any(OwnDescriptor::is_lost)
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = &OwnDescriptor> {
        let clients = self.clients.iter().map(|client| &client.link);
        clients
            .chain(self.udp_sockets.values())
            .chain([&self.listener])
    }

    /// The descriptors to poll for input; without the listener while no links are accepted.
    pub(super) fn awaited(&self) -> impl Iterator<Item = &OwnDescriptor> {
        let accepts = self.accepts_from.is_none();
        self.descriptors()
            .filter(move |fd| accepts || !std::ptr::eq(*fd, &self.listener))
    }

    /// Opens a socket at each of these addresses, and none elsewhere.
    pub(super) fn listen_at(&mut self, addresses: &[(IpAddr, u32)]) {
        self.udp_sockets
            .retain(|address, _| addresses.contains(address));
        self.try_again = None;
        for address in addresses {
            if self.udp_sockets.contains_key(address) {
                continue;
            }
            match open_udp(*address) {
                Ok(socket) => drop(self.udp_sockets.insert(*address, socket.into())),
                Err(error) => {
                    // After some tries it is no server that has just ended, but another port
                    // mapper, such as iwpmd. It answers that nothing is offered here, so peers stay
                    // on TCP, which does no harm.
                    if self.try_again_after == TRY_AGAIN_MAX {
                        info!(address = %address.0, %error, "cannot answer port mapper requests");
                    }
                    self.try_again = Some(Instant::now() + self.try_again_after);
                }
            }
        }
        self.try_again_after = match self.try_again {
            Some(_) => (2 * self.try_again_after).min(TRY_AGAIN_MAX),
            None => TRY_AGAIN_MIN,
        };
    }

    pub(super) fn serve(&mut self, addresses: &[(IpAddr, u32)]) {
        if self.try_again.is_some_and(|at| Instant::now() >= at) {
            self.listen_at(addresses);
        }
        // The datagrams are received before the records: a service that was offered before its peer
        // asked is in the records then.
        let datagrams = self.receive_datagrams();
        self.accept();
        self.receive_records();
        self.answer(&datagrams);
    }

    fn receive_datagrams(&self) -> Vec<Datagram> {
        let mut received = Vec::new();
        for (at, socket) in &self.udp_sockets {
            let mut bytes = [0; 128];
            for _ in 0..BATCH {
                let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
                let Ok((len, whole, from)) = rustix::net::recvfrom(socket, &mut bytes, flags)
                else {
                    break;
                };
                if let (Some(from), true) = (from, len == whole) {
                    received.push(Datagram {
                        at: *at,
                        from,
                        bytes: bytes[..len].to_vec(),
                    });
                }
            }
        }
        received
    }

    fn answer(&mut self, datagrams: &[Datagram]) {
        let (all, clients, listen_check) = (&self.all, &self.clients, &mut self.listen_check);
        for datagram in datagrams {
            let answer = all.answer_if(&datagram.bytes, |candidate| {
                let client = clients.iter().find(|it| it.offerer == candidate.by);
                // An offering of no client is this process's own.
                let user = client.map_or(User::Trusted, |client| client.user);
                listen_check.confirms(user, candidate)
            });
            if let (Some(answer), Some(socket)) = (answer, self.udp_sockets.get(&datagram.at)) {
                // An answer that cannot be sent counts as lost: the peer sends its Request again.
                let flags = SendFlags::DONTWAIT;
                let _ = rustix::net::sendto(socket, &answer.to_bytes(), flags, &datagram.from);
            }
        }
    }

    fn accept(&mut self) {
        if self.accepts_from.is_some_and(|at| Instant::now() < at) {
            return;
        }
        self.accepts_from = None;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for _ in 0..BATCH {
            match rustix::net::accept_with(&self.listener, flags) {
                Ok(link) => self.admit(link),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(error) => {
                    debug!(%error, "a link of another process cannot be accepted");
                    self.accepts_from = Some(Instant::now() + OUT_OF_DESCRIPTORS);
                    return;
                }
            }
        }
    }

    /// Adds a client, if the limits permit it. A refused client tries again later, when other links
    /// may have ended.
    fn admit(&mut self, link: OwnedFd) {
        let Ok(peer) = PeerCredentials::of(link.as_fd()) else {
            return;
        };
        let user = User::of(peer.uid);
        let users = self.clients.iter().map(|client| client.user);
        if !Limits::now().admit(user, users) {
            debug!(?user, "no room for another link");
            link::refuse(link.as_fd());
            return;
        }
        let Ok(link) = host::descriptors::raise(link) else {
            return;
        };
        self.links_accepted += 1;
        self.clients.push(Client {
            link: link.into(),
            user,
            offerer: Offerer(self.links_accepted),
            services: 0,
        });
    }

    fn receive_records(&mut self) {
        let all = &mut self.all;
        let mut gone = Vec::new();
        self.clients.retain_mut(|client| {
            let stays = client.receive_records(all);
            if !stays {
                gone.push(client.offerer);
            }
            stays
        });
        if !gone.is_empty() {
            self.all.forget(|by| gone.contains(&by));
        }
    }
}

impl Client {
    /// Receives the records of this client. Returns false if the link has ended or is invalid.
    fn receive_records(&mut self, all: &mut Mappings) -> bool {
        for _ in 0..BATCH {
            match link::receive(self.link.as_fd()) {
                Received::Record(Record::Offer(offering)) => {
                    // Further services are ignored; their peers use TCP.
                    if self.services < self.user.services_max() {
                        let is_new = all.insert_by(self.offerer, offering);
                        self.services += usize::from(is_new);
                    }
                }
                Received::Record(Record::Withdraw { service, mapped }) => {
                    let is_removed = all.remove_by(self.offerer, service, mapped);
                    self.services -= usize::from(is_removed);
                }
                Received::Nothing => return true,
                Received::Nonsense | Received::Gone => return false,
            }
        }
        true
    }
}

fn open_udp((ip, device): (IpAddr, u32)) -> Result<OwnedFd, Errno> {
    let (family, scope) = match ip {
        IpAddr::V4(_) => (AddressFamily::INET, 0),
        IpAddr::V6(v6) => (AddressFamily::INET6, scope_of(v6, device)),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let socket = host::descriptors::raise(socket)?;
    let mut address = SocketAddr::new(ip, PORT);
    if let SocketAddr::V6(v6) = &mut address {
        sockopt::set_ipv6_v6only(&socket, true)?;
        v6.set_scope_id(scope);
    }
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn scope_of(ip: Ipv6Addr, device: u32) -> u32 {
    if ip.is_unicast_link_local() {
        device
    } else {
        0
    }
}
