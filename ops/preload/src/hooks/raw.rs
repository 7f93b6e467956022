//! `syscall`, by which some programs, such as event loops, call the kernel.

use std::ffi::{c_int, c_long, c_uint};
use std::time::Instant;

use libc::timespec;

use super::waits::{KERNEL_MASK, duration, spec};
use super::{
    connections, descriptors, files, names, namespaces, processes, receiving, restrictions,
    selects, sending, waits,
};
use crate::fd::{self, removals};
use crate::lifecycle::{exiting, forking};
use crate::process::guard::{self, Uncancelled};
use crate::process::{memory, real};
use crate::sharing::exposing;
use crate::socket::polling;

/// Hook of `syscall`. Calls on an offloaded socket, waits, and calls that may move a socket to an
/// offload protocol or to another process are passed to the hook of the named function.
///
/// A `clone` that makes a process with a copy of the memory is treated like a `fork`, without the
/// handlers of other libraries: a program calls it by number for namespaces of the child, as vsftpd
/// does.
///
/// # Safety
/// The contract of the C function. Its variable arguments are words in registers on every supported
/// machine; arguments that the program did not pass are not used.
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
    let words = [a, b, c, d, e, f];
    // SAFETY: by the caller's contract the words are the arguments of the call.
    unsafe {
        if restrictions::is_restriction(number, a) {
            restrictions::before_restriction();
        }
        if let Some(ready) = dispatch_wait(number, words) {
            return ready.into();
        }
        if let Some(result) = dispatch_any(number, words) {
            return result;
        }
        let fd = a as c_int;
        let is_own = || number == libc::SYS_close && descriptors::OPS_OWN_NUMBERS.has(fd);
        if !fd::is_plain(fd) || is_own() {
            // Calls by number are no cancellation points.
            let _uncancelled = Uncancelled::begin();
            let result =
                dispatch_transfer(number, words).or_else(|| dispatch_socket_call(number, words));
            if let Some(result) = result {
                return result;
            }
        }
        real::syscall(number, a, b, c, d, e, f)
    }
}

