//! Connecting: an offload protocol first, within its bound, and TCP where it cannot.
//!
//! Until a protocol has connected, the program's descriptor is the TCP socket that the program
//! made. So falling back is nothing but calling the kernel's `connect`.
//!
//! It is untouched until the peer has said that it offers the service. Then it takes a port, which
//! both ends are told before anybody is connected. A port that is taken like this belongs to one
//! socket, while TCP gives one port to many connections of different peers; and Linux lets no
//! socket give it back that has not been connected, not even by `connect` with `AF_UNSPEC`. So the
//! few that fall back behind their peer's answer keep it, and a peer that fails so is not asked
//! again for a while (`ops::Switch`).

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use host::descriptors::raise;
use libc::{IP_BIND_ADDRESS_NO_PORT, IPPROTO_IP};
use ops::{
    DecisionTrace, Intent, KernelTarget, Offer, OffloadStream, Plan, Reason, Reserve, StackRequest,
    Switch,
};
use ops_rules::Role;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd};
use stand_in::Flags;
use tracing::info;

use super::not_offered;
use crate::process::guard;
use crate::registrations::Registrations;
use crate::sharing::leaving;
use crate::socket::room::Room;
use crate::table::Entry;
use crate::tcp::carried::Carried;
use crate::tcp::names::{self, Family};
use crate::tcp::options::{self, Options};
use crate::tcp::tcp_only;
use crate::{local, numbers, switch};

/// The result of the program's `connect`.
pub(crate) enum Outcome {
    /// The result of the kernel's `connect`; with the reason, where the switch was asked.
    Kernel(Option<String>),
    /// This result of an offload protocol, or of the decision that none may carry it.
    Offloaded(Result<(), Errno>),
}

/// The program connects a socket.
pub(crate) fn connect(fd: c_int, remote: SocketAddr) -> Outcome {
    let _inside = guard::enter();
    if fd < 0 {
        return Outcome::Kernel(None);
    }
    // SAFETY: a number from 0 up; the kernel says EBADF when it names nothing.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let remote = at_one_host(remote);
    if not_offered::is_recent(remote) && names::is_tcp(socket) {
        let reason = Reason::NotOffered;
        if let Some(switch) = switch::made() {
            switch.count_fall_back(&reason);
        }
        return Outcome::Kernel(Some(reason.to_string()));
    }
    // Anything but a fresh TCP socket goes to the kernel without a decision.
    let Some((family, bound)) = names::of_unconnected(socket) else {
        return Outcome::Kernel(None);
    };
    let Some(switch) = switch::switch() else {
        return Outcome::Kernel(None);
    };
    let intent = Intent {
        role: Role::Connect,
        address: remote,
        from: (!bound.ip().is_unspecified()).then(|| canonical(bound)),
        request: &StackRequest::ByRule,
        tcp_only: tcp_only::option_of(socket),
    };
    let mut offer = match switch.plan(&intent, &mut DecisionTrace::default()) {
        Plan::Offload(offer) => offer,
        Plan::Native(reason) => {
            info!(peer = %remote, %reason, "a connection over TCP");
            switch.count_fall_back(&reason);
            return Outcome::Kernel(Some(reason.to_string()));
        }
        Plan::Impossible(reason) => return Outcome::Offloaded(Err(refuse(remote, &reason))),
    };
    let source = offer.route.as_ref().and_then(|route| route.source);
    let Ok(flags) = local::flags_of(socket) else {
        return Outcome::Kernel(None);
    };
    let target = KernelTarget {
        service: remote,
        bound,
        source,
        is_ipv6: family == Family::V6,
        flags,
    };
    if Carried::has_reset(socket) {
        offer.protocols.retain(|it| it.kernel_sockets().is_none());
        if offer.protocols.is_empty() {
            return left(switch, remote, &offer, &Reason::Option("SO_LINGER"));
        }
    }
    match switch.connect_in_kernel(&target, &mut offer) {
        Ok((protocol, connection)) => {
            info!(peer = %remote, protocol = protocol.name(), "a connection is offloaded");
            let done = local::take_over(fd, socket, family, flags, &*protocol, connection);
            Outcome::Offloaded(done)
        }
        Err(reason) if offer.protocols.is_empty() => {
            if reason == Reason::NotOffered && offer.may_fall_back {
                not_offered::remember(remote);
            }
            left(switch, remote, &offer, &reason)
        }
        Err(_) => by_library(switch, fd, socket, (family, bound), remote, offer),
    }
}

