//! Connections within a host: the offload protocol `local` next to the kernel's TCP.
//!
//! Input: the choices of a [`Case`], one byte each. A case is a service of one user, a hostile
//! listener of another, which has bound every name that a client might look for, and a client. The
//! oracle is the kernel: a connection that the protocol carries is made by TCP as well, between the
//! same sockets, and shows the same addresses in every call. In the other direction, a connection
//! that TCP makes is carried, except for the cases that the protocol leaves to TCP.
//!
//! The sockets are real, in a network namespace of the calling thread. Where no namespace can be
//! made, nothing is checked, and the test of the corpus reports it.

mod host;
mod sockets;

use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ops::{KernelConnection, KernelTarget, Local};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    sockopt,
};

pub use host::{ADDRESSES, Host, LISTENING};
pub use sockets::SocketOption;
use sockets::{accept_tcp, as_user, connect_tcp, own_name, peer_name, tcp, tcp_listener};

use crate::input::Input;
use crate::seed::{Seed, seed};

/// The users: the service's, the attacker's, and a third.
pub const USERS: [u32; 4] = [1000, 1001, 1002, 0];
const SERVICE: u32 = USERS[0];
const ATTACKER: u32 = USERS[1];

/// The lowest ports of programs without privileges.
pub const UNPRIVILEGED: [u16; 3] = [1024, 0, 25_000];

/// The time that TCP has for a connection that the protocol has carried.
const PATIENCE: Duration = Duration::from_secs(10);

/// A listener.
#[derive(Debug, Clone, Copy)]
pub struct At {
    /// Index in [`ADDRESSES`]; 0 for no listener.
    pub address: usize,
    /// The option of its socket.
    pub option: SocketOption,
}

/// One set of choices.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The lowest port of programs without privileges.
    pub unprivileged: u16,
    /// `ip_nonlocal_bind`.
    pub is_nonlocal: bool,
    /// The service, whose user runs under `opsrun`.
    pub service: At,
    /// The attacker's listener.
    pub attacker: At,
    /// The user of the client.
    pub user: u32,
    /// True if the client's socket is of `AF_INET6`.
    pub is_ipv6: bool,
    /// The option of the client's socket.
    pub option: SocketOption,
    /// Index of the address to which the client binds its socket, or which it claims.
    pub from: usize,
    /// True if the client's port is privileged by default.
    pub is_low: bool,
    /// Index of the address to which the client connects.
    pub to: usize,
    /// True if the client claims its addresses without a TCP socket.
    pub is_claim: bool,
}

impl Case {
    fn of(input: &mut Input<'_>) -> Self {
        let at = |input: &mut Input<'_>| At {
            address: input.below(LISTENING),
            option: input.pick(&SocketOption::ALL),
        };
        Self {
            unprivileged: input.pick(&UNPRIVILEGED),
            is_nonlocal: input.below(2) == 1,
            service: at(input),
            attacker: at(input),
            user: input.pick(&USERS),
            is_ipv6: input.below(2) == 1,
            option: input.pick(&SocketOption::ALL),
            from: input.below(ADDRESSES.len()),
            is_low: input.below(2) == 1,
            to: input.below(ADDRESSES.len()),
            is_claim: input.below(2) == 1,
        }
    }
}

/// The two programs' view of a connection: the connecting socket's own address and peer, then those
/// of the accepted one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    client: [SocketAddr; 2],
    server: [SocketAddr; 2],
    user: u32,
}

/// The result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The sockets of the case do not exist.
    Impossible,
    /// Neither the protocol nor TCP connects.
    Refused,
    /// TCP alone connects.
    TcpOnly,
    /// The protocol carries the connection, as TCP would.
    Carried,
}

thread_local! {
    static HOST: OnceCell<Result<Host, String>> = const { OnceCell::new() };
}

/// Calls `work` with the namespace of this thread.
///
/// # Errors
/// The reason why this host permits no namespace.
pub fn on_host<T>(work: impl FnOnce(&Host) -> T) -> Result<T, String> {
    HOST.with(|host| match host.get_or_init(Host::enter) {
        Ok(host) => Ok(work(host)),
        Err(why) => Err(why.clone()),
    })
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let case = Case::of(&mut Input::new(data));
    if let Err(why) = on_host(|host| check(host, &case)) {
        eprintln!("NOT RUN: {why}");
    }
}

