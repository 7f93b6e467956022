//! `connect`, `listen`, `accept`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ops::netlink::NetStack;
use ops::{KernelConnection, KernelService, KernelSockets, KernelTarget, Local, Reason, Setting};
use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, acceptfrom_with, bind, connect, getsockname, listen,
    socket_with, sockopt,
};
use rustix::process::geteuid;
use tracing::info;

use crate::admission::{self, Listener, Refusal};
use crate::names::{self, Addresses, Name};
use crate::{ports, settings, trust};

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
    let Ok(Some(Name::Service { at, pid_space, .. })) =
        getsockname(listener).map(|it| Name::of(&it))
    else {
        return false;
    };
    let wanted = names::of_service(service, pid_space);
    wanted.is_ok() && wanted == names::of_service(at, pid_space)
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

    fn connect(
        &self,
        target: &KernelTarget,
        settings: &[Setting],
        stack: Option<&NetStack>,
    ) -> Result<KernelConnection, Reason> {
        let pid_space = settings::pid_space(settings)?;
        let stack = stack.ok_or(Reason::NoNetlink)?;
        // The socket does not block here, so that a full backlog does not make the caller wait.
        let socket = socket(target.flags | SocketFlags::NONBLOCK).map_err(Reason::Failed)?;
        let (addresses, listener) = bind_name(&socket, target, stack)?;
        let name = names::of_service(listener.at, pid_space).map_err(Reason::Failed)?;
        connect(&socket, &name).map_err(|errno| match errno {
            Errno::CONNREFUSED => Reason::NotOffered,
            // The TCP listener has a backlog of its own. A TCP connect waits while that is full.
            Errno::AGAIN => Reason::BacklogFull,
            errno => Reason::Failed(errno),
        })?;
        trust::check_owner(socket.as_fd(), listener.user, pid_space.is_some())
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

    fn listen(
        &self,
        tcp: BorrowedFd<'_>,
        local: Local,
        backlog: u32,
        settings: &[Setting],
        stack: Option<&NetStack>,
    ) -> Result<OwnedFd, Reason> {
        // Without the kernel's answers, connections could not be accepted.
        if !stack.is_some_and(NetStack::reports_sockets) {
            return Err(Reason::NoNetlink);
        }
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
        let name = names::of_service(local, settings::pid_space(settings)?);
        let name = name.map_err(Reason::Failed)?;
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
            Some(Name::Service {
                is_ipv6,
                at,
                pid_space,
            }) => Ok(KernelService {
                is_ipv6,
                at,
                is_of_pid_space: pid_space.is_some(),
            }),
            _ => Err(Errno::INVAL),
        }
    }

    fn accept(
        &self,
        listener: BorrowedFd<'_>,
        service: KernelService,
        flags: SocketFlags,
        stack: Option<&NetStack>,
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
                let is_near = !service.is_of_pid_space || trust::is_visible(socket.as_fd());
                if is_near && is_acceptable(socket.as_fd(), of.peer, of.local, service.at, stack) {
                    return Ok(Some(KernelConnection {
                        socket,
                        local: of.local,
                        peer: of.peer,
                    }));
                }
            }
            info!(
                ?peer,
                "a local peer is refused, because TCP would not connect it with these addresses"
            );
        }
        Err(Errno::CONNABORTED)
    }
}

/// Returns true if TCP would connect a peer from the address `from` in its name to this listener.
fn is_acceptable(
    socket: BorrowedFd<'_>,
    from: SocketAddr,
    to: SocketAddr,
    at: Local,
    stack: Option<&NetStack>,
) -> bool {
    // These checks make no system call.
    if !(admission::is_shown(from, to) && admission::receives(at, to)) {
        return false;
    }
    match stack.map(|stack| stack.local_request(from, to)) {
        Some(Ok(request)) => {
            let unprivileged = ports::first_unprivileged(from.port());
            match admission::listener_of(&request, unprivileged) {
                Ok(listener) => listener.at == at,
                // The peer has connected before the TCP connection, as the checks of the connecting
                // end show. A peer of another user could borrow the connection's address.
                Err(Refusal::InUse) => trust::is_trusted(socket),
                Err(_) => false,
            }
        }
        // The process has lost access to netlink since it has listened, or has entered another
        // namespace. Programs of the same user were permitted by TCP when they connected.
        Some(Err(_)) | None => {
            [from, to].into_iter().all(admission::is_always_own) && trust::is_trusted(socket)
        }
    }
}

/// Binds the socket to the name of a connection that TCP would make. Returns the addresses in the
/// name, and the listener to which TCP would connect.
fn bind_name(
    socket: &OwnedFd,
    target: &KernelTarget,
    stack: &NetStack,
) -> Result<(Addresses, Listener), Reason> {
    let to = in_own_form(target.service);
    let mut from = in_own_form(target.bound);
    // The unspecified address of IPv6 includes IPv4, but not in the other direction.
    if from.ip() == Ipv6Addr::UNSPECIFIED && to.is_ipv4() {
        from.set_ip(Ipv4Addr::UNSPECIFIED.into());
    }
    for taken in 0..PORTS_MAX {
        if target.bound.port() == 0 {
            from.set_port(ports::next(taken));
        }
        let request = stack
            .local_request(from, to)
            .map_err(|error| Reason::Failed(error.errno()))?;
        let unprivileged = ports::first_unprivileged(from.port());
        let listener = match admission::listener_of(&request, unprivileged) {
            Ok(listener) => listener,
            Err(Refusal::InUse) if target.bound.port() == 0 => continue,
            Err(Refusal::NotListening) => return Err(Reason::NotOffered),
            Err(refusal) => return Err(Reason::Protocol(refusal.to_string())),
        };
        let addresses = Addresses {
            is_ipv6: target.is_ipv6,
            local: request.from,
            peer: to,
        };
        let name = addresses.name().map_err(Reason::Failed)?;
        match bind(socket, &name) {
            Ok(()) => return Ok((addresses, listener)),
            Err(Errno::ADDRINUSE) if target.bound.port() == 0 => {}
            Err(errno) => return Err(Reason::Failed(errno)),
        }
    }
    Err(Reason::Failed(Errno::ADDRNOTAVAIL))
}

