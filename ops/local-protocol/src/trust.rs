//! Checks that a listener is the service, and that a peer may have its address.
//!
//! Each local user can bind an abstract name. The connecting side trusts a listener of its own user
//! and of root. A listener of another user must have a TCP socket that listens at the same address,
//! according to `sock_diag(7)`. The accepting side accepts a peer's address if it belongs to this
//! host, and a privileged port if the peer is root. So no name can claim an address that its owner
//! could not use over TCP.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ops::netlink::ListeningSocket;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::process::geteuid;

/// The time for which the kernel's answer about a listener of another user is cached.
const CACHE_FOR: Duration = Duration::from_secs(1);

/// The cached answers: an address, the user that listens there, and the end of validity.
static TRUSTED: Mutex<Vec<(SocketAddr, u32, Instant)>> = Mutex::new(Vec::new());

/// Returns `Ok` if the listener may be the service at `address`, else the user id of its owner.
pub(crate) fn check_listener(socket: BorrowedFd<'_>, address: SocketAddr) -> Result<(), u32> {
    let user = match sockopt::socket_peercred(socket) {
        Ok(credentials) => credentials.uid.as_raw(),
        Err(_) => return Err(u32::MAX),
    };
    if user == 0 || user == geteuid().as_raw() || is_remembered(address, user) {
        return Ok(());
    }
    let listening = ListeningSocket::at(address).unwrap_or_default();
    // A socket that is bound to a device may coexist with another user's socket at the same
    // address.
    let is_service = listening
        .iter()
        .any(|socket| socket.user == user && socket.device == 0);
    if is_service {
        remember(address, user);
    }
    is_service.then_some(()).ok_or(user)
}

// The lock is only tried, because in the child of a fork its holder may not exist.

fn is_remembered(address: SocketAddr, user: u32) -> bool {
    let now = Instant::now();
    TRUSTED.try_lock().is_ok_and(|trusted| {
        let mut all = trusted.iter();
        all.any(|(at, who, until)| (*at, *who) == (address, user) && now < *until)
    })
}

fn remember(address: SocketAddr, user: u32) {
    let now = Instant::now();
    if let Ok(mut trusted) = TRUSTED.try_lock() {
        trusted.retain(|(_, _, until)| now < *until);
        trusted.push((address, user, now + CACHE_FOR));
    }
}

/// Returns true for a peer whose TCP socket could have this address. `service` is the address of
/// the service, which belongs to this host.
pub(crate) fn may_use_address(socket: BorrowedFd<'_>, peer: SocketAddr, service: IpAddr) -> bool {
    const PRIVILEGED: u16 = 1024;
    let is_root =
        || sockopt::socket_peercred(socket).is_ok_and(|credentials| credentials.uid.is_root());
    (peer.port() >= PRIVILEGED || is_root()) && (peer.ip() == service || is_own(peer))
}

/// Returns true for an address of this host, whatever its port is.
pub(crate) fn is_own(mut address: SocketAddr) -> bool {
    if address.ip().is_loopback() {
        return true;
    }
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    address.set_port(0);
    // A socket can be bound to an address of this host only. A link-local address keeps its scope,
    // without which the kernel refuses it.
    socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .is_ok_and(|probe| bind(&probe, &address).is_ok())
}