/// Checks one case.
///
/// # Panics
/// If the protocol carries a connection that TCP would not make, or leaves one to TCP without a
/// reason.
pub fn check(host: &Host, case: &Case) -> Verdict {
    host.set(case.unprivileged, case.is_nonlocal);
    let port = host.port();
    let listener = |at: At, user| {
        let address = host.address(at.address, port)?;
        let tcp = as_user(user, || tcp_listener(address, at.option))?;
        let at = Local::of(&tcp, address);
        Some((tcp, at))
    };
    let service = listener(case.service, SERVICE);
    let attacker = listener(case.attacker, ATTACKER);
    if service.is_none() && attacker.is_none() {
        return Verdict::Impossible;
    }
    let Some(to) = host.address(case.to, port) else {
        return Verdict::Impossible;
    };
    let offered = service.as_ref().and_then(|(tcp, at)| {
        let sockets = ops_local_protocol::kernel_sockets();
        let is_on_device = is_on_device(case.service.option, at.address);
        let offer = || sockets.listen(tcp.as_fd(), *at, 8, &[], Some(&host.stack));
        as_user(SERVICE, || (!is_on_device).then(offer)?.ok())
    });
    let free = host.port();
    let scene = Scene {
        host,
        case,
        client_port: if case.is_low { 600 + free % 400 } else { free },
        to,
        service: service.map(|(tcp, _)| tcp),
        offered,
        attacker: attacker.map(|(tcp, _)| tcp),
        names: hostile_names(to),
    };
    if case.is_claim {
        scene.check_claim()
    } else {
        scene.check_client()
    }
}

/// The sockets of a case.
struct Scene<'a> {
    host: &'a Host,
    case: &'a Case,
    /// The port of a client that binds its socket.
    client_port: u16,
    to: SocketAddr,
    service: Option<OwnedFd>,
    /// The service's listener of the protocol.
    offered: Option<OwnedFd>,
    attacker: Option<OwnedFd>,
    /// The attacker's listeners of the protocol.
    names: Vec<OwnedFd>,
}

