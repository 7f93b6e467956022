//! What a socket is called, set to and asked.

use std::ffi::{c_int, c_ulong, c_void};

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;

use super::hook;
use crate::socket::names;
use crate::socket::requests::Answer;
use crate::{errno, real, table};

hook! {
    /// Hook of `getsockname`.
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int =
        // SAFETY: the caller's pointers.
        |socket, _fd| unsafe { names::give(socket.local(), socket.family(), address, len) };

    /// Hook of `getpeername`.
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int =
        // SAFETY: the caller's pointers.
        |socket, _fd| unsafe { names::give(socket.peer(), socket.family(), address, len) };

    /// Hook of `getsockopt`.
    fn getsockopt(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t,
    ) -> c_int =
        // SAFETY: the caller's pointers.
        |socket, fd| unsafe { socket.get_option(fd, level, name, value, len) };

    /// Hook of `setsockopt`.
    fn setsockopt(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t,
    ) -> c_int =
        // SAFETY: the caller's pointers.
        |socket, _fd| unsafe { socket.set_option(level, name, value, len) };

    /// Hook of `shutdown`.
    fn shutdown(fd: c_int, how: c_int) -> c_int = |socket, _fd| socket.shut_down(how);

    /// Hook of `sockatmark`.
    fn sockatmark(fd: c_int) -> c_int = |socket, _fd| Ok(c_int::from(socket.is_at_mark()));

    /// Hook of `bind`: a connected socket has its address.
    fn bind(fd: c_int, _address: *const sockaddr, _len: socklen_t) -> c_int =
        |_socket, _fd| Err::<(), _>(Errno::INVAL);
}

/// Hook of `ioctl`, whose variable argument is one word in every request.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    let Some(socket) = table::find(fd) else {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::ioctl(fd, request, argument) };
    };
    // SAFETY: the caller's argument.
    match unsafe { socket.request(request, argument) } {
        Ok(Answer::Given) => 0,
        // SAFETY: the caller's arguments, unchanged.
        Ok(Answer::Kernel) => unsafe { real::ioctl(fd, request, argument) },
        Err(error) => {
            errno::set(error.raw_os_error());
            -1
        }
    }
}
