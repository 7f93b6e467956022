//! Offers a client over TCP, and takes it back.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Weak;

use host::descriptors::{self, raise};
use ops::KernelConnection;
use ops::netlink::{AcceptingEnd, NetStack};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getpeername, getsockname, ipproto,
    socket_with, sockopt,
};
use tracing::info;

use crate::listener::Listener;
use crate::listener::common::Common;
use crate::listener::offers::{Beside, NotOffered, OfferedClient};
use crate::process;
use crate::process::signals_blocked::SignalsBlocked;
use crate::setup::doorkeeper::bridge;
use crate::setup::doorkeeper::judgement::Offered;
use crate::socket::Socket;

/// An offer over TCP.
pub(super) struct TcpOffer {
    /// The listener to which the client has connected.
    of: Beside,
    /// The address of the client's end of the TCP connection; `None` while the connection could
    /// not be made.
    own: Option<SocketAddr>,
    service: SocketAddr,
    /// True once the bytes of the client are moved.
    is_carried: bool,
    /// The connection of a client of a service.
    carried: Weak<Socket>,
}

impl TcpOffer {
    pub(super) fn has_begun(&self) -> bool {
        self.own.is_some()
    }
}

/// Offers a client over TCP. While the TCP connection cannot be made, the client waits for a call
/// of `accept`.
pub(super) fn offer(
    common: &Common,
    of: Beside,
    client: KernelConnection,
    carried: Weak<Socket>,
) -> Result<TcpOffer, NotOffered> {
    let socket = raise(client.socket).map_err(|_| NotOffered::NoDescriptor)?;
    let client = KernelConnection { socket, ..client };
    let tcp = None;
    begin(common, OfferedClient { of, client, tcp }, carried)
}

fn begin(
    common: &Common,
    offered: OfferedClient,
    carried: Weak<Socket>,
) -> Result<TcpOffer, NotOffered> {
    let OfferedClient { of, client, .. } = offered;
    let (peer, service) = (client.peer, client.local);
    // Before the connect, because a call may accept the connection at once.
    common.activity().set_offering(of, true);
    let connected = connect_for(&client);
    match &connected {
        Ok(_) => info!(%peer, %service, "a client that nobody accepts is offered over TCP"),
        Err(error) => info!(%peer, %service, %error, "a client cannot be offered over TCP"),
    }
    let (tcp, own) = match connected {
        Ok((tcp, own)) => (Some(tcp), Some(own)),
        Err(Errno::CONNREFUSED) => {
            common.activity().set_offering(of, false);
            return Err(NotOffered::NoListener);
        }
        Err(_) => (None, None),
    };
    let mut offer = TcpOffer {
        of,
        own,
        service,
        is_carried: false,
        carried,
    };
    let offered = OfferedClient { of, client, tcp };
    if common.offers().add(&offered).is_err() {
        // The kernel has no room for the message, so no call can claim the client.
        common.activity().set_offering(of, false);
        bridge_over(offered, &mut offer);
    }
    Ok(offer)
}

/// Begins to connect to the service, from the address of the client if that is free. An earlier
/// connection between the same addresses may be in TIME-WAIT, which only `connect` notices. The
/// address of a client that has ended is not used: a later client, which waits to be accepted, may
/// have it, and is not accepted while a TCP connection has it.
fn connect_for(client: &KernelConnection) -> Result<(OwnedFd, SocketAddr), Errno> {
    let (peer, service) = (client.peer, client.local);
    let any_port = SocketAddr::new(peer.ip(), 0);
    let tcp = match process::has_hung_up(client.socket.as_fd()) {
        true => connect_from(any_port, service),
        false => match connect_from(peer, service) {
            Err(error) if error != Errno::CONNREFUSED => connect_from(any_port, service),
            tcp => tcp,
        },
    }?;
    let own = SocketAddr::try_from(getsockname(&tcp)?)?;
    Ok((tcp, own))
}