impl Scene<'_> {
    /// Connects as a program under `opsrun` does, then by TCP.
    fn check_client(&self) -> Verdict {
        let case = self.case;
        let Some(socket) = self.client(case.is_ipv6, case.option) else {
            return Verdict::Impossible;
        };
        let ours = self.connect_by_protocol(&socket);
        let tcp = self.connect_by_tcp(&socket, ours.is_some());
        let Some(ours) = ours else {
            assert!(
                tcp.is_none() || self.is_left_to_tcp(&socket),
                "TCP connects {tcp:?}, the protocol does not: {case:?}"
            );
            return if tcp.is_some() {
                Verdict::TcpOnly
            } else {
                Verdict::Refused
            };
        };
        let Some(mut tcp) = tcp else {
            panic!("the protocol connects {ours:?}, TCP does not: {case:?}");
        };
        // Each has chosen a port if the program has not.
        if own_name(&socket).is_some() && !self.is_bound_to_port() {
            let port = ours.client[0].port();
            tcp.client[0].set_port(port);
            tcp.server[1].set_port(port);
        }
        if ours.user == ATTACKER {
            // The attacker shows its program any addresses.
            tcp.server = ours.server;
        }
        assert_eq!(ours, tcp, "{case:?}");
        Verdict::Carried
    }

    /// Connects to the service with a name that claims addresses. Some socket of this user must
    /// have them over TCP.
    fn check_claim(&self) -> Verdict {
        let case = self.case;
        let from = self.host.address(case.from, self.client_port);
        let (Some(offered), Some(from)) = (&self.offered, from) else {
            return Verdict::Impossible;
        };
        let claim = unix_socket();
        let family = if case.is_ipv6 { 6 } else { 4 };
        let name = abstract_name(&format!("ops1from{family} {from} {}", self.to));
        let service = SocketAddrUnix::try_from(rustix::net::getsockname(offered).expect("a name"));
        bind(&claim, &name).expect("no other socket has the name");
        as_user(case.user, || connect(&claim, &service.expect("a name"))).expect("a free queue");
        let accepted = self.accept_by_protocol(offered);
        let by_tcp = [SocketOption::None, SocketOption::FreeBind]
            .into_iter()
            .find_map(|option| {
                // The service does not see the family of the client's socket.
                let socket = self.client(self.to.is_ipv6(), option)?;
                self.connect_by_tcp(&socket, accepted.is_some())
            });
        match (accepted, by_tcp) {
            (None, None) => Verdict::Refused,
            (None, Some(_)) => Verdict::TcpOnly,
            (Some(server), Some(tcp)) if tcp.server == server && tcp.user == SERVICE => {
                Verdict::Carried
            }
            (Some(server), tcp) => panic!("accepted as {server:?}, TCP: {tcp:?}, {case:?}"),
        }
    }

    fn is_bound_to_port(&self) -> bool {
        self.case.from != 0
    }

    /// Makes the client's TCP socket; `None` if the kernel refuses it.
    fn client(&self, is_ipv6: bool, option: SocketOption) -> Option<OwnedFd> {
        let case = self.case;
        as_user(case.user, || {
            let socket = tcp(is_ipv6, option)?;
            if let Some(from) = self.host.address(case.from, self.client_port) {
                bind(&socket, &from).ok()?;
            }
            Some(socket)
        })
    }

    /// Connects as the switch does for a program's socket.
    fn connect_by_protocol(&self, socket: &OwnedFd) -> Option<Shown> {
        let case = self.case;
        let bound = own_name(socket)?;
        if !ops::is_destination(socket, bound, self.to) || is_on_device(case.option, bound) {
            return None;
        }
        let target = KernelTarget {
            service: single_host(self.to),
            bound,
            is_ipv6: case.is_ipv6,
            flags: SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        };
        let sockets = ops_local_protocol::kernel_sockets();
        let connection = as_user(case.user, || {
            sockets.connect(&target, &[], Some(&self.host.stack))
        })
        .ok()?;
        let KernelConnection {
            socket,
            local,
            peer,
        } = connection;
        let user = sockopt::socket_peercred(&socket)
            .expect("a peer")
            .uid
            .as_raw();
        let client = [local, peer].map(|address| shown(case.is_ipv6, address));
        let server = match &self.offered {
            Some(offered) if user == SERVICE => self.accept_by_protocol(offered),
            _ => self.names.iter().find_map(accepted_name).map(|()| client),
        };
        let server = server.unwrap_or_else(|| panic!("connected and not accepted: {case:?}"));
        Some(Shown {
            client,
            server,
            user,
        })
    }

    fn accept_by_protocol(&self, offered: &OwnedFd) -> Option<[SocketAddr; 2]> {
        let sockets = ops_local_protocol::kernel_sockets();
        let service = sockets
            .service(offered.as_fd())
            .expect("a listener of the protocol");
        let flags = SocketFlags::CLOEXEC;
        let stack = Some(&self.host.stack);
        let accepted = as_user(SERVICE, || {
            sockets.accept(offered.as_fd(), service, flags, stack)
        });
        let accepted = accepted.expect("an acceptable peer, or none")?;
        Some([accepted.local, accepted.peer].map(|address| shown(service.is_ipv6, address)))
    }

    /// Connects by TCP, and waits if the protocol has connected.
    fn connect_by_tcp(&self, socket: &OwnedFd, is_awaited: bool) -> Option<Shown> {
        let patience = if is_awaited { PATIENCE } else { Duration::ZERO };
        if !connect_tcp(socket, self.to, patience) {
            return None;
        }
        let ends = [(&self.service, SERVICE), (&self.attacker, ATTACKER)];
        let (accepted, user, peer) = ends.into_iter().find_map(|(listener, user)| {
            let (accepted, peer) = accept_tcp(listener.as_ref()?)?;
            Some((accepted, user, peer))
        })?;
        let server = [own_name(&accepted)?, peer_name(&accepted)?];
        assert_eq!(server[1], peer, "accept and getpeername differ over TCP");
        let client = [own_name(socket)?, peer_name(socket)?];
        Some(Shown {
            client,
            server,
            user,
        })
    }

    /// Returns true if the protocol leaves the connection to TCP although TCP makes it.
    fn is_left_to_tcp(&self, socket: &OwnedFd) -> bool {
        let case = self.case;
        let Some(own) = own_name(socket) else {
            return true;
        };
        let is_link_local = |address: SocketAddr| match address.ip() {
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
            IpAddr::V4(_) => false,
        };
        self.offered.is_none()
            || is_on_device(case.option, own)
            || case.option == SocketOption::Transparent
            || is_link_local(own)
            || is_link_local(self.to)
            || own.port() < case.unprivileged
            || case.to != 0 && self.to.ip().to_canonical().is_unspecified()
            // The attacker's listener receives it, and its names are taken by the service.
            || self.attacker.is_some()
            // A multicast or broadcast address is not the source of a connection.
            || own_class_differs(self.host, case)
    }
}

