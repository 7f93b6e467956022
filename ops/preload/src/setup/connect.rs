//! Connecting: an offload protocol first, within its bound, then TCP if no protocol connects.
//!
//! Until a protocol has connected, the program's descriptor is the TCP socket that the program
//! made, so falling back to TCP only takes the kernel's `connect`.
//!
//! The socket is unchanged until the peer has answered that it offers the service. Then the socket
//! is bound to a port, because both ends must know the port before they connect. A bound port
//! belongs to one socket, while TCP shares a port among connections to different peers. Linux lets
//! a socket release its port only after it was connected, and `connect` with `AF_UNSPEC` does not
//! help. So a socket that falls back after its peer's answer keeps the port, and such a peer is not
//! asked again for some time (`ops::Switch`).

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use host::descriptors::{OwnDescriptor, raise};
use host::stand_in::Flags;
use libc::{IP_BIND_ADDRESS_NO_PORT, IPPROTO_IP};
use ops::observe::ReasonText;
use ops::rules::{Role, Rule};
use ops::{
    DecisionTrace, Intent, KernelTarget, Offer, OffloadStream, Plan, Reason, Reserve, Switch, Wish,
};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use tracing::info;
use tracing::level_filters::LevelFilter;

use super::background::{self, Subject};
use super::not_offered;
use crate::fd;
use crate::process::per_process::PerProcess;
use crate::process::{guard, past_library};
use crate::sharing::exposing;
use crate::socket::room::Room;
use crate::tcp::carried::Carried;
use crate::tcp::names::{self, Family};
use crate::tcp::options::{self, Options};
use crate::tcp::tcp_only;
use crate::{local, switch};

/// The time that a call on a non-blocking socket waits for the answer of the peer's port mapper. In
/// most networks the answer takes less. If the service is not offered, the program's socket is then
/// never replaced by a pair.
const BRIEFLY: Duration = Duration::from_millis(2);

/// The result of the program's `connect`.
pub(crate) enum Outcome {
    /// The caller must call the kernel's `connect`. The reason is present if the switch decided so.
    Kernel(Option<Reason>),
    /// The result of an offload protocol, or the error if neither a protocol nor TCP may carry the
    /// socket.
    Offloaded(Result<(), Errno>),
}

pub(crate) fn connect(fd: c_int, remote: SocketAddr) -> Outcome {
    let _inside = guard::enter();
    if fd < 0 {
        return Outcome::Kernel(None);
    }
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let named = remote;
    let remote = to_single_host(named);
    if let Some(outcome) = connect_by_kernel(fd, socket, remote) {
        return outcome;
    }
    // Only for a TCP socket that is not connected yet does the switch decide.
    let Some((family, bound)) = of_connectable(socket, named) else {
        return Outcome::Kernel(None);
    };
    let Some(switch) = switch::switch() else {
        return without_switch(fd, remote, None);
    };
    let intent = Intent {
        role: Role::Connect,
        address: remote,
        from: (!bound.ip().is_unspecified()).then(|| canonical(bound)),
        tcp_only: tcp_only::option_of(socket),
        receive_bound: Carried::receive_bound(socket),
        wish: fd::wish_of(fd),
    };
    let mut offer = match switch.plan(&intent, &mut DecisionTrace::default()) {
        Plan::Offload(offer) => offer,
        Plan::Native(reason) => {
            info!(peer = %remote, %reason, "a connection uses TCP");
            return Outcome::Kernel(Some(reason));
        }
        Plan::Impossible(reason) => return Outcome::Offloaded(Err(refuse(remote, &reason))),
    };
    if let Some(reason) = reason_against(socket) {
        return fall_back(remote, &offer, &reason);
    }
    let Ok(flags) = local::flags_of(socket) else {
        return Outcome::Kernel(None);
    };
    let target = KernelTarget {
        service: remote,
        bound,
        is_ipv6: family == Family::V6,
        flags,
    };
    if Carried::has_reset(socket) {
        offer.protocols.retain(|it| it.sockets().kernel().is_none());
        if offer.protocols.is_empty() {
            return fall_back(remote, &offer, &Reason::Option("SO_LINGER"));
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
            fall_back(remote, &offer, &reason)
        }
        Err(_) => connect_through_library(switch, fd, socket, (family, bound), remote, offer),
    }
}

