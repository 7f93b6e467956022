//! Which listener is believed to be the service, and which address to be the peer's.
//!
//! Each local user can take an abstract name. The connecting side believes a listener of its own
//! user and of root. A listener of another user must have a TCP socket that listens at the same
//! address, according to `sock_diag(7)`. The accepting side believes a peer's address
//! where it is one of this host, and a privileged port where the peer is root. So a name can claim
//! nothing that its owner could not have over TCP.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ops_netlink::ListeningSocket;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::process::geteuid;

/// How long an answer of the kernel about a listener of another user is used again.
const CACHE_FOR: Duration = Duration::from_secs(1);

/// Users that are believed to listen somewhere, and until when.
static BELIEVED: Mutex<Vec<(SocketAddr, u32, Instant)>> = Mutex::new(Vec::new());

/// The user of a listener whose word is not enough; `Ok` for one that may be the service at
/// `address`.
pub(crate) fn check_listener(socket: BorrowedFd<'_>, address: SocketAddr) -> Result<(), u32> {
    let user = match sockopt::socket_peercred(socket) {
        Ok(credentials) => credentials.uid.as_raw(),
        Err(_) => return Err(u32::MAX),
    };
    if user == 0 || user == geteuid().as_raw() || is_remembered(address, user) {
        return Ok(());
    }
    let listening = ListeningSocket::at(address).unwrap_or_default();
    // A socket that is bound to a device is next to another user's of the same address.
    let stands = listening
        .iter()
        .any(|socket| socket.user == user && socket.device == 0);
    if stands {
        remember(address, user);
    }
    stands.then_some(()).ok_or(user)
}

// The lock is tried and not awaited: in the child of a fork, its holder may not exist.

fn is_remembered(address: SocketAddr, user: u32) -> bool {
    let now = Instant::now();
    BELIEVED.try_lock().is_ok_and(|believed| {
        let mut all = believed.iter();
        all.any(|(at, who, until)| (*at, *who) == (address, user) && now < *until)
    })
}

fn remember(address: SocketAddr, user: u32) {
    let now = Instant::now();
    if let Ok(mut believed) = BELIEVED.try_lock() {
        believed.retain(|(_, _, until)| now < *until);
        believed.push((address, user, now + CACHE_FOR));
    }
}

/// Returns true for a peer whose TCP socket could have this address.
pub(crate) fn may_have(socket: BorrowedFd<'_>, peer: SocketAddr, service: IpAddr) -> bool {
    const PRIVILEGED: u16 = 1024;
    let is_root =
        || sockopt::socket_peercred(socket).is_ok_and(|credentials| credentials.uid.is_root());
    (peer.port() >= PRIVILEGED || is_root()) && (peer.ip() == service || is_own(peer.ip()))
}

/// Returns true for an address of this host.
pub(crate) fn is_own(ip: IpAddr) -> bool {
    if ip.is_loopback() {
        return true;
    }
    let family = match ip {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    // A socket can be bound to own addresses alone.
    socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .is_ok_and(|probe| bind(&probe, &SocketAddr::new(ip, 0)).is_ok())
}
