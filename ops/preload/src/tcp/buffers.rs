//! The buffer sizes that a program has set on a TCP socket.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{SO_RCVBUF, SO_RCVLOWAT, SO_SNDBUF, SOL_SOCKET};

use crate::tcp::inherited::Value;

/// `SO_BUF_LOCK` (Linux 5.14): the buffers that the program has sized. The `libc` crate lacks it.
const SO_BUF_LOCK: c_int = 72;
const SNDBUF_LOCK: c_int = 1;
const RCVBUF_LOCK: c_int = 2;

/// Returns true for an option that is a buffer size which the program has not set.
pub(super) fn is_sized_by_kernel(tcp: BorrowedFd<'_>, name: c_int) -> bool {
    let lock = match name {
        SO_SNDBUF => SNDBUF_LOCK,
        SO_RCVBUF => RCVBUF_LOCK,
        _ => return false,
    };
    let locked = Value::of(tcp.as_raw_fd(), SOL_SOCKET, SO_BUF_LOCK);
    locked.is_none_or(|locked| locked.as_number() & lock == 0)
}

/// Returns the number of bytes that a socket may keep for its peer, if the program has set it.
pub(crate) fn send_bound(tcp: BorrowedFd<'_>) -> Option<usize> {
    bound(tcp, SO_SNDBUF)
}

/// Returns the number of unread bytes that a socket may hold, if the program has set it.
pub(crate) fn receive_bound(tcp: BorrowedFd<'_>) -> Option<usize> {
    bound(tcp, SO_RCVBUF)
}

/// Returns the number of bytes from which on a socket is readable.
pub(crate) fn receive_low(tcp: BorrowedFd<'_>) -> usize {
    let low = Value::of(tcp.as_raw_fd(), SOL_SOCKET, SO_RCVLOWAT);
    low.and_then(|low| usize::try_from(low.as_number()).ok())
        .unwrap_or(1)
}

/// Returns half of the size that the kernel reports: the kernel doubles the size that a program
/// sets, as room for its bookkeeping, which other protocols keep elsewhere.
fn bound(tcp: BorrowedFd<'_>, name: c_int) -> Option<usize> {
    if is_sized_by_kernel(tcp, name) {
        return None;
    }
    let size = Value::of(tcp.as_raw_fd(), SOL_SOCKET, name)?.as_number();
    usize::try_from(size / 2).ok()
}
