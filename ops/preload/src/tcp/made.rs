//! The descriptors that the program made as TCP sockets.
//!
//! The switch handles TCP sockets, and leaves UDP and MPTCP sockets to the kernel. Reading the
//! protocol from the kernel costs a system call at each `connect`, so the protocol is recorded when
//! the socket is made. The record may be wrong if the descriptor was closed and its number was used
//! again without a hook, which is rare. A UDP socket may then appear in the list of sockets that
//! stay on TCP. It is never offloaded, because the switch first asks the kernel for the TCP state,
//! which a UDP socket does not have.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{AF_INET, AF_INET6, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM};

use crate::tcp::names;

/// The number of descriptors that have a bit: as many as the table has slots.
const NUMBERS: usize = 1 << 20;
const BITS: usize = 64;

/// The descriptors that were TCP sockets when `socket` returned them.
static MADE: [AtomicU64; NUMBERS / BITS] = [const { AtomicU64::new(0) }; NUMBERS / BITS];

fn place(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((MADE.get(number / BITS)?, 1 << (number % BITS)))
}

/// Records the result of a `socket`.
pub(crate) fn record(fd: c_int, family: c_int, kind: c_int, protocol: c_int) {
    let is_tcp = matches!(family, AF_INET | AF_INET6)
        && kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK) == SOCK_STREAM
        && matches!(protocol, 0 | IPPROTO_TCP);
    let Some((word, bit)) = place(fd) else {
        return;
    };
    if (word.load(Ordering::Relaxed) & bit != 0) == is_tcp {
        return;
    }
    match is_tcp {
        true => word.fetch_or(bit, Ordering::Relaxed),
        false => word.fetch_and(!bit, Ordering::Relaxed),
    };
}

/// Records that a descriptor becomes a duplicate of another one.
pub(crate) fn forget(fd: c_int) {
    if let Some((word, bit)) = place(fd)
        && word.load(Ordering::Relaxed) & bit != 0
    {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

/// Returns true for a TCP socket. Asks the kernel about a descriptor that is not recorded.
pub(crate) fn is_tcp(socket: BorrowedFd<'_>, fd: c_int) -> bool {
    let is_made = place(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0);
    is_made || names::is_tcp(socket)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

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
        forget(fd);
        assert!(!is_tcp(udp.as_fd(), fd));
        assert!(is_tcp(tcp.as_fd(), fd), "the kernel is asked");
        forget(-1);
        assert!(is_tcp(tcp.as_fd(), tcp.as_raw_fd()));
    }
}
