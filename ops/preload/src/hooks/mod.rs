//! The functions that stand in front of the C library's: one table look-up, and the real function
//! for every descriptor that is not offloaded.
//!
//! | File | Functions |
//! |---|---|
//! | [`connections`] | `connect`, `listen`, `accept` |
//! | [`transfer`] | `read` to `sendmmsg`, their vectors and their checked forms |
//! | [`files`] | `sendfile`, `splice` |
//! | [`names`] | `getsockname`, `getpeername`, options, `ioctl`, `shutdown` |
//! | [`numbers`] | `close`, `dup`, `fcntl` and their kin |
//! | [`waits`] | `poll`, `select`, `epoll_ctl` |
//! | [`raw`] | `syscall` |

pub(crate) mod connections;
pub(crate) mod files;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod raw;
pub(crate) mod transfer;
pub(crate) mod waits;

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::errno::ToC;
use crate::guard;

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
            match $crate::table::find($first) {
                // SAFETY: the caller's arguments, unchanged.
                None => unsafe { $crate::real::$name($first $(, $arg)*) },
                Some($socket) => $crate::hooks::offloaded($first, |$fd| $body),
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
