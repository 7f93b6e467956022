//! What a socket is called, set to and asked.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use libc::{SO_ERROR, SOL_SOCKET, sockaddr, socklen_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::{moving, offloaded};
use crate::socket::identity::Identity;
use crate::socket::names;
use crate::socket::options;
use crate::socket::requests;
use crate::table::{self, Mover};
use crate::{listening, real, tcp_only};

/// Hook of `sockatmark`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut is_there: c_int = 0;
    // SAFETY: the integer that this request demands.
    match unsafe { ioctl(fd, requests::ATMARK, (&raw mut is_there).addr()) } {
        0 => is_there,
        failed => failed,
    }
}

/// Hook of `shutdown`.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if let Some(result) = moving(fd, |socket, _fd| socket.shut_down(how)) {
        return result;
    }
    if let Mover::Others(_) = table::mover(fd)
        && offloaded::<(), c_int>(fd, refuse_over) != 0
    {
        return -1;
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::shutdown(fd, how) };
    if result == 0 && how != libc::SHUT_WR {
        listening::shut_down(fd);
    }
    result
}

/// A Unix socket that is over may be shut down once more, and a TCP socket may not.
fn refuse_over(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut set = [PollFd::from_borrowed_fd(fd, PollFlags::empty())];
    poll(&mut set, Some(&Timespec::default()))?;
    if set[0].revents().contains(PollFlags::HUP) {
        return Err(Errno::NOTCONN);
    }
    Ok(())
}

/// What an offloaded connection is called and set to.
fn identity(fd: c_int) -> Option<Arc<Identity>> {
    match table::mover(fd) {
        Mover::Kernel => None,
        Mover::Us(socket) => Some(socket.identity()),
        Mover::Others(relayed) => Some(relayed.identity().clone()),
    }
}

/// Hook of `getsockname`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    match identity(fd) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::getsockname(fd, address, len) },
        // SAFETY: the caller's pointers.
        Some(of) => offloaded(fd, |_| unsafe {
            names::give(of.local, of.family, address, len)
        }),
    }
}

/// Hook of `getpeername`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    match identity(fd) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::getpeername(fd, address, len) },
        // SAFETY: the caller's pointers.
        Some(of) => offloaded(fd, |_| unsafe {
            names::give(of.peer, of.family, address, len)
        }),
    }
}

/// Hook of `bind`: a connected socket has its address.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if table::contains(fd) {
        return offloaded(fd, |_| Err::<(), _>(Errno::INVAL));
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::bind(fd, address, len) }
}

/// Hook of `getsockopt`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    if options::is_of_carrier(level, name) {
        let told = moving(fd, |socket, fd| {
            // SAFETY: the caller's pointers.
            unsafe { socket.get_option(fd, name, value, len) }
        });
        if let Some(told) = told {
            return told;
        }
    }
    match identity(fd).filter(|_| (level, name) != (SOL_SOCKET, SO_ERROR)) {
        // The error of a descriptor that carries bytes is the descriptor's own.
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::getsockopt(fd, level, name, value, len) },
        // SAFETY: the caller's pointers.
        Some(of) => offloaded(fd, |_| unsafe { of.get_option(level, name, value, len) }),
    }
}

/// Hook of `setsockopt`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    match table::mover(fd) {
        Mover::Kernel => {
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe { real::setsockopt(fd, level, name, value, len) };
            if result == 0 {
                tcp_only::is_set(level, name);
            }
            result
        }
        Mover::Us(socket) => offloaded(fd, |_| {
            // SAFETY: the caller's pointers.
            unsafe { socket.identity().set_option(level, name, value, len) }?;
            socket.has_option_set(level, name)
        }),
        Mover::Others(relayed) => offloaded(fd, |fd: BorrowedFd<'_>| {
            // SAFETY: the caller's pointers.
            unsafe { relayed.identity().set_option(level, name, value, len) }?;
            relayed.has_options_set(fd);
            Ok(())
        }),
    }
}

/// Hook of `ioctl`, whose variable argument is one word in every request.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if !requests::is_of_sockets(request) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::ioctl(fd, request, argument) };
    }
    // SAFETY: the caller's argument.
    let answer = moving(fd, |socket, _| unsafe { socket.request(request, argument) });
    // SAFETY: the caller's arguments, unchanged.
    answer.unwrap_or_else(|| unsafe { real::ioctl(fd, request, argument) })
}