/// Connects by a protocol whose bytes this library moves, or leaves the connection to TCP.
fn by_library(
    switch: &Arc<Switch>,
    fd: c_int,
    socket: BorrowedFd<'_>,
    (family, bound): (Family, SocketAddr),
    remote: SocketAddr,
    offer: Offer,
) -> Outcome {
    let source = offer.route.as_ref().and_then(|route| route.source);
    let mut place = None;
    let reserve = Reserve::new(|| {
        // Made before the peer accepts: where it cannot be made, the peer's program would see a
        // connection that ends at once.
        place = Some(Place::prepare(socket)?);
        reserved(socket, bound, remote, source)
    });
    let outcome = switch
        .connect(remote, reserve, offer, DecisionTrace::default())
        .wait();
    match outcome {
        ops::Outcome::Offloaded { protocol, stream } => {
            info!(peer = %remote, protocol, device = stream.device(), "a connection is offloaded");
            Outcome::Offloaded(
                place
                    .ok_or(Errno::NOBUFS)
                    .and_then(|place| place.take_over(fd, family, &protocol, stream)),
            )
        }
        ops::Outcome::Native(reason) => {
            info!(peer = %remote, %reason, "a connection over TCP");
            switch.count_fall_back(&reason);
            Outcome::Kernel(Some(reason.to_string()))
        }
        ops::Outcome::Impossible(reason) => Outcome::Offloaded(Err(refuse(remote, &reason))),
    }
}

/// The connection is TCP's, if that is permitted.
fn left(switch: &Switch, remote: SocketAddr, offer: &Offer, reason: &Reason) -> Outcome {
    if !offer.may_fall_back {
        return Outcome::Offloaded(Err(refuse(remote, reason)));
    }
    info!(peer = %remote, %reason, "a connection over TCP");
    switch.count_fall_back(reason);
    Outcome::Kernel(Some(reason.to_string()))
}

/// Returns the error of the program's call, where TCP is not permitted.
fn refuse(remote: SocketAddr, reason: &Reason) -> Errno {
    info!(peer = %remote, %reason, "a connection fails, for TCP is not permitted");
    reason.errno()
}

/// The address of this end. Its port is reserved with the kernel, so that no TCP socket gets the
/// same.
fn reserved(
    socket: BorrowedFd<'_>,
    bound: SocketAddr,
    remote: SocketAddr,
    source: Option<IpAddr>,
) -> Result<SocketAddr, Errno> {
    let mut local = bound;
    if local.port() == 0 {
        local = bound_now(socket, local)?;
    }
    if local.ip().is_unspecified() {
        let source = source.or_else(|| names::source_toward(remote));
        local.set_ip(source.ok_or(Errno::NETUNREACH)?);
    }
    Ok(canonical(local))
}

/// Binds to a port that the kernel chooses.
fn bound_now(socket: BorrowedFd<'_>, to: SocketAddr) -> Result<SocketAddr, Errno> {
    let name = || names::local_of(socket).ok_or(Errno::NOTSOCK);
    rustix::net::bind(socket, &to)?;
    let (_, mut local) = name()?;
    if local.port() == 0 {
        // By `IP_BIND_ADDRESS_NO_PORT` it takes one when it is connected, which it never will be.
        let fd = socket.as_raw_fd();
        options::set_number(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0)?;
        let bound = rustix::net::bind(socket, &to);
        options::set_number(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)?;
        bound?;
        local = name()?.1;
    }
    Ok(local)
}

/// An address as one host has it: IPv4 in its own form, and this host where none is named.
fn at_one_host(remote: SocketAddr) -> SocketAddr {
    let mut remote = canonical(remote);
    if remote.ip().is_unspecified() {
        remote.set_ip(match remote.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    remote
}

fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        // With its scope.
        IpAddr::V6(_) => address,
    }
}

/// The descriptors of the connection, as the program's number is to show it.
struct Place {
    room: Room,
    flags: Flags,
}

impl Place {
    fn prepare(socket: BorrowedFd<'_>) -> Result<Self, Errno> {
        let native = raise(fcntl_dupfd_cloexec(socket, 0)?)?;
        let flags = Flags {
            nonblocking: fcntl_getfl(socket)?.contains(OFlags::NONBLOCK),
            close_on_exec: fcntl_getfd(socket)?.contains(FdFlags::CLOEXEC),
        };
        let room = Room::of(Options::of(native), flags)?;
        Ok(Self { room, flags })
    }

    /// Puts the connection behind the program's number.
    fn take_over(
        self,
        fd: c_int,
        family: Family,
        protocol: &str,
        stream: Box<dyn OffloadStream>,
    ) -> Result<(), Errno> {
        let (program, connection) = self.room.establish(family, protocol, stream)?;
        connection.named();
        // Sets that watch the number watch the TCP socket behind it. It is taken out of them before
        // the number changes: the TCP socket lives on, and could not be taken out any more.
        let registrations = Registrations::of(fd);
        registrations.withdraw();
        let replaced = numbers::replace(&program, fd, self.flags);
        if replaced.is_ok() {
            // Before a set reports it: a thread that finds the number ready uses it at once, and
            // bytes that it wrote into the bare pair would be signals.
            numbers::place(fd, Entry::Socket(connection));
        }
        registrations.renew();
        leaving::expose_standard(fd);
        replaced
    }
}
