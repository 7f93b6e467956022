//! Sends to a peer that has closed the connection.
//!
//! A TCP peer answers the first bytes after its close by a reset. So the first call succeeds, and
//! the next one fails. The kernel refuses already the first call on a socket of `AF_UNIX`. A call
//! that the kernel does not refuse makes no further system call.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use libc::ssize_t;
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;

use super::ends::{self, Event, Sending};
use super::readiness;
use crate::process::{self, errno, guard, restrictions};

/// The maximum number of bytes that the kernel sends in a call.
const SENT_MAX: usize = 0x7fff_f000;

/// Sends `len` bytes on a local connection by `call`, which takes the flags of the call. In a
/// process that has restricted its system calls, the kernel's error is the result.
#[inline]
pub(crate) fn send(
    fd: c_int,
    flags: c_int,
    len: impl FnOnce() -> usize,
    call: impl FnOnce(c_int) -> ssize_t,
) -> ssize_t {
    let sent = call(flags | libc::MSG_NOSIGNAL);
    if sent < 0 && errno::get() == libc::EPIPE && !restrictions::is_restricted() {
        return end_refused(fd, flags, len());
    }
    sent
}

/// Ends a send that the kernel has refused, as TCP does.
#[cold]
fn end_refused(fd: c_int, flags: c_int, len: usize) -> ssize_t {
    match answer(fd, len.min(SENT_MAX)) {
        Ok(len) => len.cast_signed(),
        Err(why) => {
            if why == Errno::PIPE && flags & libc::MSG_NOSIGNAL == 0 {
                // SAFETY: the thread sends the signal to itself, as the kernel would.
                unsafe { libc::raise(libc::SIGPIPE) };
            }
            errno::set(why.raw_os_error());
            -1
        }
    }
}

fn answer(fd: c_int, len: usize) -> Result<usize, Errno> {
    let _inside = guard::enter();
    let connection = super::local_socket(fd).ok_or(Errno::PIPE)?;
    // SAFETY: the kernel has just answered a call on the number, so it is not negative.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    // A peer that closes with unread bytes resets the connection at once.
    if let Ok(Err(reset)) = socket_error(socket) {
        ends::record(&connection, socket, Event::Reset);
        return Err(reset);
    }
    match ends::sending(&connection, socket) {
        Sending::Refused => {
            ends::record(&connection, socket, Event::ErrorTaken);
            return Err(Errno::PIPE);
        }
        Sending::Ended => return Err(Errno::PIPE),
        // If the peer has only ended its reading, TCP would still transfer the bytes, so their loss
        // is an error.
        Sending::Open if !process::has_hung_up(socket) => return Err(Errno::PIPE),
        Sending::Open => {}
    }
    if len > 0 {
        ends::record(&connection, socket, Event::SentAfterClose);
        readiness::on_refused(fd);
    }
    Ok(len)
}