/// Returns the address as a connection shows it: an IPv4-mapped address in the form of IPv4, an
/// IPv6 address without a flow label, and with a scope only if it is a link-local address.
fn in_own_form(address: SocketAddr) -> SocketAddr {
    match (address, address.ip().to_canonical()) {
        (SocketAddr::V6(v6), IpAddr::V6(ip)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, v6.port(), 0, v6.scope_id()).into()
        }
        (_, ip) => SocketAddr::new(ip, address.port()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use rustix::net::SocketAddrUnix;
    use rustix::process::Uid;

    use super::*;

    fn listen_at(tcp: &TcpListener, backlog: u32) -> Result<OwnedFd, Reason> {
        listen_with(tcp, backlog, &[])
    }

    fn listen_with(
        tcp: &TcpListener,
        backlog: u32,
        settings: &[Setting],
    ) -> Result<OwnedFd, Reason> {
        let stack = NetStack::open().unwrap();
        let at = tcp.local_addr().unwrap().into();
        Sockets.listen(tcp.as_fd(), at, backlog, settings, Some(&stack))
    }

    fn connect_to(address: SocketAddr, settings: &[Setting]) -> Result<KernelConnection, Reason> {
        let target = KernelTarget {
            service: address,
            bound: (Ipv4Addr::UNSPECIFIED, 0).into(),
            is_ipv6: false,
            flags: SocketFlags::CLOEXEC,
        };
        Sockets.connect(&target, settings, Some(&NetStack::open().unwrap()))
    }

    /// The variable with the service to which the test connects in another PID namespace.
    const SERVICE: &str = "OPS_TEST_SERVICE";

    #[test]
    fn a_rule_confines_peers_to_one_pid_namespace() {
        let confined = [Setting {
            protocol: crate::NAME.to_owned(),
            key: "peers".to_owned(),
            value: "pid-namespace".to_owned(),
        }];
        let refused = |address, settings: &[Setting]| {
            connect_to(address, settings).map(|_| ()) == Err(Reason::NotOffered)
        };
        if let Ok(service) = std::env::var(SERVICE) {
            let address = service.parse().unwrap();
            assert!(refused(address, &confined) && refused(address, &[]));
            return;
        }
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let listener = listen_with(&tcp, 5, &confined).unwrap();
        let _connected = connect_to(address, &confined).unwrap();
        let service = Sockets.service(listener.as_fd()).unwrap();
        let stack = NetStack::open().unwrap();
        let flags = SocketFlags::CLOEXEC;
        let accepted = Sockets.accept(listener.as_fd(), service, flags, Some(&stack));
        assert!(accepted.unwrap().is_some());
        assert!(refused(address, &[]), "a peer without the rule");
        let inside = std::process::Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact"])
            .arg("connection::tests::a_rule_confines_peers_to_one_pid_namespace")
            .env(SERVICE, address.to_string())
            .output()
            .unwrap();
        let [stdout, stderr] =
            [&inside.stdout, &inside.stderr].map(|it| String::from_utf8_lossy(it));
        if stderr.contains("unshare failed") || stderr.contains("unshare: ") {
            let why = b"\nNOT RUN: this user may not make a PID namespace\n";
            std::io::stderr().write_all(why).unwrap();
            return;
        }
        assert!(inside.status.success(), "{stdout}{stderr}");
        assert!(stdout.contains("1 passed"), "{stdout}");
    }

    #[test]
    fn a_service_is_found_among_names_that_are_no_text() {
        let foreign = socket(SocketFlags::CLOEXEC).unwrap();
        let name = SocketAddrUnix::new_abstract_name(b"of a test \xff\xfe").unwrap();
        bind(&foreign, &name).unwrap();
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = tcp.local_addr().unwrap();
        assert_eq!(Sockets.is_offered(service), Err(Reason::NotOffered));
        let listener = listen_at(&tcp, 1).unwrap();
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
        let listen = || listen_at(&tcp, 1);
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
        let listener = listen_at(&tcp, 2 * REFUSED_MAX).unwrap();
        let name = names::of_service(service, None).unwrap();
        for _ in 0..=REFUSED_MAX {
            let unnamed = socket(SocketFlags::CLOEXEC).unwrap();
            connect(&unnamed, &name).unwrap();
        }
        let service = Sockets.service(listener.as_fd()).unwrap();
        let accept = || Sockets.accept(listener.as_fd(), service, SocketFlags::CLOEXEC, None);
        assert_eq!(accept().err(), Some(Errno::CONNABORTED));
        assert!(accept().is_ok_and(|it| it.is_none()), "all were refused");
    }

    #[test]
    fn addresses_of_an_accept_are_used_for_its_service_only() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let listener = listen_at(&tcp, 1).unwrap();
        let stack = NetStack::open().unwrap();
        let connected = connect_to(address, &[]).unwrap();
        let service = Sockets.service(listener.as_fd()).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let accepted = Sockets.accept(listener.as_fd(), service, flags, Some(&stack));
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
