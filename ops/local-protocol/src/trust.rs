//! Checks that a listener of this protocol belongs to the user of the TCP listener.
//!
//! Each local user can bind an abstract name. The connecting side trusts the listener of the user
//! whose TCP listener the kernel would have chosen ([`crate::admission`]), and of root. In a user
//! namespace, the kernel reports one number for all users that the namespace does not map, so a
//! listener with this number is not trusted.

use std::fmt;
use std::os::fd::BorrowedFd;

use host::peer::PeerCredentials;
use ops::is_one_user;
use rustix::process::geteuid;

/// The reason why a listener is not trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Distrust {
    /// The kernel does not report the owner, or this user namespace does not map the owner.
    Unknown,
    /// This user is not the one whose TCP socket listens.
    Other(u32),
    /// The process is not in this PID namespace.
    OtherPidSpace,
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("its name belongs to a user that is not known here"),
            Self::Other(user) => write!(
                f,
                "its name belongs to user {user}, who does not listen at the port"
            ),
            Self::OtherPidSpace => f.write_str("its process is in another PID namespace"),
        }
    }
}

/// Returns `Ok` if the listener to which `socket` is connected belongs to `user`, whose TCP socket
/// listens at the address, and is visible if that is demanded.
pub(crate) fn check_owner(
    socket: BorrowedFd<'_>,
    user: u32,
    must_be_visible: bool,
) -> Result<(), Distrust> {
    let owner = user_of_peer(socket).ok_or(Distrust::Unknown)?;
    if must_be_visible && !is_visible(socket) {
        return Err(Distrust::OtherPidSpace);
    }
    if owner == user || owner == 0 {
        Ok(())
    } else {
        Err(Distrust::Other(owner))
    }
}

/// Returns true if the peer is a process of this user, or of root.
pub(crate) fn is_trusted(socket: BorrowedFd<'_>) -> bool {
    user_of_peer(socket).is_some_and(|user| user == 0 || user == geteuid().as_raw())
}

/// Returns true if the peer's process is, or was, in this PID namespace or in one nested in it.
pub(crate) fn is_visible(socket: BorrowedFd<'_>) -> bool {
    PeerCredentials::of(socket).is_ok_and(|peer| peer.pid.is_some())
}

/// Returns the user of the peer, or `None` if the kernel does not identify that user.
fn user_of_peer(socket: BorrowedFd<'_>) -> Option<u32> {
    let credentials = PeerCredentials::of(socket).ok()?;
    Some(credentials.uid).filter(|user| is_one_user(*user))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::process::Command;

    use ops::KernelSockets as _;
    use ops::netlink::NetStack;
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getsockname, socket_with,
    };

    use super::*;

    /// The variable with which the test runs itself in a user namespace that maps no user.
    const INSIDE: &str = "OPS_TEST_UNMAPPED";

    #[test]
    fn a_listener_of_a_user_that_is_not_mapped_is_not_trusted() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = tcp.local_addr().unwrap();
        let stack = NetStack::open().unwrap();
        let listener = crate::connection::Sockets
            .listen(tcp.as_fd(), service.into(), 1, &[], Some(&stack))
            .unwrap();
        let name = SocketAddrUnix::try_from(getsockname(&listener).unwrap()).unwrap();
        let (unix, stream) = (AddressFamily::UNIX, SocketType::STREAM);
        let socket = socket_with(unix, stream, SocketFlags::CLOEXEC, None).unwrap();
        connect(&socket, &name).unwrap();
        let checked = check_owner(socket.as_fd(), geteuid().as_raw(), false);
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