/// Returns true if TCP has replaced the address to which the socket was bound.
fn own_class_differs(host: &Host, case: &Case) -> bool {
    let bound = host.address(case.from, 0).map(|address| address.ip());
    bound.is_some_and(|ip| match ip {
        IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast() || ip.octets()[3] == 255,
        IpAddr::V6(ip) => ip.is_multicast(),
    })
}

/// Listens at every name that a client might look for, as the attacker.
fn hostile_names(to: SocketAddr) -> Vec<OwnedFd> {
    let port = to.port();
    let ip = single_host(to).ip();
    let names = [
        format!("ops1at4 {}", SocketAddr::new(ip, port)),
        format!("ops1at6 {}", single_host(to)),
        format!("ops1at4 0.0.0.0:{port}"),
        format!("ops1at6 [::]:{port}"),
        format!("ops1only6 [::]:{port}"),
        format!("ops1at6 [::ffff:{ip}]:{port}"),
    ];
    as_user(ATTACKER, || {
        let listeners = names.iter().filter_map(|name| {
            let listener = unix_socket();
            bind(&listener, &abstract_name(name)).ok()?;
            listen(&listener, 8).ok().map(|()| listener)
        });
        listeners.collect()
    })
}

fn accepted_name(listener: &OwnedFd) -> Option<()> {
    rustix::net::accept(listener).ok().map(drop)
}

fn unix_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket")
}

fn abstract_name(text: &str) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(text.as_bytes()).expect("a short name")
}

/// Returns true for a socket that stays on TCP because of its device.
fn is_on_device(option: SocketOption, bound: SocketAddr) -> bool {
    let has_scope = matches!(bound, SocketAddr::V6(v6) if v6.scope_id() != 0);
    has_scope || matches!(option, SocketOption::Loopback | SocketOption::Device)
}

/// The address as a program with a socket of this family sees it.
fn shown(is_ipv6: bool, address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if is_ipv6 => {
            SocketAddrV6::new(ip.to_ipv6_mapped(), address.port(), 0, 0).into()
        }
        _ => address,
    }
}

/// The address to which the switch connects: loopback in place of the unspecified address.
fn single_host(to: SocketAddr) -> SocketAddr {
    let mut to = to;
    let ip = to.ip().to_canonical();
    if ip != to.ip() {
        to = SocketAddr::new(ip, to.port());
    }
    if ip.is_unspecified() {
        to.set_ip(match ip {
            IpAddr::V4(_) => [127, 0, 0, 1].into(),
            IpAddr::V6(_) => [0, 0, 0, 0, 0, 0, 0, 1].into(),
        });
    }
    to
}

pub(crate) fn seeds() -> Vec<Seed> {
    let case = |name: &str, bytes: &[u8]| seed("admission", name, bytes.to_vec());
    vec![
        // The sysctl and the setting; service; attacker; user, family, option, from, port, to,
        // claim.
        case("plain", &[0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0]),
        case(
            "ipv6-only-attacker",
            &[0, 0, 3, 0, 6, 1, 2, 0, 0, 0, 0, 1, 0],
        ),
        case(
            "ipv6-only-attacker-root",
            &[0, 0, 3, 0, 6, 1, 3, 0, 0, 0, 0, 1, 0],
        ),
        case("claim-own", &[0, 0, 3, 0, 0, 0, 1, 0, 0, 1, 0, 1, 1]),
        case("claim-multicast", &[0, 0, 3, 0, 0, 0, 1, 0, 0, 17, 0, 1, 1]),
        case(
            "claim-foreign-nonlocal",
            &[0, 1, 3, 0, 0, 0, 1, 0, 0, 14, 0, 1, 1],
        ),
        case(
            "claim-other-family",
            &[0, 0, 1, 0, 0, 0, 1, 1, 0, 4, 0, 4, 1],
        ),
        case(
            "claim-mapped-of-ipv6-only",
            &[0, 0, 6, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1],
        ),
        case("low-port", &[1, 0, 3, 0, 0, 0, 2, 0, 0, 1, 1, 1, 0]),
        case("any-ip", &[0, 0, 6, 0, 0, 0, 2, 1, 0, 0, 0, 11, 0]),
        case("link-local", &[0, 0, 6, 0, 0, 0, 2, 1, 0, 0, 0, 12, 0]),
        case(
            "link-local-without-scope",
            &[0, 0, 6, 0, 0, 0, 2, 1, 0, 0, 0, 16, 0],
        ),
        case("transparent", &[0, 0, 3, 0, 0, 0, 3, 0, 3, 14, 0, 1, 0]),
    ]
}
