//! Names, options, `ioctl`, `shutdown`.

use std::ffi::{c_int, c_ulong, c_void};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use libc::{SO_ERROR, SOL_SOCKET, sockaddr, socklen_t};
use ops_local_protocol::Addresses;
use rustix::io::Errno;

use super::{connecting, dispatch, jump, offloaded, unchanged};
use crate::local;
use crate::process::errno::{self, ToC};
use crate::process::{self, real};
use crate::setup::{offer, signal_driven};
use crate::sharing::adopting;
use crate::socket::identity::Identity;
use crate::socket::options::is_of_carrier;
use crate::socket::requests;
use crate::table::{self, Mover};
use crate::tcp::{carried, families, names, tcp_only};

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
    table::settle(fd);
    if table::has_ended(fd) {
        // Wakes threads that wait for an event of the descriptor.
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::shutdown(fd, how) };
    }
    if let Some(result) = dispatch(fd, |socket, _fd| socket.shut_down(how)) {
        return result;
    }
    if let Mover::RelayClient(_) = table::mover(fd)
        && offloaded::<(), c_int>(fd, refuse_over) != 0
    {
        return -1;
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::shutdown(fd, how) };
    if result == 0 && how != libc::SHUT_WR {
        offer::shut_down(fd);
    }
    if result == 0 && how != libc::SHUT_RD && table::is_local(fd) {
        local::sending::on_shut_down(fd);
    }
    result
}

/// Refuses a call on a connection that has ended: the kernel permits `shutdown` and `getpeername`
/// for a Unix socket, but not for a TCP socket.
fn refuse_over(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    match process::has_hung_up(fd) {
        true => Err(Errno::NOTCONN),
        false => Ok(()),
    }
}

/// Returns the addresses and options of an offloaded connection.
fn identity(fd: c_int) -> Option<Arc<Identity>> {
    match table::mover(fd) {
        Mover::Kernel => None,
        Mover::Own(socket) => Some(socket.identity()),
        Mover::RelayClient(client) => Some(client.identity().clone()),
    }
}

/// The signature of the C functions for names.
type NameOf = unsafe fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