fn connect_from(own: SocketAddr, service: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = match service {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let tcp = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_tcp_nodelay(&tcp, true)?;
    sockopt::set_socket_reuseaddr(&tcp, true)?;
    bind(&tcp, &own)?;
    match connect(&tcp, &service) {
        Ok(()) | Err(Errno::INPROGRESS) => raise(tcp),
        Err(error) => Err(error),
    }
}

/// Returns the state of an offer. The bytes of a client whose connection does not begin without
/// them are moved from now on.
pub(super) fn state(common: &Common, stack: Option<&NetStack>, offer: &mut TcpOffer) -> Offered {
    if !offer.is_carried && !common.activity().is_offering(offer.of) {
        return Offered::Claimed;
    }
    let Some(own) = offer.own else {
        return begin_again(common, offer);
    };
    match stack.map(|stack| stack.accepting_end(own, offer.service)) {
        Some(Ok(AcceptingEnd::Queued | AcceptingEnd::Requested)) => Offered::Queued,
        Some(Ok(AcceptingEnd::Beginning)) => {
            carry(common, offer);
            Offered::Queued
        }
        Some(Ok(AcceptingEnd::Absent)) => {
            if take(common, offer.of).is_some() {
                offer.carried.upgrade().inspect(|it| it.abort_carried());
            }
            Offered::Gone
        }
        // Where the kernel does not answer, the client must not wait for an answer.
        Some(Ok(AcceptingEnd::Accepted) | Err(_)) | None => Offered::Accepted,
    }
}

/// Tries again to make the TCP connection.
fn begin_again(common: &Common, offer: &mut TcpOffer) -> Offered {
    let Some(offered) = take(common, offer.of) else {
        return Offered::Claimed;
    };
    match begin(common, offered, Weak::clone(&offer.carried)) {
        Ok(begun) => {
            *offer = begun;
            Offered::Queued
        }
        Err(_) => Offered::Gone,
    }
}

/// Moves the bytes of a client from now on. If a call has claimed the client meanwhile, there is
/// nothing to do.
pub(super) fn carry(common: &Common, offer: &mut TcpOffer) {
    if offer.has_begun()
        && let Some(offered) = take(common, offer.of)
    {
        bridge_over(offered, offer);
    }
}

fn bridge_over(offered: OfferedClient, offer: &mut TcpOffer) {
    offer.is_carried = true;
    if let Some(tcp) = offered.tcp {
        bridge::begin(offered.client.socket, tcp, Weak::clone(&offer.carried));
    }
}

/// Takes the offered client of a listener.
fn take(common: &Common, of: Beside) -> Option<OfferedClient> {
    let taken = common.offers().take_if(|offered| offered.of == of);
    if taken.is_ok() {
        common.activity().set_offering(of, false);
    }
    taken.ok().flatten()
}

/// Takes the offered client that `is_it` accepts. All others stay offered, and so do clients of a
/// kernel listener that this process has no more.
fn claim_if(listener: &Listener, is_it: impl Fn(&OfferedClient) -> bool) -> Option<OfferedClient> {
    let common = listener.common();
    if !common.activity().is_offering_any() {
        return None;
    }
    let _signals_blocked = SignalsBlocked::begin();
    has_room(2).then_some(())?;
    let has = |of| of == Beside::Service || listener.kernel().is_some();
    let claimed = common.offers().take_if(|it| has(it.of) && is_it(it));
    let claimed = claimed.ok().flatten()?;
    common.activity().set_offering(claimed.of, false);
    Some(claimed)
}

/// The number of descriptors that an offer takes at most at one time.
pub(super) const DESCRIPTORS: usize = 8;

/// Returns true if the process has room for so many descriptors. Without room, a client whose
/// descriptors were taken from a queue would be lost.
///
/// No descriptor is made for the test: it would have the lowest free number for a moment, which a
/// thread of the program may expect to get. The highest numbers are free almost always, so the test
/// costs `count` calls.
pub(super) fn has_room(count: usize) -> bool {
    let highest = RawFd::try_from(descriptors::limit()).unwrap_or(RawFd::MAX);
    let is_free = |number: &RawFd| {
        // SAFETY: the number is not negative, and one call uses it, which returns EBADF if it is
        // not open.
        let number = unsafe { BorrowedFd::borrow_raw(*number) };
        rustix::io::fcntl_getfd(number) == Err(Errno::BADF)
    };
    (0..highest).rev().filter(is_free).take(count).count() == count
}

/// Returns true if the listener cannot show the client: there is no TCP connection, or it waits for
/// room in the listener's queue.
fn is_waiting(offered: &OfferedClient) -> bool {
    offered.tcp.as_ref().is_none_or(|tcp| {
        getpeername(tcp) == Err(Errno::NOTCONN) && sockopt::socket_error(tcp) == Ok(Ok(()))
    })
}

/// Returns the client itself if an accepted TCP connection is that of an offered client. Costs one
/// load unless a client is offered.
pub(crate) fn claim(listener: &Listener, accepted: BorrowedFd<'_>) -> Option<OfferedClient> {
    claim_if(listener, |offered| {
        let peer = getpeername(accepted).ok().flatten();
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        let own = offered.tcp.as_ref().and_then(|tcp| getsockname(tcp).ok());
        let own = own.and_then(|own| SocketAddr::try_from(own).ok());
        own.is_some_and(|own| peer.map(canonical) == Some(canonical(own)))
    })
}

/// Returns an offered client that the TCP listener does not show.
pub(crate) fn claim_waiting(listener: &Listener) -> Option<OfferedClient> {
    claim_if(listener, is_waiting)
}

/// Returns the address without a mapping to IPv6 and without a scope.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}