/// Returns family and address of an unconnected socket that can connect to an address of this form.
fn of_connectable(socket: BorrowedFd<'_>, named: SocketAddr) -> Option<(Family, SocketAddr)> {
    names::of_unconnected(socket).filter(|(_, bound)| ops::is_destination(socket, *bound, named))
}

/// Returns the reason if no protocol may replace the program's socket.
fn reason_against(socket: BorrowedFd<'_>) -> Option<Reason> {
    if fd::has_duplicate(socket) {
        Some(Reason::Duplicated)
    } else if switch::is_elsewhere(socket) {
        Some(Reason::Namespace)
    } else {
        None
    }
}

/// A reason for TCP that depends on the peer's address alone.
#[derive(Debug, Clone, Copy)]
enum AddressReason {
    /// A rule keeps the address on TCP.
    Rule(&'static Rule),
    /// No program offered the service a moment ago.
    NotOffered,
}

impl AddressReason {
    /// Returns the reason if there is one. Makes no system call.
    fn of(fd: c_int, remote: SocketAddr) -> Option<Self> {
        let rule = switch::made().and_then(|switch| switch.rule_for_tcp(remote));
        // A program that names a stack is not connected over TCP without a decision.
        let not_offered = || {
            let is_recent = not_offered::is_recent(remote) && fd::wish_of(fd) == Wish::None;
            is_recent.then_some(Self::NotOffered)
        };
        rule.map(Self::Rule).or_else(not_offered)
    }

    fn reason(self) -> Reason {
        match self {
            Self::Rule(rule) => Reason::Rule { line: rule.line },
            Self::NotOffered => Reason::NotOffered,
        }
    }

    fn text(self) -> &'static ReasonText {
        // Threads and handlers that need the text at once do not wait for each other.
        static NOT_OFFERED: PerProcess<ReasonText> = PerProcess::new();
        match self {
            Self::Rule(rule) => &rule.reason,
            Self::NotOffered => NOT_OFFERED.get_or_init(|| ReasonText::of(Reason::NotOffered)),
        }
    }
}

/// Returns the peer and the reason if the kernel connects a TCP socket of the program, whatever
/// the state and the options of the socket are. `None`: call [`connect`]. Makes no system call and
/// waits for no lock, so a program that stays on TCP pays little for each connection.
pub(crate) fn peer_on_tcp(
    fd: c_int,
    remote: SocketAddr,
) -> Option<(SocketAddr, &'static ReasonText)> {
    let is_simple = fd::is_with_kernel(fd) && fd::is_made_as_tcp(fd) && !guard::is_inside();
    if !is_simple || LevelFilter::current() >= LevelFilter::INFO {
        return None;
    }
    let remote = to_single_host(remote);
    Some((remote, AddressReason::of(fd, remote)?.text()))
}

/// Returns the outcome if the kernel connects the socket whatever its state and options are: it is
/// not a TCP socket, there is an [`AddressReason`], or the process has no memory.
fn connect_by_kernel(fd: c_int, socket: BorrowedFd<'_>, remote: SocketAddr) -> Option<Outcome> {
    if !names::is_tcp(socket) {
        return Some(Outcome::Kernel(None));
    }
    let reason = match host::reserve::is_short() {
        true => {
            return Some(without_switch(
                fd,
                remote,
                Some(Reason::Failed(Errno::NOMEM)),
            ));
        }
        false => AddressReason::of(fd, remote)?.reason(),
    };
    // A program may call `connect` again to find out whether the connection was made.
    if !fd::is_listed(fd) {
        info!(peer = %remote, %reason, "a connection uses TCP");
    }
    Some(Outcome::Kernel(Some(reason)))
}