/// # Safety
/// As for the C functions.
unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    of_kernel: NameOf,
    of_ours: fn(&Identity) -> SocketAddr,
    of_local: fn(&Addresses) -> SocketAddr,
) -> c_int {
    // SAFETY: the caller's arguments, for the TCP socket that has the name.
    if let Some(named) = connecting::by_tcp(fd, |tcp| unsafe { of_kernel(tcp, address, len) }) {
        return named;
    }
    if table::is_plain(fd) {
        // SAFETY: by the caller's contract the pointer is null or valid.
        let room = unsafe { len.as_ref() }.copied();
        // SAFETY: the caller's arguments, unchanged.
        let result = unsafe { of_kernel(fd, address, len) };
        // SAFETY: the kernel has written as much of the address as there is room for.
        if result != 0 || !unsafe { is_of_unix(address, room) } {
            return result;
        }
        // SAFETY: the kernel has just written to the pointer.
        let full_len = unsafe { std::mem::replace(&mut *len, room.unwrap_or(0)) };
        // SAFETY: the caller's pointers.
        if let Some(named) = unsafe { local::name(fd, address, len, of_local) } {
            return named.to_c();
        }
        if !adopting::adopt(fd) {
            // SAFETY: the kernel has written to the pointer before.
            unsafe { *len = full_len };
            return result;
        }
    }
    if table::is_local(fd)
        // SAFETY: the caller's pointers.
        && let Some(named) = unsafe { local::name(fd, address, len, of_local) }
    {
        return named.to_c();
    }
    match identity(fd) {
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { of_kernel(fd, address, len) },
        // SAFETY: the caller's pointers.
        Some(of) => offloaded(fd, |_| unsafe {
            names::write_address(of_ours(&of), of.family, address, len)
        }),
    }
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
    unsafe {
        name(
            fd,
            address,
            len,
            real::getsockname,
            |of| of.local,
            |of| of.local,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    if table::contains(fd) && offloaded::<(), c_int>(fd, refuse_over) != 0 {
        return -1;
    }
    // SAFETY: the caller's pointers.
    unsafe {
        name(
            fd,
            address,
            len,
            real::getpeername,
            |of| of.peer,
            |of| of.peer,
        )
    }
}

/// Hook of `bind`. A connected socket is bound already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    if table::contains(fd) {
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
    if let Some(answer) = connecting::by_tcp(fd, |tcp| {
        // SAFETY: the caller's arguments, for the TCP socket that keeps the options.
        unsafe { real::getsockopt(tcp, level, name, value, len) }
    }) {
        if answer == 0 && (level, name) == (SOL_SOCKET, SO_ERROR) {
            // SAFETY: the kernel has written to the pointers.
            unsafe { connecting::write_error(fd, value, *len) };
        }
        return answer;
    }
    if table::is_local(fd)
        && local::options::is_of_kind(level, name)
        // SAFETY: the caller's pointers.
        && let Some(answer) = unsafe { local::options::get(fd, level, name, value, len) }
    {
        return answer.to_c();
    }
    if is_of_carrier(level, name) {
        let answer = dispatch(fd, |socket, fd| {
            // SAFETY: the caller's pointers.
            unsafe { socket.get_option(fd, name, value, len) }
        });
        if let Some(answer) = answer {
            return answer;
        }
    }
    match identity(fd).filter(|_| (level, name) != (SOL_SOCKET, SO_ERROR)) {
        // A descriptor that carries bytes reports its own error.
        None => {
            // SAFETY: by the caller's contract the pointer is null or valid.
            let room = unsafe { len.as_ref() }.copied();
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe { real::getsockopt(fd, level, name, value, len) };
            // SAFETY: the kernel has written as much of the value as there is room for.
            if !unsafe { is_answer_of_unix(level, name, result, value, room) } {
                return result;
            }
            let why = errno::get();
            // SAFETY: by the caller's contract the pointer is null or valid.
            if let (Some(len), Some(room)) = (unsafe { len.as_mut() }, room) {
                *len = room;
            }
            // SAFETY: the caller's pointers.
            if let Some(answer) = unsafe { local::options::get(fd, level, name, value, len) } {
                return answer.to_c();
            }
            errno::set(why);
            if adopting::adopt(fd) {
                // SAFETY: the caller's arguments, for the entry that is in the table now; the
                // kernel has accessed the length before.
                return unsafe {
                    *len = room.unwrap_or(0);
                    getsockopt(fd, level, name, value, len)
                };
            }
            result
        }
        // SAFETY: the caller's pointers.
        Some(of) => offloaded(fd, |_| unsafe { of.get_option(level, name, value, len) }),
    }
}

jump! {
    fn setsockopt(
        fd: c_int,
        level: c_int,
        name: c_int,
        value: *const c_void,
        len: socklen_t,
    ) -> c_int =
        if !(table::is_listed(fd) && carried::is_recorded(level, name)) => set_in_library;
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
    if let Some(set) = connecting::by_tcp(fd, |tcp| {
        // SAFETY: the caller's arguments, for the TCP socket that keeps the options.
        unsafe { real::setsockopt(tcp, level, name, value, len) }
    }) {
        return set;
    }
    match table::mover(fd) {
        Mover::Kernel => {
            if table::is_local(fd)
                && local::options::is_of_kind(level, name)
                // SAFETY: by the caller's contract the value is null or has `len` bytes.
                && let Some(set) = unsafe { local::options::set(fd, level, name, value, len) }
            {
                return set.to_c();
            }
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe { real::setsockopt(fd, level, name, value, len) };
            if result == 0 {
                tcp_only::on_option_set(level, name);
                if !table::is_local(fd) {
                    carried::option_is_set(level, name, table::is_listener(fd));
                }
                return result;
            }
            if !matches!(errno::get(), libc::EOPNOTSUPP) {
                return result;
            }
            // SAFETY: by the caller's contract the value is null or has `len` bytes.
            if let Some(set) = unsafe { local::options::set(fd, level, name, value, len) } {
                return set.to_c();
            }
            errno::set(libc::EOPNOTSUPP);
            if adopting::adopt(fd) {
                // SAFETY: the caller's arguments, for the entry that is in the table now.
                return unsafe { setsockopt(fd, level, name, value, len) };
            }
            result
        }
        Mover::Own(socket) => offloaded(fd, |_| {
            // SAFETY: the caller's pointers.
            unsafe { socket.identity().set_option(level, name, value, len) }?;
            socket.apply_option(level, name)
        }),
        Mover::RelayClient(client) => offloaded(fd, |fd: BorrowedFd<'_>| {
            // SAFETY: the caller's pointers.
            unsafe { client.identity().set_option(level, name, value, len) }?;
            client.apply_options(fd);
            Ok(())
        }),
    }
}

/// Performs an `ioctl` about the network that only sockets of TCP know, such as `SIOCGIFADDR`. The
/// Unix socket behind an offloaded connection has answered `ENOTTY`.
///
/// # Safety
/// As for `ioctl`.
unsafe fn request_of_tcp(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let answer = if table::is_local(fd) {
        // SAFETY: the caller's arguments, unchanged.
        unsafe { local::options::request(fd, request, argument) }
    } else {
        identity(fd).map(|of| {
            let tcp = of.options().native().as_raw_fd();
            // SAFETY: the caller's arguments, for the TCP socket that keeps the options.
            unsafe { real::ioctl(tcp, request, argument) }
        })
    };
    answer.unwrap_or_else(|| {
        errno::set(libc::ENOTTY);
        -1
    })
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
        if !is_unknown || !requests::is_of_network(request) || table::is_plain(fd) {
            return answer;
        }
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { request_of_tcp(fd, request, argument) };
    }
    table::settle(fd);
    // SAFETY: by the caller's contract the argument is valid for the request.
    let answer = dispatch(fd, |socket, _| unsafe { socket.request(request, argument) });
    // SAFETY: the caller's arguments, unchanged.
    let answer = answer.unwrap_or_else(|| unsafe { real::ioctl(fd, request, argument) });
    if answer != 0
        && request == requests::NOT_SENT
        && errno::get() != libc::EFAULT
        && local::is_local(fd)
    {
        // All written bytes have been delivered to the peer's socket.
        let to = argument as *mut c_int;
        // SAFETY: by the caller's contract the argument is null or a pointer to an integer.
        if let Some(to) = unsafe { to.as_mut() } {
            *to = 0;
        }
        return 0;
    }
    answer
}
