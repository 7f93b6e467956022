//! `connect`, `listen`, `accept`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ops::{KernelConnection, KernelService, KernelSockets, KernelTarget, Local, Reason};
use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, bind, connect,
    getsockname, listen, socket_with, sockopt,
};
use rustix::process::geteuid;
use tracing::info;

use crate::names::{self, Addresses, Name, listener_addresses};
use crate::{ports, trust};

/// The number of ports that are tried until one is free for the service.
const PORTS_MAX: u32 = 64;

/// The number of unacceptable peers after which an accept returns. Peers that connect faster than
/// they are refused must not keep the program in its call.
const REFUSED_MAX: u32 = 64;

/// Connections and listeners of this protocol.
#[derive(Debug)]
pub(crate) struct Sockets;

fn socket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Returns true for a listener of this protocol.
#[must_use]
pub fn is_listener(socket: BorrowedFd<'_>) -> bool {
    getsockname(socket).is_ok_and(|name| matches!(Name::of(&name), Some(Name::Service { .. })))
        && sockopt::socket_acceptconn(socket).unwrap_or(false)
}

/// Returns true for the listener of this protocol that belongs to a service.
#[must_use]
pub fn is_at(listener: BorrowedFd<'_>, service: Local) -> bool {
    let wanted = names::of_service(service);
    let named = getsockname(listener).and_then(SocketAddrUnix::try_from);
    wanted.is_ok() && wanted == named
}

impl KernelSockets for Sockets {
    fn is_offered(&self, service: SocketAddr) -> Result<(), Reason> {
        /// `__SO_ACCEPTCON`, in the column of flags.
        const LISTENS: &[u8] = b"00010000";
        // Names of other programs need not be text.
        let listed = fs::read("/proc/net/unix").unwrap_or_default();
        let service = match service.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), service.port()),
            // The IPv6 address keeps its scope.
            IpAddr::V6(_) => service,
        };
        let wanted = names::listed_as(service);
        let is_listener = |line: &[u8]| {
            let words = line.split(u8::is_ascii_whitespace);
            words.filter(|word| !word.is_empty()).nth(3) == Some(LISTENS)
                && wanted.iter().any(|name| line.ends_with(name.as_bytes()))
        };
        let is_listed = listed.split(|byte| *byte == b'\n').any(is_listener);
        is_listed.then_some(()).ok_or(Reason::NotOffered)
    }

    fn connect(&self, target: &KernelTarget) -> Result<KernelConnection, Reason> {
        // The socket does not block here, so that a full backlog does not make the caller wait.
        let socket = socket(target.flags | SocketFlags::NONBLOCK).map_err(Reason::Failed)?;
        let addresses = bind_name(&socket, target)?;
        let listener = connect_to_listener(&socket, target.service)?;
        trust::check_listener(socket.as_fd(), listener.address)
            .map_err(|distrust| Reason::Protocol(distrust.to_string()))?;
        if !target.flags.contains(SocketFlags::NONBLOCK) {
            fcntl_setfl(&socket, OFlags::RDWR).map_err(Reason::Failed)?;
        }
        Ok(KernelConnection {
            socket,
            local: addresses.local,
            peer: addresses.peer,
        })
    }

    fn listen(&self, tcp: BorrowedFd<'_>, local: Local, backlog: u32) -> Result<OwnedFd, Reason> {
        if sockopt::socket_reuseport(tcp) == Ok(true) {
            return Err(Reason::Option("SO_REUSEPORT"));
        }
        // Accepted connections would inherit a close that resets, which `AF_UNIX` does not support.
        if sockopt::socket_linger(tcp) == Ok(Some(Duration::ZERO)) {
            return Err(Reason::Option("SO_LINGER"));
        }
        // Peers of other users would not trust the listener: they would close the connections,
        // which the program would then accept.
        let owner = fstat(tcp).map_err(Reason::Failed)?.st_uid;
        let user = geteuid();
        if !user.is_root() && user.as_raw() != owner {
            return Err(Reason::Protocol(format!(
                "the socket belongs to user {owner}, and user {} listens",
                user.as_raw()
            )));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket(flags).map_err(Reason::Failed)?;
        let name = names::of_service(local).map_err(Reason::Failed)?;
        bind(&listener, &name).map_err(|errno| match errno {
            Errno::ADDRINUSE => Reason::PortTaken,
            errno => Reason::Failed(errno),
        })?;
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        listen(&listener, backlog).map_err(Reason::Failed)?;
        Ok(listener)
    }

    fn service(&self, listener: BorrowedFd<'_>) -> Result<KernelService, Errno> {
        match Name::of(&getsockname(listener)?) {
            Some(Name::Service { is_ipv6, address }) => Ok(KernelService { is_ipv6, address }),
            _ => Err(Errno::INVAL),
        }
    }

    fn accept(
        &self,
        listener: BorrowedFd<'_>,
        service: KernelService,
        flags: SocketFlags,
    ) -> Result<Option<KernelConnection>, Errno> {
        for _ in 0..REFUSED_MAX {
            let (socket, peer) = match acceptfrom_with(listener, flags) {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(errno) => return Err(errno),
            };
            let peer = peer.as_ref().and_then(Name::of);
            if let Some(Name::Connection(peer)) = peer {
                let of = peer.seen_from_service(service.is_ipv6);
                if is_acceptable(socket.as_fd(), &of, service.address) {
                    return Ok(Some(KernelConnection {
                        socket,
                        local: of.local,
                        peer: of.peer,
                    }));
                }
            }
            info!(
                ?peer,
                "a local peer is refused because the address in its name is not its own"
            );
        }
        Err(Errno::CONNABORTED)
    }
}

