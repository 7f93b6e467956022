//! The descriptors that the program made as TCP sockets.
//!
//! The switch handles TCP sockets, and leaves UDP and MPTCP sockets to the kernel. Reading the
//! protocol from the kernel costs a system call at each `connect`, so the protocol is recorded when
//! the socket is made. The record may be wrong if the descriptor was closed and its number was used
//! again without a hook, which is rare. A UDP socket may then appear in the list of sockets that
//! stay on TCP. It is never offloaded, because the switch first asks the kernel for the TCP state,
//! which a UDP socket does not have.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use host::descriptors::Identity;
use libc::{AF_INET, AF_INET6, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};

use crate::marks::{self, Mark};
use crate::tcp::names;

/// Returns true if a hooked `socket` of this process made the descriptor.
pub(crate) fn is_made(fd: c_int) -> bool {
    marks::has(fd, Mark::MadeAsTcp)
}

/// Records the result of a `socket`.
pub(crate) fn record(fd: c_int, family: c_int, kind: c_int, protocol: c_int) {
    let is_tcp = matches!(family, AF_INET | AF_INET6)
        && kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK) == SOCK_STREAM
        && matches!(protocol, 0 | IPPROTO_TCP);
    marks::begin(fd, is_tcp);
}

/// Records that the descriptor `made` becomes a duplicate of `fd`.
pub(crate) fn duplicate(fd: c_int, made: c_int) {
    let is_tcp = marks::has(fd, Mark::MadeAsTcp) || marks::has(fd, Mark::Duplicated);
    marks::set(made, Mark::MadeAsTcp, false);
    marks::set(made, Mark::Duplicated, is_tcp);
    marks::set(made, Mark::Shared, is_tcp && marks::has(fd, Mark::Shared));
    if is_tcp {
        marks::set(fd, Mark::Duplicated, true);
    }
}

/// Records that another process gets a copy of a descriptor.
pub(crate) fn share(fd: c_int) {
    marks::set(fd, Mark::Shared, true);
}

/// Records that the child of a `fork` gets a copy of all descriptors.
pub(crate) fn share_all() {
    for fd in marks::numbers() {
        if marks::has(fd, Mark::MadeAsTcp) || marks::has(fd, Mark::Duplicated) {
            share(fd);
        }
    }
}

/// Returns true if another process may have the socket, because it existed at a `fork` or was
/// passed on. Such a process does not know the listeners of the protocols next to the socket, so it
/// would not receive their clients.
pub(crate) fn is_shared(fd: c_int) -> bool {
    marks::has(fd, Mark::Shared)
}

/// Returns true if another descriptor of this process refers to the socket. A connection or
/// listener that replaces the socket under one number would not be found under the other. The copy
/// of the descriptor in another process is not found; see [`is_shared`].
pub(crate) fn has_duplicate(socket: BorrowedFd<'_>) -> bool {
    let own = socket.as_raw_fd();
    if !marks::has(own, Mark::Duplicated) {
        return false;
    }
    let (Ok(identity), Ok(all)) = (Identity::of(socket), std::fs::read_dir("/proc/self/fd")) else {
        return true;
    };
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers
        .filter(|number| *number != own)
        .any(|number| Identity::of_number(number) == Ok(identity))
}

/// Returns true for a TCP socket. Asks the kernel about a descriptor that is not recorded.
pub(crate) fn is_tcp(socket: BorrowedFd<'_>, fd: c_int) -> bool {
    marks::has(fd, Mark::MadeAsTcp) || names::is_tcp(socket)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::net::{AddressFamily, SocketType, socket};

    use super::*;

    #[test]
    fn a_number_is_recorded_anew_for_each_socket() {
        let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let udp = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        // A number that no test opens.
        let fd = 1_000_000;
        for (family, kind, protocol, is_made) in [
            (AF_INET, SOCK_STREAM, 0, true),
            (AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP, true),
            (AF_INET, libc::SOCK_DGRAM, 0, false),
            (AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0, true),
            (AF_INET, SOCK_STREAM, libc::IPPROTO_MPTCP, false),
            (libc::AF_UNIX, SOCK_STREAM, 0, false),
        ] {
            record(fd, family, kind, protocol);
            assert_eq!(is_tcp(udp.as_fd(), fd), is_made, "{family} {kind}");
        }
        record(fd, AF_INET, SOCK_STREAM, 0);
        duplicate(-1, fd);
        assert!(!is_tcp(udp.as_fd(), fd));
        assert!(is_tcp(tcp.as_fd(), fd), "the kernel is asked");
        duplicate(fd, -1);
        assert!(is_tcp(tcp.as_fd(), tcp.as_raw_fd()));
    }

    #[test]
    fn a_socket_is_shared_from_a_fork_to_the_next_socket_of_its_number() {
        // Numbers that no test opens.
        let (fd, other, passed) = (1_000_100, 1_000_101, 1_000_102);
        record(fd, AF_INET, SOCK_STREAM, 0);
        record(other, AF_INET, libc::SOCK_DGRAM, 0);
        share_all();
        assert!(is_shared(fd) && !is_shared(other));
        duplicate(fd, other);
        assert!(is_shared(other));
        record(fd, AF_INET, SOCK_STREAM, 0);
        record(other, AF_INET, SOCK_STREAM, 0);
        assert!(!is_shared(fd) && !is_shared(other));
        share(passed);
        assert!(is_shared(passed) && !is_shared(-1));
    }

    #[test]
    fn a_socket_has_a_duplicate_until_that_is_closed() {
        let tcp = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        record(tcp.as_raw_fd(), AF_INET, SOCK_STREAM, 0);
        assert!(!has_duplicate(tcp.as_fd()));
        let other = tcp.try_clone().unwrap();
        duplicate(tcp.as_raw_fd(), other.as_raw_fd());
        assert!(has_duplicate(tcp.as_fd()) && has_duplicate(other.as_fd()));
        drop(tcp);
        assert!(!has_duplicate(other.as_fd()), "the socket was moved");
        record(other.as_raw_fd(), AF_INET, SOCK_STREAM, 0);
    }
}
