//! The functions that stand in front of the C library's: one table look-up, and the real function
//! for every descriptor that is not offloaded.
//!
//! | File | Functions |
//! |---|---|
//! | [`connections`] | `connect`, `listen`, `accept` |
//! | [`transfer`] | `read` to `sendmmsg`, their vectors and their checked forms |
//! | [`descriptors`] | `close`, `dup`, `fcntl` and their kin |
//! | [`files`] | `sendfile`, `splice` |
//! | [`asynchronous`] | `aio_read`, `aio_write`, `lio_listio` |
//! | [`making`] | `eventfd` |
//! | [`names`] | `getsockname`, `getpeername`, options, `ioctl`, `shutdown` |
//! | [`processes`] | `exec`, `vfork`, `posix_spawn`, `_exit`, `fdopen`: what leads out of our sight |
//! | [`lists`] | `execl`, `dprintf`: lists of arguments of any length |
//! | [`threads`] | `pthread_create`, `pthread_cancel` |
//! | [`waits`] | `poll`, `select`, `epoll_ctl`, `epoll_wait` |
//! | [`raw`] | `syscall` |

pub(crate) mod asynchronous;
pub(crate) mod connections;
pub(crate) mod descriptors;
pub(crate) mod files;
pub(crate) mod lists;
pub(crate) mod making;
pub(crate) mod names;
pub(crate) mod processes;
pub(crate) mod raw;
pub(crate) mod threads;
pub(crate) mod transfer;
pub(crate) mod waits;

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::process::cancelling::{self, CANCELLED};
use crate::process::errno::ToC;
use crate::process::guard;
use crate::socket::Socket;
use crate::table::{self, Mover};

/// Runs a call on an offloaded socket: as the stack's, and without letting a panic out.
pub(crate) fn offloaded<R, T>(fd: c_int, call: impl FnOnce(BorrowedFd<'_>) -> Result<R, Errno>) -> T
where
    Result<R, Errno>: ToC<T>,
{
    let _inside = guard::enter();
    // SAFETY: the table names it, so it is a number from 0 up; a program that closes it meanwhile
    // in another thread gets EBADF from the kernel, as with a socket of the kernel.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    catch_unwind(AssertUnwindSafe(|| call(fd)))
        .unwrap_or(Err(Errno::IO))
        .to_c()
}

/// Runs a call that moves bytes, if it is we who move them. `None`: the kernel does.
#[inline]
pub(crate) fn moving<R, T>(
    fd: c_int,
    call: impl FnMut(&Socket, BorrowedFd<'_>) -> Result<R, Errno>,
) -> Option<T>
where
    Result<R, Errno>: ToC<T>,
{
    if !table::contains(fd) {
        return None;
    }
    moving_ours(fd, call)
}

fn moving_ours<R, T>(
    fd: c_int,
    mut call: impl FnMut(&Socket, BorrowedFd<'_>) -> Result<R, Errno>,
) -> Option<T>
where
    Result<R, Errno>: ToC<T>,
{
    loop {
        // Here, where nothing is to be dropped.
        cancelling::begin_call();
        match made(fd, &mut call) {
            Some(Err(CANCELLED)) if cancelling::is_asked() => {}
            made => return made.map(ToC::to_c),
        }
    }
}

fn made<R>(
    fd: c_int,
    mut call: impl FnMut(&Socket, BorrowedFd<'_>) -> Result<R, Errno>,
) -> Option<Result<R, Errno>> {
    let _inside = guard::enter();
    // SAFETY: as in `offloaded`.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    loop {
        match table::mover(fd) {
            Mover::Kernel => return None,
            Mover::Others(relayed) => {
                relayed.use_bytes(borrowed);
                return None;
            }
            Mover::Us(socket) => {
                if let Some(_call) = socket.begin_call() {
                    let made = catch_unwind(AssertUnwindSafe(|| call(&socket, borrowed)));
                    return Some(made.unwrap_or(Err(Errno::IO)));
                }
                // Somebody else is about to use it as well.
                socket.await_decision();
            }
        }
    }
}

/// A function that asks the table for its first argument: the real one, or what the socket does.
macro_rules! hook {
    ($($(#[$doc:meta])* fn $name:ident($first:ident: $first_ty:ty $(, $arg:ident: $ty:ty)* $(,)?)
        -> $ret:ty = |$socket:ident, $fd:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($first: $first_ty $(, $arg: $ty)*) -> $ret {
            match $crate::hooks::moving($first, |$socket, $fd| $body) {
                Some(result) => result,
                // SAFETY: the caller's arguments, unchanged.
                None => unsafe { $crate::process::real::$name($first $(, $arg)*) },
            }
        }
    )*};
}

/// Other names of the same function, and forms that check the size of a buffer first.
macro_rules! alias {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $call:expr;)*) => {$(
        #[doc = concat!("Hook of `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller's arguments, as the other name takes them.
            unsafe { $call }
        }
    )*};
}

pub(crate) use {alias, hook};