/// Returns true if the peer may have the addresses in its name.
fn is_acceptable(socket: BorrowedFd<'_>, of: &Addresses, listening: SocketAddr) -> bool {
    let listening_ip = listening.ip().to_canonical();
    let is_addressed = of.local.port() == listening.port()
        && if listening_ip.is_unspecified() {
            trust::is_own(of.local)
        } else {
            of.local.ip() == listening_ip
        };
    is_addressed && trust::may_use_address(socket, of.peer, of.local.ip())
}

/// Binds the socket to the name of the connection, and returns the addresses in it.
fn bind_name(socket: &OwnedFd, target: &KernelTarget) -> Result<Addresses, Reason> {
    let bound = target.bound;
    let ip = match bound.ip().to_canonical() {
        ip if ip.is_unspecified() => target.source.unwrap_or_else(|| source(target.service.ip())),
        ip => ip,
    };
    if ip.is_ipv4() != target.service.is_ipv4() {
        return Err(Reason::Family);
    }
    // A link-local address has the scope of the bound address, or that of the service.
    let mut local = match (ip, target.service) {
        _ if bound.is_ipv6() && bound.ip() == ip => bound,
        (IpAddr::V6(own), SocketAddr::V6(service)) if own.is_unicast_link_local() => {
            SocketAddrV6::new(own, bound.port(), 0, service.scope_id()).into()
        }
        _ => SocketAddr::new(ip, bound.port()),
    };
    for taken in 0..PORTS_MAX {
        if bound.port() == 0 {
            local.set_port(ports::next(taken));
        }
        let addresses = Addresses {
            is_ipv6: target.is_ipv6,
            local,
            peer: target.service,
        };
        let name = addresses.name().map_err(Reason::Failed)?;
        match bind(socket, &name) {
            Ok(()) => return Ok(addresses),
            Err(Errno::ADDRINUSE) if bound.port() == 0 => {}
            Err(errno) => return Err(Reason::Failed(errno)),
        }
    }
    Err(Reason::Failed(Errno::ADDRNOTAVAIL))
}

