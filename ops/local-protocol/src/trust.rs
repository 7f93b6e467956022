//! Checks that a listener is the service, and that a peer may have its address.
//!
//! Each local user can bind an abstract name. The connecting side trusts a listener of its own user
//! and of root. A listener of another user must have a TCP socket that listens at the same address,
//! according to `sock_diag(7)`. In a user namespace, the kernel reports one number for all users
//! that the namespace does not map, so a listener with this number is not trusted.
//!
//! The accepting side accepts a peer's address if it belongs to this host, and a privileged port if
//! the peer is root. So no name can claim an address that its owner could not use over TCP.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ops::is_one_user;
use ops::netlink::ListeningSocket;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::process::geteuid;

/// The time for which the kernel's answer about a listener of another user is cached.
const CACHE_FOR: Duration = Duration::from_secs(1);

/// The cached answers: an address, the user that listens there, and the end of validity.
static TRUSTED: Mutex<Vec<(SocketAddr, u32, Instant)>> = Mutex::new(Vec::new());

/// The reason why a listener is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// The kernel does not report the owner, or this user namespace does not map the owner.
    Unknown,
    /// This user does not listen at the address.
    Other(u32),
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("its name belongs to a user that is not known here"),
            Self::Other(user) => write!(
                f,
                "its name belongs to user {user}, who does not listen at the port"
            ),
        }
    }
}

/// Returns `Ok` if the listener may be the service at `address`.
pub(crate) fn check_listener(socket: BorrowedFd<'_>, address: SocketAddr) -> Result<(), Distrust> {
    let credentials = sockopt::socket_peercred(socket).map_err(|_| Distrust::Unknown)?;
    let user = credentials.uid.as_raw();
    if is_remembered(address, user) {
        return Ok(());
    }
    if !is_one_user(user) {
        return Err(Distrust::Unknown);
    }
    if user == 0 || user == geteuid().as_raw() {
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
    is_service.then_some(()).ok_or(Distrust::Other(user))
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::process::Command;

    use ops::KernelSockets as _;
    use rustix::net::{SocketAddrUnix, connect, getsockname};

    use super::*;

    /// The variable with which the test runs itself in a user namespace that maps no user.
    const INSIDE: &str = "OPS_TEST_UNMAPPED";

    #[test]
    fn a_listener_of_a_user_that_is_not_mapped_is_not_trusted() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = tcp.local_addr().unwrap();
        let listener = crate::connection::Sockets
            .listen(tcp.as_fd(), service.into(), 1)
            .unwrap();
        let name = SocketAddrUnix::try_from(getsockname(&listener).unwrap()).unwrap();
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = socket_with(unix, stream, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &name).unwrap();
        let checked = check_listener(socket.as_fd(), service);
        if std::env::var_os(INSIDE).is_some() {
            // The listener's user is this one, but has the number of all users of the host.
            assert_eq!(checked, Err(Distrust::Unknown));
            return;
        }
        assert_eq!(checked, Ok(()));
        let inside = Command::new("unshare")
            .arg("--user")
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "trust::tests::a_listener_of_a_user_that_is_not_mapped_is_not_trusted",
            ])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let (stdout, stderr) = (
            String::from_utf8_lossy(&inside.stdout),
            String::from_utf8_lossy(&inside.stderr),
        );
        if stderr.contains("unshare failed") {
            // The line is written past the capture of the test harness.
            let why = b"\nNOT RUN: this host permits no user namespace\n";
            std::io::stderr().write_all(why).unwrap();
            return;
        }
        assert!(inside.status.success(), "{stdout}{stderr}");
        assert!(stdout.contains("1 passed"), "{stdout}");
    }
}