/// Connects over TCP because this process cannot decide, or refuses a socket that names offload
/// protocols.
fn without_switch(fd: c_int, remote: SocketAddr, reason: Option<Reason>) -> Outcome {
    match fd::wish_of(fd) {
        Wish::None | Wish::Kernel => {
            if let Some(reason) = &reason {
                info!(peer = %remote, %reason, "a connection uses TCP");
            }
            Outcome::Kernel(reason)
        }
        Wish::Offload | Wish::Protocol(_) => {
            let reason = reason.unwrap_or(Reason::NoProtocol);
            Outcome::Offloaded(Err(refuse(remote, &reason)))
        }
    }
}

/// Connects through a protocol whose bytes this library moves, or falls back to TCP.
fn connect_through_library(
    switch: &Arc<Switch>,
    fd: c_int,
    socket: BorrowedFd<'_>,
    (family, bound): (Family, SocketAddr),
    remote: SocketAddr,
    offer: Offer,
) -> Outcome {
    let source = offer.route.as_ref().and_then(|route| route.source);
    let shown = background::flags_of(socket);
    // A pair that shows a connecting socket takes bytes that are sent past the library, and TCP
    // would not get them.
    if shown.nonblocking && !past_library::is_used_now() {
        let reserve = move |tcp: BorrowedFd<'_>| reserve_port(tcp, bound, remote, source);
        return connect_in_background(switch, fd, socket, family, remote, offer, reserve);
    }
    let mut prepared = None;
    let reserve = Reserve::new(|| {
        // The pair is made before the peer accepts. If making it failed afterwards, the peer's
        // program would see a connection that ends at once.
        prepared = Some(Prepared::of(socket)?);
        reserve_port(socket, bound, remote, source)
    });
    let outcome = switch
        .connect(remote, reserve, offer, DecisionTrace::default())
        .wait();
    conclude(fd, family, remote, outcome, || {
        prepared.ok_or(Errno::NOBUFS)
    })
}