/// Passes on calls whose hooks do work even if the first argument is no offloaded descriptor.
/// `None`: any other call, or one that the kernel must answer.
///
/// # Safety
/// The contract of the call of this number.
unsafe fn dispatch_any(number: c_long, words: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = words;
    let fd = a as c_int;
    // SAFETY: the words are the arguments of the named functions, by the caller's contract.
    let result = unsafe {
        match number {
            libc::SYS_connect => connections::connect(fd, b as _, c as _),
            libc::SYS_listen => connections::listen(fd, b as _),
            // These two hooks are cancellation points, which `syscall` is not, so the kernel is
            // called directly while nothing is offloaded.
            libc::SYS_sendmsg if fd::has_connections() => {
                return Some(sending::sendmsg(fd, b as _, c as _) as c_long);
            }
            libc::SYS_sendmmsg if fd::has_connections() => {
                sending::sendmmsg(fd, b as _, c as _, d as _)
            }
            libc::SYS_splice if fd::contains(fd) || fd::contains(c as c_int) => {
                let (to, to_at, len) = (c as c_int, d as _, e as _);
                return Some(files::splice(fd, b as _, to, to_at, len, f as _) as c_long);
            }
            libc::SYS_epoll_ctl => waits::epoll_ctl(fd, b as _, c as _, d as _),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(fd, b as _),
            libc::SYS_dup3 => descriptors::dup3(fd, b as _, c as _),
            libc::SYS_close_range => descriptors::close_range(a as c_uint, b as c_uint, c as c_int),
            libc::SYS_getsockname => names::getsockname(fd, b as _, c as _),
            libc::SYS_getpeername => names::getpeername(fd, b as _, c as _),
            libc::SYS_getsockopt => names::getsockopt(fd, b as _, c as _, d as _, e as _),
            libc::SYS_setsockopt => names::setsockopt(fd, b as _, c as _, d as _, e as _),
            libc::SYS_shutdown => names::shutdown(fd, b as _),
            libc::SYS_execve => processes::execve(a as _, b as _, c as _),
            libc::SYS_execveat => processes::execveat(fd, b as _, c as _, d as _, e as _),
            libc::SYS_socket => {
                let made = real::syscall(number, a, b, c, d, e, f);
                connections::record_made(made as c_int, fd, b as c_int, c as c_int);
                return Some(made);
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_vfork => {
                fd::share_sets();
                memory::will_be_shared();
                return None;
            }
            libc::SYS_clone if is_fork(a, b) && !guard::is_inside() => {
                let clone = || real::syscall(number, a, b, c, d, e, f);
                return Some(forking::fork_by_number(clone));
            }
            libc::SYS_clone | libc::SYS_clone3 => {
                fd::share_sets();
                memory::will_be_shared();
                return None;
            }
            libc::SYS_io_uring_setup | libc::SYS_io_setup => {
                let made = real::syscall(number, a, b, c, d, e, f);
                if made >= 0 {
                    exposing::expose_all();
                }
                return Some(made);
            }
            libc::SYS_setns => namespaces::setns(fd, b as _),
            libc::SYS_unshare => namespaces::unshare(fd),
            libc::SYS_exit_group => {
                exiting::before_exit_group();
                return None;
            }
            _ => return None,
        }
    };
    Some(result.into())
}

/// Returns true for the flags and the stack of a `clone` whose child has copies of the memory and
/// the descriptors.
fn is_fork(flags: c_long, stack: c_long) -> bool {
    let shared = libc::CLONE_VM | libc::CLONE_FILES;
    flags & c_long::from(shared) == 0 && stack == 0
}

/// Passes on calls that move bytes.
///
/// # Safety
/// The contract of the call of this number.
unsafe fn dispatch_transfer(number: c_long, words: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = words;
    let fd = a as c_int;
    // SAFETY: the words are the arguments of the named functions, by the caller's contract.
    let result = unsafe {
        match number {
            libc::SYS_read => receiving::read(fd, b as _, c as _),
            libc::SYS_write => sending::write(fd, b as _, c as _),
            libc::SYS_readv => receiving::readv(fd, b as _, c as _),
            libc::SYS_writev => sending::writev(fd, b as _, c as _),
            // The upper half of an offset is used only on machines with shorter words.
            libc::SYS_preadv2 => receiving::preadv2(fd, b as _, c as _, d, f as _),
            libc::SYS_pwritev2 => sending::pwritev2(fd, b as _, c as _, d, f as _),
            libc::SYS_recvfrom => receiving::recvfrom(fd, b as _, c as _, d as _, e as _, f as _),
            libc::SYS_sendto => sending::sendto(fd, b as _, c as _, d as _, e as _, f as _),
            libc::SYS_recvmsg => receiving::recvmsg(fd, b as _, c as _),
            libc::SYS_recvmmsg => {
                return Some(receiving::recvmmsg(fd, b as _, c as _, d as _, e as _).into());
            }
            libc::SYS_sendfile => files::sendfile(fd, b as _, c as _, d as _),
            libc::SYS_splice => files::splice(fd, b as _, c as _, d as _, e as _, f as _),
            _ => return None,
        }
    };
    Some(result as c_long)
}

/// Passes on calls that use a descriptor without moving bytes.
///
/// # Safety
/// The contract of the call of this number.
unsafe fn dispatch_socket_call(number: c_long, words: [c_long; 6]) -> Option<c_long> {
    let [a, b, c, ..] = words;
    let fd = a as c_int;
    // SAFETY: the words are the arguments of the named functions, by the caller's contract.
    let result = unsafe {
        match number {
            libc::SYS_bind => names::bind(fd, b as _, c as _),
            libc::SYS_ioctl => names::ioctl(fd, b as _, c as _),
            libc::SYS_accept => connections::accept(fd, b as _, c as _),
            libc::SYS_accept4 => connections::accept4(fd, b as _, c as _, words[3] as _),
            libc::SYS_close => descriptors::close(fd),
            libc::SYS_dup => descriptors::dup(fd),
            libc::SYS_fcntl => descriptors::fcntl(fd, b as _, c as _),
            _ => return None,
        }
    };
    Some(result.into())
}

/// Passes on waits. `None`: the call is no wait, or the kernel must refuse it.
///
/// # Safety
/// The contract of the call of this number.
unsafe fn dispatch_wait(number: c_long, words: [c_long; 6]) -> Option<c_int> {
    match number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll | libc::SYS_select | libc::SYS_epoll_wait => before_wait(),
        libc::SYS_ppoll | libc::SYS_pselect6 | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => {
            before_wait();
        }
        _ => {}
    }
    if !fd::has_listeners() && !fd::has_local() {
        return None;
    }
    let [a, b, c, d, e, f] = words;
    let is_kernels = |mask: c_long, size: c_long| mask == 0 || size == KERNEL_MASK;
    // SAFETY: by the caller's contract the words are the arguments of the named functions, and
    // timeouts are writable.
    let ready = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => waits::poll(a as _, b as _, c as _),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => selects::select(a as _, b as _, c as _, d as _, e as _),
            libc::SYS_ppoll if is_kernels(d, e) => {
                with_time_left(c as _, || waits::ppoll(a as _, b as _, c as _, d as _))
            }
            libc::SYS_pselect6 => {
                // The argument points to a mask and its size.
                let [mask, size] = (f as *const [c_long; 2])
                    .as_ref()
                    .copied()
                    .unwrap_or([0; 2]);
                if !is_kernels(mask, size) {
                    return None;
                }
                with_time_left(e as _, || {
                    selects::pselect(a as _, b as _, c as _, d as _, e as _, mask as _)
                })
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => waits::epoll_wait_in_library(a as _, b as _, c as _, d as _),
            libc::SYS_epoll_pwait if is_kernels(e, f) => {
                waits::epoll_pwait_in_library(a as _, b as _, c as _, d as _, e as _)
            }
            libc::SYS_epoll_pwait2 if is_kernels(e, f) => {
                waits::epoll_pwait2_in_library(a as _, b as _, c as _, d as _, e as _)
            }
            _ => return None,
        }
    };
    Some(ready)
}

/// Prepares a wait that the kernel performs.
fn before_wait() {
    polling::end_all();
    removals::make();
}

/// Writes the remaining time to `time`, as the kernel does and the C library does not.
///
/// # Safety
/// `time` is null or valid.
unsafe fn with_time_left(time: *mut timespec, wait: impl FnOnce() -> c_int) -> c_int {
    let begun = Instant::now();
    // SAFETY: the caller guarantees that the pointer is null or valid.
    let whole = unsafe { time.as_ref() }.and_then(duration);
    let ready = wait();
    if let Some(whole) = whole {
        // SAFETY: the pointer was read above, so it is not null.
        unsafe { *time = spec(whole.saturating_sub(begun.elapsed())) };
    }
    ready
}
