//! Completes a call when the descriptor has begun to carry the bytes.
//!
//! The functions call the C library, whose functions are cancellation points.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_OOB, MSG_TRUNC, MSG_WAITALL, iovec, msghdr, ssize_t};
use rustix::io::Errno;

use crate::process::{errno, real};

/// The number of bytes that one receive discards.
const DISCARD: usize = 16 * 1024;

/// Receives as `recvmsg` does.
pub(super) fn receive(
    fd: BorrowedFd<'_>,
    into: &mut [IoSliceMut<'_>],
    flags: i32,
) -> Result<usize, Errno> {
    let mut message = message(into.as_mut_ptr().cast(), into.len());
    // SAFETY: `IoSliceMut` has the layout of `iovec`, and the parts may be written to.
    count(unsafe { real::recvmsg(fd.as_raw_fd(), &raw mut message, flags) })
}

/// Discards received bytes, as `MSG_TRUNC` does on TCP. A Unix stream socket lacks this flag.
pub(super) fn discard(fd: BorrowedFd<'_>, wanted: usize, flags: i32) -> Result<usize, Errno> {
    let waits_for_all = flags & MSG_WAITALL != 0;
    let mut flags = flags & !MSG_TRUNC;
    // The stack of the program's thread may be small.
    let mut bytes = vec![0; DISCARD];
    let mut done = 0;
    loop {
        let room = (wanted - done).min(DISCARD);
        match receive(fd, &mut [IoSliceMut::new(&mut bytes[..room])], flags) {
            Ok(count) => {
                done += count;
                if count < room || done == wanted || flags & libc::MSG_PEEK != 0 {
                    return Ok(done);
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(error) => return Err(error),
        }
        if !waits_for_all {
            flags |= MSG_DONTWAIT;
        }
    }
}

/// Sends as `sendmsg` does, without `SIGPIPE`, which the caller raises.
pub(super) fn send(
    fd: BorrowedFd<'_>,
    from: &mut [IoSlice<'_>],
    flags: i32,
) -> Result<usize, Errno> {
    let message = message(from.as_mut_ptr().cast(), from.len());
    // SAFETY: `IoSlice` has the layout of `iovec`; the parts are only read.
    count(unsafe { real::sendmsg(fd.as_raw_fd(), &raw const message, flags | MSG_NOSIGNAL) })
}

pub(super) fn send_urgent(fd: BorrowedFd<'_>, byte: u8, flags: i32) -> Result<usize, Errno> {
    send(fd, &mut [IoSlice::new(&[byte])], flags | MSG_OOB)
}

fn message(parts: *mut iovec, count: usize) -> msghdr {
    // SAFETY: the structure consists of pointers and integers, so zeroes are a valid value.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts;
    message.msg_iovlen = count;
    message
}

fn count(result: ssize_t) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno::from_raw_os_error(errno::get()))
}
