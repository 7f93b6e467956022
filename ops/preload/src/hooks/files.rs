//! Moving bytes from files to sockets without the program's buffers.
//!
//! `sendfile` would move bytes into the pair, where no process reads them, so they are copied
//! through a buffer. `splice` makes the pair carry the connection's bytes, because a program that
//! splices once usually does so again.

use std::ffi::{c_int, c_uint};
use std::os::fd::BorrowedFd;

use libc::{EAGAIN, MSG_PEEK, SPLICE_F_NONBLOCK, off64_t, size_t, ssize_t};
use rustix::event::PollFlags;
use rustix::io::Errno;

use super::{alias, dispatch, offloaded, sending};
use crate::fd;
use crate::process::{self, errno, real};
use crate::sharing::exposing;
use crate::socket::Socket;

const BUFFER: usize = 128 * 1024;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendfile(
    to: c_int,
    from: c_int,
    at: *mut off64_t,
    count: size_t,
) -> ssize_t {
    if fd::contains(from) {
        // `sendfile` demands a source that can be mapped, and no socket can.
        return offloaded(from, |_| Err::<usize, _>(Errno::INVAL));
    }
    let sent = dispatch(to, |socket, to| {
        // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
        let from = (from >= 0)
            .then(|| unsafe { BorrowedFd::borrow_raw(from) })
            .ok_or(Errno::BADF)?;
        // SAFETY: by the caller's contract the offset is null or valid.
        copy(socket, to, from, unsafe { at.as_mut() }, count)
    });
    // SAFETY: the caller's arguments, unchanged.
    sent.unwrap_or_else(|| unsafe { real::sendfile(to, from, at, count) })
}

alias! {
    sendfile64(to: c_int, from: c_int, at: *mut off64_t, count: size_t) -> ssize_t =
        sendfile(to, from, at, count);
}

/// Hook of `splice`. From now on the pair behind the program's number carries the connection's
/// bytes, so that the kernel can move them.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut off64_t,
    to: c_int,
    to_at: *mut off64_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    exposing::expose(from);
    exposing::expose(to);
    loop {
        // SAFETY: the caller's arguments, unchanged.
        let moved = unsafe { real::splice(from, from_at, to, to_at, len, flags) };
        let may_wait = moved < 0 && flags & SPLICE_F_NONBLOCK != 0 && errno::get() == EAGAIN;
        if !may_wait || !has_room(to) || !await_bytes(from) {
            return moved;
        }
    }
}

/// Waits until a connection has bytes to splice, as TCP does: it applies `SPLICE_F_NONBLOCK` to the
/// pipe alone, while a Unix socket applies the flag to itself too. Returns false, with the error,
/// if the descriptor is no connection or its wait fails.
fn await_bytes(from: c_int) -> bool {
    let mut byte = 0_u8;
    (fd::contains(from) || fd::is_local(from))
        // SAFETY: the buffer has one byte.
        && unsafe { real::recv(from, (&raw mut byte).cast(), 1, MSG_PEEK) } >= 0
}

/// Returns true if a pipe has room.
fn has_room(pipe: c_int) -> bool {
    let why = errno::get();
    // SAFETY: the kernel has just answered a call on the number, so it is open.
    let pipe = unsafe { BorrowedFd::borrow_raw(pipe) };
    let shown = process::shown_events(pipe, PollFlags::OUT);
    let has_room = shown.is_ok_and(|shown| !shown.is_empty());
    errno::set(why);
    has_room
}

/// Sends `count` bytes of a file. Bytes that the socket did not accept are not consumed.
fn copy(
    socket: &Socket,
    to: BorrowedFd<'_>,
    from: BorrowedFd<'_>,
    at: Option<&mut off64_t>,
    count: usize,
) -> Result<usize, Errno> {
    let mut buffer = vec![0; BUFFER.min(count.max(1))];
    let mut offset = match &at {
        Some(at) => u64::try_from(**at).map_err(|_| Errno::INVAL)?,
        None => rustix::fs::tell(from).map_err(|_| Errno::INVAL)?,
    };
    let mut done = 0;
    while done < count {
        let room = buffer.len().min(count - done);
        let read = match rustix::io::pread(from, &mut buffer[..room], offset) {
            Ok(0) => break,
            Ok(read) => read,
            // The number of bytes sent so far is returned instead of the error.
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        };
        match sending::send_bytes(socket, to, buffer.as_ptr().cast(), read, 0) {
            Ok(sent) => {
                done += sent;
                offset += sent as u64;
                if sent < read {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    match at {
        Some(at) => *at = off64_t::try_from(offset).unwrap_or(off64_t::MAX),
        None => {
            rustix::fs::seek(from, rustix::fs::SeekFrom::Start(offset))?;
        }
    }
    Ok(done)
}
