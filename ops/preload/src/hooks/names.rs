//! Names, options, `ioctl`, `shutdown`.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::BorrowedFd;

use libc::{SOL_SOCKET, sockaddr, socklen_t};
use rustix::io::Errno;

use super::{ask, ask_found, jump, offloaded, unchanged};
use crate::fd::{self, AddressRoom, End, Operations, OptionRoom, OptionValue};
use crate::process::{errno, real};
use crate::setup::{offer, signal_driven};
use crate::socket::requests;
use crate::tcp::{carried, families, tcp_only};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sockatmark(fd: c_int) -> c_int {
    let mut is_there: c_int = 0;
    // SAFETY: the pointer is to a local integer, as this request demands.
    match unsafe { ioctl(fd, requests::ATMARK, (&raw mut is_there).addr()) } {
        0 => is_there,
        failed => failed,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    if !fd::has_ended(fd)
        && let Some(result) = ask(fd, |object, fd| object.shut_down(fd, how))
    {
        return result;
    }
    // After the end of the process, this wakes threads that wait for an event of the descriptor.
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::shutdown(fd, how) };
    if result == 0 && how != libc::SHUT_WR {
        offer::shut_down(fd);
    }
    result
}

/// # Safety
/// As for the C functions.
unsafe fn name(fd: c_int, end: End, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let room = AddressRoom { address, len };
    // SAFETY: the caller's pointers.
    let call = |object: &dyn Operations, fd: BorrowedFd<'_>| unsafe { object.name(fd, end, room) };
    if let Some(named) = ask(fd, call) {
        return named;
    }
    // SAFETY: by the caller's contract the pointer is null or valid.
    let space = unsafe { len.as_ref() }.copied();
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { room.native(fd, end) };
    // SAFETY: the kernel has written as much of the address as there is room for.
    if result != 0 || !unsafe { is_of_unix(address, space) } {
        return result;
    }
    // SAFETY: the kernel has just written to the pointer.
    let full_len = unsafe { std::mem::replace(&mut *len, space.unwrap_or(0)) };
    ask_found(fd, call).unwrap_or_else(|| {
        // SAFETY: the kernel has written to the pointer before.
        unsafe { *len = full_len };
        result
    })
}

/// Returns true if the kernel has written the address of a Unix socket.
///
/// # Safety
/// `address` is null or has `room` bytes.
unsafe fn is_of_unix(address: *const sockaddr, room: Option<socklen_t>) -> bool {
    let size = size_of::<libc::sa_family_t>();
    if address.is_null() || room.is_none_or(|room| (room as usize) < size) {
        return false;
    }
    // SAFETY: there is room for the family, and the read permits any alignment.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    c_int::from(family) == libc::AF_UNIX
}

/// Returns true if only a Unix socket returns this result.
///
/// # Safety
/// `value` is null or has `room` bytes.
unsafe fn is_answer_of_unix(
    level: c_int,
    name: c_int,
    result: c_int,
    value: *const c_void,
    room: Option<socklen_t>,
) -> bool {
    if result != 0 {
        return room.is_some() && errno::get() == libc::EOPNOTSUPP;
    }
    let of_unix = match (level, name) {
        (SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_UNIX,
        (SOL_SOCKET, libc::SO_PROTOCOL) => 0,
        _ => return false,
    };
    // SAFETY: there is room for the number, and the read permits any alignment.
    let answer = || unsafe { value.cast::<c_int>().read_unaligned() };
    room.is_some_and(|room| room as usize >= size_of::<c_int>()) && answer() == of_unix
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { name(fd, End::Local, address, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { name(fd, End::Peer, address, len) }
}

/// Hook of `bind`. A connected socket is bound already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if fd::contains(fd) {
        return offloaded(fd, |_| Err::<(), _>(Errno::INVAL));
    }
    // SAFETY: by the caller's contract the address is null or has `len` bytes.
    if let Some(address) = unsafe { families::with_family_of_tcp(address, len) } {
        // SAFETY: the copy is not shorter than the caller's address.
        return unsafe { real::bind(fd, (&raw const address).cast(), len) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::bind(fd, address, len) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let option = OptionRoom {
        level,
        name,
        value,
        len,
    };
    // SAFETY: the caller's pointers.
    let call =
        |object: &dyn Operations, fd: BorrowedFd<'_>| unsafe { object.get_option(fd, option) };
    if let Some(answer) = ask(fd, call) {
        return answer;
    }
    // SAFETY: by the caller's contract the pointer is null or valid.
    let room = unsafe { len.as_ref() }.copied();
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { option.native(fd) };
    // SAFETY: the kernel has written as much of the value as there is room for.
    if !unsafe { is_answer_of_unix(level, name, result, value, room) } {
        return result;
    }
    // SAFETY: by the caller's contract the pointer is null or valid.
    let full_len = unsafe { len.as_mut() }.map(|len| std::mem::replace(len, room.unwrap_or(0)));
    ask_found(fd, call).unwrap_or_else(|| {
        // SAFETY: by the caller's contract the pointer is null or valid.
        if let (Some(len), Some(full_len)) = (unsafe { len.as_mut() }, full_len) {
            *len = full_len;
        }
        result
    })
}

jump! {
    fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> c_int =
        if !(fd::is_listed(fd) && carried::is_recorded(level, name)) => set_in_library;
}

/// Sets an option of a socket of any kind, and records that it was set.
///
/// # Safety
/// As for `setsockopt`.
#[inline(never)]
unsafe extern "C-unwind" fn set_in_library(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let option = OptionValue {
        level,
        name,
        value,
        len,
    };
    // SAFETY: the caller's pointers.
    let call =
        |object: &dyn Operations, fd: BorrowedFd<'_>| unsafe { object.set_option(fd, option) };
    if let Some(set) = ask(fd, call) {
        return set;
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { option.native(fd) };
    if result == 0 {
        tcp_only::on_option_set(level, name);
        if !fd::is_local(fd) {
            carried::option_is_set(level, name, fd::is_listener(fd));
        }
    } else if errno::get() == libc::EOPNOTSUPP
        && let Some(set) = ask_found(fd, call)
    {
        return set;
    }
    result
}

/// Hook of `ioctl`, whose variable argument is one word in every request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    if !requests::is_of_sockets(request) {
        // SAFETY: the caller's arguments, unchanged.
        let call = || unsafe { real::ioctl(fd, request, argument) };
        let answer = match requests::is_of_flags(request) {
            true => unchanged(fd, call),
            false => call(),
        };
        if answer == 0 && requests::is_of_signals(request) {
            signal_driven::on_changed(fd);
        }
        let is_unknown = answer == -1 && errno::get() == libc::ENOTTY;
        if !is_unknown || !requests::is_of_network(request) {
            return answer;
        }
        let call = |object: &dyn Operations, fd: BorrowedFd<'_>| {
            // SAFETY: the caller's arguments, unchanged.
            unsafe { object.request_of_tcp(fd, request, argument) }
        };
        return ask(fd, call).unwrap_or(answer);
    }
    let call = |object: &dyn Operations, fd: BorrowedFd<'_>| {
        // SAFETY: by the caller's contract the argument is valid for the request.
        unsafe { object.request(fd, request, argument) }
    };
    if let Some(answer) = ask(fd, call) {
        return answer;
    }
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { real::ioctl(fd, request, argument) };
    if answer == 0 || request != requests::NOT_SENT {
        return answer;
    }
    ask_found(fd, call).unwrap_or(answer)
}
