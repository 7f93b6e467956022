//! The answers of a socket that connects without blocking, until its connection is decided.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::socklen_t;
use rustix::io::Errno;

use crate::process::errno::ToC as _;
use crate::process::{guard, is_nonblocking};
use crate::setup::background;
use crate::socket::undecided::Undecided;
use crate::table;

/// Returns the error of a call that moves bytes. `None`: the connection is decided. A call on a
/// blocking descriptor waits for that.
pub(super) fn error_of_transfer(undecided: &dyn Undecided, fd: BorrowedFd<'_>) -> Option<Errno> {
    if !is_nonblocking(fd) {
        undecided.settle();
    }
    undecided_error(undecided, Errno::AGAIN, Errno::NOTCONN)
}

/// Returns the error of a second `connect`. `None`: the connection is decided.
pub(super) fn error_of_connect(undecided: &dyn Undecided, fd: c_int) -> Option<Errno> {
    let _inside = guard::enter();
    // SAFETY: the table has an entry for the number, so it is not negative.
    if !is_nonblocking(unsafe { BorrowedFd::borrow_raw(fd) }) {
        undecided.settle();
    }
    let failed = background::take_failed(fd);
    failed.or_else(|| undecided_error(undecided, Errno::ALREADY, Errno::CONNABORTED))
}

/// Returns the pending error of an attempt that has failed, or else `failed`; `trying` while it is
/// in progress.
fn undecided_error(undecided: &dyn Undecided, trying: Errno, failed: Errno) -> Option<Errno> {
    if !undecided.with_tcp(&mut |_| ()) {
        return None;
    }
    Some(match undecided.take_error() {
        None => trying,
        Some(0) => failed,
        Some(error) => Errno::from_raw_os_error(error),
    })
}

/// Makes a call about names or options on the TCP socket that keeps them. It fails with `EBADF` if
/// the program has closed the number of that socket. `None`: the connection is decided.
pub(super) fn by_tcp(fd: c_int, call: impl Fn(c_int) -> c_int) -> Option<c_int> {
    let undecided = table::undecided(fd)?;
    let mut result = None;
    let is_undecided = undecided.with_tcp(&mut |tcp| result = Some(call(tcp.as_raw_fd())));
    result.or_else(|| is_undecided.then(|| Err::<(), _>(Errno::BADF).to_c()))
}

/// Writes the value of `SO_ERROR`, whose size is `len`.
///
/// # Safety
/// `value` has `len` bytes.
pub(super) unsafe fn write_error(fd: c_int, value: *mut c_void, len: socklen_t) {
    let error = table::undecided(fd).and_then(|undecided| undecided.take_error());
    if let Some(error) = error
        && len as usize >= size_of::<c_int>()
    {
        // SAFETY: there is room for the number, and the write permits any alignment.
        unsafe { value.cast::<c_int>().write_unaligned(error) };
    }
}
