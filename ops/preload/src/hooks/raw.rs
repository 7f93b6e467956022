//! `syscall`: event loops that call the kernel by number.

use std::ffi::{c_int, c_long, c_uint};

use super::{numbers, transfer};
use crate::{real, table};

/// Hook of `syscall`: calls on an offloaded socket go where the named function goes.
///
/// # Safety
/// As for the C function, whose variable arguments are words in registers on every machine that we
/// know; those that were not given are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let fd = a as c_int;
    if !table::contains(fd) && number != libc::SYS_close_range {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::syscall(number, a, b, c, d, e, f) };
    }
    // SAFETY: the words are what the named functions take.
    unsafe {
        match number {
            libc::SYS_read => transfer::read(fd, b as _, c as _) as c_long,
            libc::SYS_write => transfer::write(fd, b as _, c as _) as c_long,
            libc::SYS_readv => transfer::readv(fd, b as _, c as _) as c_long,
            libc::SYS_writev => transfer::writev(fd, b as _, c as _) as c_long,
            libc::SYS_recvfrom => {
                transfer::recvfrom(fd, b as _, c as _, d as _, e as _, f as _) as c_long
            }
            libc::SYS_sendto => {
                transfer::sendto(fd, b as _, c as _, d as _, e as _, f as _) as c_long
            }
            libc::SYS_recvmsg => transfer::recvmsg(fd, b as _, c as _) as c_long,
            libc::SYS_sendmsg => transfer::sendmsg(fd, b as _, c as _) as c_long,
            libc::SYS_close => numbers::close(fd).into(),
            libc::SYS_dup => numbers::dup(fd).into(),
            libc::SYS_dup3 => numbers::dup3(fd, b as _, c as _).into(),
            libc::SYS_fcntl => numbers::fcntl(fd, b as _, c as _).into(),
            libc::SYS_close_range => {
                numbers::close_range(a as c_uint, b as c_uint, c as c_int).into()
            }
            _ => real::syscall(number, a, b, c, d, e, f),
        }
    }
}
