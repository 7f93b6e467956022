//! The exported functions that replace the C library's. For a descriptor that is not offloaded, a
//! hook makes one table lookup and calls the C library's function.
//!
//! Hooks that move bytes, wait or accept make that decision without a stack frame, and jump; see
//! [`jump`]. Processors mispredict a return through one more frame after a system call, because the
//! kernel has overwritten the predictions. A hook of the calling convention `C` cannot jump: the
//! compiler adds a landing pad that stops a panic, which needs a frame. A thread that is cancelled
//! unwinds through the frames of a hook, and the compiler omits calls of functions of the
//! convention `C` from the table that permits it. So all functions in which a thread may be
//! cancelled have the convention `C-unwind`.
//!
//! The caller of a hook guarantees the contract of the C function with the same name: pointers are
//! null or valid as that function demands, and lists have the given length. `SAFETY` comments in
//! this folder call this *the caller's contract*; it guarantees *the caller's arguments* and *the
//! caller's pointers*.
//!
//! | File | Functions |
//! |---|---|
//! | [`connections`] | `socket`, `connect`, `listen`, `accept` |
//! | [`receiving`] | `read`, `recv`, their vector forms and their checked forms |
//! | [`sending`] | `write`, `send` and their vector forms |
//! | [`descriptors`] | `close`, `dup`, `fcntl` and related functions |
//! | [`files`] | `sendfile`, `splice` |
//! | [`asynchronous`] | `aio_read`, `aio_write`, `lio_listio` |
//! | [`eventfd`] | `eventfd` |
//! | [`names`] | `getsockname`, `getpeername`, options, `ioctl`, `shutdown` |
//! | [`namespaces`] | `setns`, `unshare` |
//! | [`processes`] | `exec`, `posix_spawn`, `_exit`, `fdopen`: calls that pass sockets out of the control of this library |
//! | [`limits`] | `setrlimit`, `getrlimit`, `prlimit` |
//! | [`jumps`] | `execl`, `dprintf`, `vfork`: functions that Rust code cannot define |
//! | [`restrictions`] | `prctl` |
//! | [`sanitizers`] | `__asan_default_options` |
//! | [`threads`] | `pthread_create`, `thrd_create`, `pthread_cancel` |
//! | [`waits`] | `poll`, `epoll_ctl`, `epoll_wait` |
//! | [`selects`] | `select`, `pselect` |
//! | [`raw`] | `syscall` |

pub(crate) mod asynchronous;
pub(crate) mod connections;
pub(crate) mod descriptors;
pub(crate) mod eventfd;
pub(crate) mod files;
pub(crate) mod jumps;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod namespaces;
pub(crate) mod processes;
pub(crate) mod raw;
pub(crate) mod receiving;
pub(crate) mod restrictions;
pub(crate) mod sanitizers;
pub(crate) mod selects;
pub(crate) mod sending;
pub(crate) mod threads;
pub(crate) mod waits;

use std::any::Any;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;

use crate::fd::{self, Answer, Entry, Operations};
use crate::local;
use crate::process::cancellation::{self, CANCELLED};
use crate::process::errno::{self, ToC};
use crate::process::{guard, termination};
use crate::setup::background::Background;
use crate::sharing::adopting;
use crate::socket::Socket;