/// Returns the address from which the kernel reaches an address of this host, if no route was
/// looked up.
fn source(service: IpAddr) -> IpAddr {
    match service {
        IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

/// Connects to the listener of the service, and returns the address at which it listens.
fn connect_to_listener(socket: &OwnedFd, service: SocketAddr) -> Result<Local, Reason> {
    for address in listener_addresses(service) {
        let name = names::of_service(address).map_err(Reason::Failed)?;
        match connect(socket, &name) {
            Ok(()) => return Ok(address),
            Err(Errno::CONNREFUSED) => {}
            // The TCP listener has a backlog of its own. A TCP connect waits while that is full.
            Err(Errno::AGAIN) => return Err(Reason::BacklogFull),
            Err(errno) => return Err(Reason::Failed(errno)),
        }
    }
    Err(Reason::NotOffered)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use rustix::process::Uid;

    use super::*;

    #[test]
    fn a_service_is_found_among_names_that_are_no_text() {
        let foreign = socket(SocketFlags::CLOEXEC).unwrap();
        let name = SocketAddrUnix::new_abstract_name(b"of a test \xff\xfe").unwrap();
        bind(&foreign, &name).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = tcp.local_addr().unwrap();
        assert_eq!(Sockets.is_offered(service), Err(Reason::NotOffered));
        let listener = Sockets.listen(tcp.as_fd(), service.into(), 1).unwrap();
        assert_eq!(Sockets.is_offered(service), Ok(()));
        drop(listener);
        assert_eq!(Sockets.is_offered(service), Err(Reason::NotOffered));
    }

    /// A server may bind its socket as root, and listen as another user.
    #[test]
    fn a_socket_of_another_user_is_not_offered() {
        if !geteuid().is_root() {
            // The line is written past the capture of the test harness.
            let why = b"\nNOT RUN: only root can become another user\n";
            std::io::stderr().write_all(why).unwrap();
            return;
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = tcp.local_addr().unwrap().into();
        let listen = || Sockets.listen(tcp.as_fd(), service, 1);
        assert!(listen().is_ok());
        let become_other = || {
            let [root, other] = [0, 1000].map(Uid::from_raw);
            // The user of this thread alone is changed.
            rustix::thread::set_thread_res_uid(root, other, root).unwrap();
            listen().map(drop)
        };
        let refused = std::thread::scope(|scope| scope.spawn(become_other).join().unwrap());
        let why = "the socket belongs to user 0, and user 1000 listens";
        assert_eq!(refused, Err(Reason::Protocol(why.to_owned())));
    }

    #[test]
    fn unacceptable_peers_keep_no_accept_busy() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = tcp.local_addr().unwrap().into();
        let listener = Sockets
            .listen(tcp.as_fd(), service, 2 * REFUSED_MAX)
            .unwrap();
        let name = names::of_service(service).unwrap();
        for _ in 0..=REFUSED_MAX {
            let unnamed = socket(SocketFlags::CLOEXEC).unwrap();
            connect(&unnamed, &name).unwrap();
        }
        let service = Sockets.service(listener.as_fd()).unwrap();
        let accept = || Sockets.accept(listener.as_fd(), service, SocketFlags::CLOEXEC);
        assert_eq!(accept().err(), Some(Errno::CONNABORTED));
        assert!(accept().is_ok_and(|it| it.is_none()), "all were refused");
    }

    #[test]
    fn addresses_of_an_accept_are_used_for_its_service_only() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let listener = Sockets.listen(tcp.as_fd(), address.into(), 1).unwrap();
        let target = KernelTarget {
            service: address,
            bound: (Ipv4Addr::UNSPECIFIED, 0).into(),
            source: None,
            is_ipv6: false,
            flags: SocketFlags::CLOEXEC,
        };
        let connected = Sockets.connect(&target).unwrap();
        let service = Sockets.service(listener.as_fd()).unwrap();
        let accepted = Sockets.accept(listener.as_fd(), service, SocketFlags::CLOEXEC);
        let accepted = accepted.unwrap().unwrap();
        let socket = accepted.socket.as_fd();
        let of_names = Addresses::of(socket).unwrap();
        assert_eq!((of_names.local, of_names.peer), (address, connected.local));
        let mut known = of_names;
        known.peer.set_port(1);
        assert_eq!(Addresses::of_accepted(socket, Some(known)), Some(known));
        known.local.set_port(1);
        assert_eq!(Addresses::of_accepted(socket, Some(known)), Some(of_names));
        let other_end = Addresses::of_accepted(connected.socket.as_fd(), Some(known));
        assert_eq!(other_end, Addresses::of(connected.socket.as_fd()));
    }
}
