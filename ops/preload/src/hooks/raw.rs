//! `syscall`: event loops that call the kernel by number.

use std::ffi::{c_int, c_long, c_uint};
use std::time::Instant;

use libc::timespec;

use super::waits::{KERNEL_MASK, duration, spec};
use super::{numbers, transfer, waits};
use crate::{real, table};

/// Hook of `syscall`: calls on an offloaded socket, and waits, go where the named function goes.
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
    // SAFETY: the words are what the call takes.
    if let Some(ready) = unsafe { wait_by_number(number, [a, b, c, d, e, f]) } {
        return ready.into();
    }
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

/// A wait that is asked for by its number: what the named function does. `None`: it is none, or one
/// that the kernel is to refuse.
///
/// # Safety
/// As for the call of this number.
unsafe fn wait_by_number(number: c_long, words: [c_long; 6]) -> Option<c_int> {
    if !table::has_listeners() && !table::has_connections() {
        return None;
    }
    let [a, b, c, d, e, f] = words;
    let is_kernels = |mask: c_long, size: c_long| mask == 0 || size == KERNEL_MASK;
    // SAFETY: the words are what the named functions take, and times that the kernel changes.
    let ready = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => waits::poll(a as _, b as _, c as _),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => waits::select(a as _, b as _, c as _, d as _, e as _),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => waits::epoll_wait(a as _, b as _, c as _, d as _),
            libc::SYS_epoll_pwait if is_kernels(e, f) => {
                waits::epoll_pwait(a as _, b as _, c as _, d as _, e as _)
            }
            libc::SYS_epoll_pwait2 if is_kernels(e, f) => {
                waits::epoll_pwait2(a as _, b as _, c as _, d as _, e as _)
            }
            libc::SYS_ppoll if is_kernels(d, e) => {
                telling_left(c as _, || waits::ppoll(a as _, b as _, c as _, d as _))
            }
            libc::SYS_pselect6 => {
                // A mask and its size.
                let [mask, size] = (f as *const [c_long; 2])
                    .as_ref()
                    .copied()
                    .unwrap_or([0; 2]);
                if !is_kernels(mask, size) {
                    return None;
                }
                telling_left(e as _, || {
                    waits::pselect(a as _, b as _, c as _, d as _, e as _, mask as _)
                })
            }
            _ => return None,
        }
    };
    Some(ready)
}

/// Leaves in `time` what is left of it, as the kernel does and the C library does not.
///
/// # Safety
/// The time is null or the caller's.
unsafe fn telling_left(time: *mut timespec, wait: impl FnOnce() -> c_int) -> c_int {
    let begun = Instant::now();
    // SAFETY: the caller answers for it.
    let whole = unsafe { time.as_ref() }.and_then(duration);
    let ready = wait();
    if let Some(whole) = whole {
        // SAFETY: it was there before.
        unsafe { *time = spec(whole.saturating_sub(begun.elapsed())) };
    }
    ready
}