/// Runs a call on an offloaded socket as a call of the stack. A panic becomes the error `EIO`.
pub(crate) fn offloaded<R, T>(fd: c_int, call: impl FnOnce(BorrowedFd<'_>) -> Result<R, Errno>) -> T
where
    Result<R, Errno>: ToC<T>,
{
    let _inside = guard::enter();
    // SAFETY: the table has an entry for the number, so it is not negative. If another thread of
    // the program closes it meanwhile, the kernel returns EBADF, as for a kernel socket.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    catch_unwind(AssertUnwindSafe(|| call(fd)))
        .unwrap_or(Err(Errno::IO))
        .to_c()
}

/// Asks the object behind a descriptor by `call`. `None`: the caller must call the C library's
/// function. A panic becomes the error `EIO`.
fn ask<R, T>(
    fd: c_int,
    mut call: impl FnMut(&dyn Operations, BorrowedFd<'_>) -> Answer<R>,
) -> Option<T>
where
    Result<R, Errno>: ToC<T>,
{
    if fd::is_with_kernel(fd) {
        return None;
    }
    let answer = answer(fd, &mut call);
    termination::hold_others();
    answer.map(ToC::to_c)
}

fn answer<R>(
    fd: c_int,
    call: &mut impl FnMut(&dyn Operations, BorrowedFd<'_>) -> Answer<R>,
) -> Option<Result<R, Errno>> {
    let _inside = guard::enter();
    loop {
        let Some(object) = fd::entry(fd) else {
            // Only threads that run after the end of the process has closed the connections receive
            // this error, such as destructors of libraries.
            return fd::has_ended(fd).then_some(Err(Errno::CONNRESET));
        };
        match answer_of(&*object, fd, call) {
            Answer::Is(result) => return Some(result),
            Answer::Native => return None,
            Answer::Again => {}
        }
    }
}

/// Asks the connection that a program without this library, or another process, has left or passed
/// under a descriptor without an entry. `None`: there is none, and `errno` is unchanged.
fn ask_found<R, T>(
    fd: c_int,
    mut call: impl FnMut(&dyn Operations, BorrowedFd<'_>) -> Answer<R>,
) -> Option<T>
where
    Result<R, Errno>: ToC<T>,
{
    if !fd::is_plain(fd) {
        return None;
    }
    let why = errno::get();
    let local = local::local_socket(fd).map(|it| it as Entry);
    let found = local.or_else(|| Some(adopting::adopt(fd)? as Entry));
    errno::set(why);
    let _inside = guard::enter();
    match answer_of(&*found?, fd, &mut call) {
        Answer::Is(result) => Some(result.to_c()),
        Answer::Native | Answer::Again => None,
    }
}

fn answer_of<R>(
    object: &dyn Operations,
    fd: c_int,
    call: &mut impl FnMut(&dyn Operations, BorrowedFd<'_>) -> Answer<R>,
) -> Answer<R> {
    // SAFETY: the number is not negative, because it has an object. If another thread of the
    // program closes it meanwhile, the kernel returns EBADF, as for a kernel socket.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    catch_unwind(AssertUnwindSafe(|| call(object, fd))).unwrap_or(Answer::Is(Err(Errno::IO)))
}

/// Runs `call` if this process moves the bytes of the descriptor. `None`: the caller must call the
/// C library's function.
#[inline]
pub(crate) fn dispatch<R, T>(
    fd: c_int,
    call: impl FnMut(&Socket, BorrowedFd<'_>) -> Result<R, Errno>,
) -> Option<T>
where
    Result<R, Errno>: ToC<T>,
{
    if !fd::contains(fd) {
        return None;
    }
    dispatch_to_socket(fd, call)
}

fn dispatch_to_socket<R, T>(
    fd: c_int,
    mut call: impl FnMut(&Socket, BorrowedFd<'_>) -> Result<R, Errno>,
) -> Option<T>
where
    Result<R, Errno>: ToC<T>,
{
    loop {
        // A cancelled thread ends in this call, because no frame has anything to drop here.
        cancellation::begin_call();
        let made = dispatch_once(fd, &mut call);
        termination::hold_others();
        match made {
            Some(Err(CANCELLED)) if cancellation::is_cancelled() => {}
            made => return made.map(ToC::to_c),
        }
    }
}

fn dispatch_once<R>(
    fd: c_int,
    mut call: impl FnMut(&Socket, BorrowedFd<'_>) -> Result<R, Errno>,
) -> Option<Result<R, Errno>> {
    let mut made = None;
    let mut transfer = |object: &dyn Operations, fd: BorrowedFd<'_>| {
        let socket = (object as &dyn Any).downcast_ref::<Socket>();
        object.transfer(fd, &mut || made = socket.map(|socket| call(socket, fd)))
    };
    match answer(fd, &mut transfer)? {
        Ok(()) => made,
        Err(why) => Some(Err(why)),
    }
}

/// Runs `call`, which changes the flags, the registrations or the kernel object of a descriptor,
/// while no end of a connect without blocking does so.
fn unchanged(fd: c_int, mut call: impl FnMut() -> c_int) -> c_int {
    let mut result = None;
    if let Some(undecided) = Background::of(fd) {
        undecided.with_tcp(|_| result = Some(call()));
    }
    result.unwrap_or_else(call)
}

/// Defines hooks that jump to the C library's function. If the condition holds, they jump to the
/// function after `=>` instead, which has the same arguments.
macro_rules! jump {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?)
        -> $ret:ty = if $condition:expr => $instead:ident;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller's arguments, unchanged.
            unsafe {
                if $condition {
                    return $instead($($arg),*);
                }
                $crate::process::real::$name($($arg),*)
            }
        }
    )*};
}

/// Defines hooks that run the given body for an offloaded descriptor, and jump to the C library's
/// function for any other.
macro_rules! hook {
    ($($(#[$doc:meta])* fn $name:ident($first:ident: $first_ty:ty $(, $arg:ident: $ty:ty)* $(,)?)
        -> $ret:ty = |$socket:ident, $fd:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($first: $first_ty $(, $arg: $ty)*) -> $ret {
            /// # Safety
            /// As for the C function.
            #[inline(never)]
            unsafe extern "C-unwind" fn dispatched($first: $first_ty $(, $arg: $ty)*) -> $ret {
                match $crate::hooks::dispatch($first, |$socket, $fd| $body) {
                    Some(result) => result,
                    // SAFETY: the caller's arguments, unchanged.
                    None => unsafe { $crate::process::real::$name($first $(, $arg)*) },
                }
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe {
                if $crate::fd::contains($first) {
                    return dispatched($first $(, $arg)*);
                }
                $crate::process::real::$name($first $(, $arg)*)
            }
        }
    )*};
}

/// Defines hooks for other names of the same function, and for forms that check the size of a
/// buffer first.
macro_rules! alias {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $call:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller's arguments; the other name has the same contract.
            unsafe { $call }
        }
    )*};
}

pub(crate) use {alias, hook, jump};
