//! Options that only the kernel's TCP supports: a socket with one of them stays on TCP.
//!
//! | Option | Reason |
//! |---|---|
//! | `SO_BINDTODEVICE` | a service of one device would be offered on all, and a connection would use another device |
//! | `SO_MARK` | routes and filters for the mark would not see the packets of this socket |
//! | `SO_ZEROCOPY` | the library does not report which buffers are free again |
//! | `SO_TIMESTAMP` and its variants, `SO_TXTIME` | no packet is stamped or delayed |
//! | `SO_ATTACH_FILTER` | no packet passes through the filter |
//! | `SO_RCVLOWAT` | `poll` of a socket of `AF_UNIX` ignores it |
//! | `SO_PEEK_OFF` | SDP peeks from the first unread byte only |
//! | `TCP_FASTOPEN_CONNECT`, `TCP_SAVE_SYN`, `TCP_REPAIR` | they concern segments |
//! | `TCP_INQ` | a receive does not return the number of the bytes that remain |
//! | `TCP_MD5SIG`, TCP-AO | no offload protocol signs its packets |
//!
//! A socket of `IPPROTO_MPTCP` is not a TCP socket and is not handled by the switch. A socket with
//! a foreign address (`IP_TRANSPARENT`, `IP_FREEBIND`) stays on TCP because it has no route of its
//! own.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{IPPROTO_TCP, SO_BINDTODEVICE, SO_MARK, SOL_SOCKET, TCP_MD5SIG, socklen_t};

use crate::process::real;

/// From `linux/tcp.h`; the C library's header has none of them.
const TCP_MD5SIG_EXT: c_int = 32;
pub(crate) const TCP_INQ: c_int = 36;
const TCP_AO_ADD_KEY: c_int = 38;

/// Options whose value shows whether they are in force: level, name, the value of an option that is
/// not in force, and the name for reports.
const OPTIONS: [(c_int, c_int, c_int, &str); 14] = [
    (SOL_SOCKET, libc::SO_ZEROCOPY, 0, "SO_ZEROCOPY"),
    (SOL_SOCKET, libc::SO_TIMESTAMP, 0, "SO_TIMESTAMP"),
    (SOL_SOCKET, libc::SO_TIMESTAMPNS, 0, "SO_TIMESTAMPNS"),
    (SOL_SOCKET, libc::SO_TIMESTAMPING, 0, "SO_TIMESTAMPING"),
    (SOL_SOCKET, SO_TIMESTAMP_NEW, 0, "SO_TIMESTAMP"),
    (SOL_SOCKET, SO_TIMESTAMPNS_NEW, 0, "SO_TIMESTAMPNS"),
    (SOL_SOCKET, SO_TIMESTAMPING_NEW, 0, "SO_TIMESTAMPING"),
    (SOL_SOCKET, libc::SO_RCVLOWAT, 1, "SO_RCVLOWAT"),
    (SOL_SOCKET, libc::SO_PEEK_OFF, -1, "SO_PEEK_OFF"),
    (IPPROTO_TCP, libc::TCP_REPAIR, 0, "TCP_REPAIR"),
    (
        IPPROTO_TCP,
        libc::TCP_FASTOPEN_CONNECT,
        0,
        "TCP_FASTOPEN_CONNECT",
    ),
    (IPPROTO_TCP, libc::TCP_SAVE_SYN, 0, "TCP_SAVE_SYN"),
    (IPPROTO_TCP, TCP_INQ, 0, "TCP_INQ"),
    (SOL_SOCKET, libc::SO_TXTIME, 0, "SO_TXTIME"),
];

/// From `asm-generic/socket.h`.
const SO_TIMESTAMP_NEW: c_int = 63;
const SO_TIMESTAMPNS_NEW: c_int = 64;
const SO_TIMESTAMPING_NEW: c_int = 65;

/// True once this program has set an option of `OPTIONS` on a socket.
static HAS_SET_OPTION: AtomicBool = AtomicBool::new(false);

/// True once this program has attached a filter to a socket, which no option reports.
static HAS_ATTACHED_FILTER: AtomicBool = AtomicBool::new(false);

/// True once this program has set a key on a socket.
static HAS_SET_KEY: AtomicBool = AtomicBool::new(false);

/// Records that the program has set an option on a kernel socket.
pub(crate) fn on_option_set(level: c_int, name: c_int) {
    if level == IPPROTO_TCP && matches!(name, TCP_MD5SIG | TCP_MD5SIG_EXT | TCP_AO_ADD_KEY) {
        HAS_SET_KEY.store(true, Ordering::Relaxed);
    }
    if OPTIONS.iter().any(|one| (one.0, one.1) == (level, name)) {
        HAS_SET_OPTION.store(true, Ordering::Relaxed);
    }
    if level == SOL_SOCKET && matches!(name, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF) {
        HAS_ATTACHED_FILTER.store(true, Ordering::Relaxed);
    }
}

/// Returns an option that keeps the socket on TCP, if there is one.
pub(crate) fn option_of(socket: BorrowedFd<'_>) -> Option<&'static str> {
    // The kernel does not report which sockets have keys. A program that uses keys communicates
    // with routers, so all its sockets stay on TCP.
    if HAS_SET_KEY.load(Ordering::Relaxed) {
        return Some("TCP_MD5SIG");
    }
    if let Some(name) = option_in_force(socket) {
        return Some(name);
    }
    // The two options below are read for each socket, because a BPF program of the control group
    // may set them on a new socket, as `ip vrf exec` does.
    // A name of 15 bytes and its terminator; without a device the length is zero.
    let mut device = [0_u8; 16];
    if get(socket, SOL_SOCKET, SO_BINDTODEVICE, &mut device).is_some_and(|len| len > 0) {
        return Some("SO_BINDTODEVICE");
    }
    let mut mark = [0; size_of::<u32>()];
    let is_marked =
        get(socket, SOL_SOCKET, SO_MARK, &mut mark).is_some() && u32::from_ne_bytes(mark) != 0;
    is_marked.then_some("SO_MARK")
}

/// Returns an option that keeps the socket on TCP, among those that this program has set on some
/// socket.
fn option_in_force(socket: BorrowedFd<'_>) -> Option<&'static str> {
    if HAS_ATTACHED_FILTER.load(Ordering::Relaxed) {
        return Some("SO_ATTACH_FILTER");
    }
    if !HAS_SET_OPTION.load(Ordering::Relaxed) {
        return None;
    }
    let is_in_force = |&&(level, name, none, _): &&(c_int, c_int, c_int, &str)| {
        let mut value = [0; size_of::<c_int>()];
        get(socket, level, name, &mut value).is_some() && c_int::from_ne_bytes(value) != none
    };
    OPTIONS.iter().find(is_in_force).map(|found| found.3)
}

/// Reads an option and returns its length.
fn get(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &mut [u8]) -> Option<usize> {
    let mut len = socklen_t::try_from(value.len()).ok()?;
    let to = value.as_mut_ptr().cast();
    // SAFETY: the pointer and the length are those of `value`.
    let result = unsafe { real::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut len) };
    (result == 0).then_some(len as usize)
}