/// Connects through a protocol as [`connect_through_library`] does, without blocking the program.
fn connect_in_background(
    switch: &Arc<Switch>,
    fd: c_int,
    socket: BorrowedFd<'_>,
    family: Family,
    remote: SocketAddr,
    offer: Offer,
    reserve: impl Fn(BorrowedFd<'_>) -> Result<SocketAddr, Errno> + Send + 'static,
) -> Outcome {
    let may_fall_back = offer.may_fall_back;
    let begun = fcntl_dupfd_cloexec(socket, 0)
        .and_then(raise)
        .and_then(|tcp| {
            let tcp = Arc::new(OwnDescriptor::from(tcp));
            let held = Arc::clone(&tcp);
            let reserve = Reserve::new(move || reserve(held.get()?));
            let mut connecting = switch.connect(remote, reserve, offer, DecisionTrace::default());
            if let Some(outcome) = connecting.wait_briefly(BRIEFLY) {
                let prepared = || Prepared::of(socket);
                return Ok(conclude(fd, family, remote, outcome, prepared));
            }
            let of = Subject {
                fd,
                family,
                remote,
                tcp,
            };
            background::begin(connecting, of, background::flags_of(socket))?;
            Ok(Outcome::Offloaded(Err(Errno::INPROGRESS)))
        });
    begun.unwrap_or_else(|errno| {
        let reason = Reason::Failed(errno);
        let outcome = match may_fall_back {
            true => ops::Outcome::Native(reason),
            false => ops::Outcome::Impossible(reason),
        };
        conclude(fd, family, remote, outcome, || Err(errno))
    })
}

/// Does what the outcome of an attempt demands.
fn conclude(
    fd: c_int,
    family: Family,
    remote: SocketAddr,
    outcome: ops::Outcome,
    prepared: impl FnOnce() -> Result<Prepared, Errno>,
) -> Outcome {
    match outcome {
        ops::Outcome::Offloaded { protocol, stream } => {
            info!(peer = %remote, protocol, device = stream.device(), "a connection is offloaded");
            let done = prepared().and_then(|it| it.take_over(fd, family, &protocol, stream));
            Outcome::Offloaded(done)
        }
        ops::Outcome::Native(reason) => {
            info!(peer = %remote, %reason, "a connection uses TCP");
            Outcome::Kernel(Some(reason))
        }
        ops::Outcome::Impossible(reason) => Outcome::Offloaded(Err(refuse(remote, &reason))),
    }
}

/// Falls back to TCP, if that is permitted.
fn fall_back(remote: SocketAddr, offer: &Offer, reason: &Reason) -> Outcome {
    if !offer.may_fall_back {
        return Outcome::Offloaded(Err(refuse(remote, reason)));
    }
    info!(peer = %remote, %reason, "a connection uses TCP");
    Outcome::Kernel(Some(reason.clone()))
}

/// Returns the error of `connect` when TCP is not permitted.
fn refuse(remote: SocketAddr, reason: &Reason) -> Errno {
    info!(peer = %remote, %reason, "a connection fails because TCP is not permitted");
    reason.errno()
}

/// Returns the local address. Its port is bound, so that no other TCP socket uses the port.
fn reserve_port(
    socket: BorrowedFd<'_>,
    bound: SocketAddr,
    remote: SocketAddr,
    source: Option<IpAddr>,
) -> Result<SocketAddr, Errno> {
    let mut local = bound;
    if local.port() == 0 {
        local = bind_now(socket, local)?;
    }
    if local.ip().is_unspecified() {
        let source = source.or_else(|| names::source_toward(remote));
        local.set_ip(source.ok_or(Errno::NETUNREACH)?);
    }
    Ok(canonical(local))
}

/// Binds the socket to a port that the kernel chooses.
fn bind_now(socket: BorrowedFd<'_>, to: SocketAddr) -> Result<SocketAddr, Errno> {
    let name = || names::local_of(socket).ok_or(Errno::NOTSOCK);
    rustix::net::bind(socket, &to)?;
    let (_, mut local) = name()?;
    if local.port() == 0 {
        // With `IP_BIND_ADDRESS_NO_PORT` the kernel chooses the port at `connect`, which is never
        // called here.
        let fd = socket.as_raw_fd();
        options::set_number(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 0)?;
        let bound = rustix::net::bind(socket, &to);
        options::set_number(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)?;
        bound?;
        local = name()?.1;
    }
    Ok(local)
}

/// Converts an IPv4-mapped address to IPv4, and the unspecified address to loopback.
pub(crate) fn to_single_host(remote: SocketAddr) -> SocketAddr {
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
        // The IPv6 address keeps its scope id.
        IpAddr::V6(_) => address,
    }
}

/// The prepared descriptors of a connection, and the flags of the program's descriptor.
struct Prepared {
    room: Room,
    flags: Flags,
}

impl Prepared {
    fn of(socket: BorrowedFd<'_>) -> Result<Self, Errno> {
        let native = raise(fcntl_dupfd_cloexec(socket, 0)?)?;
        let flags = background::flags_of(socket);
        let room = Room::of(Options::of(native), flags)?;
        Ok(Self { room, flags })
    }

    /// Replaces the program's TCP socket with the connection, under the same descriptor number.
    fn take_over(
        self,
        fd: c_int,
        family: Family,
        protocol: &str,
        stream: Box<dyn OffloadStream>,
    ) -> Result<(), Errno> {
        let (program, connection) = self.room.establish(family, protocol, stream)?;
        connection.add_number();
        // Without an entry, a thread would write its bytes into the socket pair, which carries
        // signal bytes only.
        let insert = || fd::store(fd, connection);
        let replaced = fd::change_object(&program, fd, self.flags, insert);
        exposing::expose_new(fd);
        replaced
    }
}
