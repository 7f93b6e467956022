//! `close`, `dup`, `fcntl` and related functions.

use std::ffi::{c_int, c_uint};

use host::descriptors::OwnNumbers;
use libc::{F_DUPFD, F_DUPFD_CLOEXEC, F_SETFD, F_SETFL, F_SETOWN};

use super::{alias, eventfd, jump, unchanged};
use crate::fd::{self, removals};
use crate::process::{self, errno, guard, real};
use crate::setup::signal_driven::{self, F_SETOWN_EX, F_SETSIG};
use crate::sharing::exposing;

/// The numbers that [`close`] refuses. All libraries of this project in the process use this table.
#[unsafe(no_mangle)]
pub static OPS_OWN_NUMBERS: OwnNumbers = OwnNumbers::new();

/// Hook of `close`. A number of the library's own is not open for the program.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if OPS_OWN_NUMBERS.has(fd) {
        errno::set(libc::EBADF);
        return -1;
    }
    fd::on_closed(fd);
    // SAFETY: the call takes no pointers.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let flag = |flag: c_uint| flags & flag.cast_signed() != 0;
    let marks_only = flag(libc::CLOSE_RANGE_CLOEXEC);
    let is_refused = flag(!(libc::CLOSE_RANGE_CLOEXEC | libc::CLOSE_RANGE_UNSHARE));
    if marks_only || is_refused || first > last {
        // The library's own descriptors have the flag that is set already. The kernel closes
        // nothing for unknown flags.
        // SAFETY: the call takes no pointers.
        return unsafe { real::close_range(first, last, flags) };
    }
    let lowest = host::descriptors::lowest().unsigned_abs();
    fd::on_range_closed(first as usize, last as usize, |fd| {
        if fd.unsigned_abs() >= lowest {
            // SAFETY: the number is the program's, and its entry was removed before.
            unsafe { real::close(fd) };
        }
    });
    if last < lowest {
        // SAFETY: the range is below the library's own descriptors.
        return unsafe { real::close_range(first, last, flags) };
    }
    if first >= lowest {
        return 0;
    }
    // The library's own descriptors are not closed, because that would end every connection. The
    // program's descriptors with such high numbers cannot be distinguished from them and stay open.
    // SAFETY: the range is below the library's own descriptors.
    unsafe { real::close_range(first, lowest - 1, flags) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let from = first.max(0).unsigned_abs();
    // SAFETY: the function takes no pointers.
    if unsafe { close_range(from, c_uint::MAX, 0) } != 0 {
        // SAFETY: the call takes no pointers.
        unsafe { real::closefrom(first) }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    fd::settle(fd);
    // SAFETY: the call takes no pointers.
    duplicated(fd, unsafe { real::dup(fd) })
}

/// Hook of `dup2`. The descriptor that had the new number is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    fd::settle(fd);
    removals::make();
    // SAFETY: the call takes no pointers.
    let made = unchanged(to, || unsafe { real::dup2(fd, to) });
    if fd == to {
        return made;
    }
    replaced(fd, made)
}

/// Hook of `dup3`. The descriptor that had the new number is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    fd::settle(fd);
    removals::make();
    // SAFETY: the call takes no pointers.
    replaced(fd, unchanged(to, || unsafe { real::dup3(fd, to, flags) }))
}

jump! {
    /// Hook of `fcntl`, whose variable argument is one word in every command.
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int =
        if is_of_library(command) => control_in_library;
}

/// Returns true for a command whose effect this library must know.
fn is_of_library(command: c_int) -> bool {
    matches!(
        command,
        F_DUPFD | F_DUPFD_CLOEXEC | F_SETFL | F_SETFD | F_SETOWN | F_SETOWN_EX | F_SETSIG
    )
}

/// Performs `fcntl`.
///
/// # Safety
/// As for `fcntl`.
#[inline(never)]
unsafe extern "C-unwind" fn control_in_library(
    fd: c_int,
    command: c_int,
    argument: usize,
) -> c_int {
    if matches!(command, F_DUPFD | F_DUPFD_CLOEXEC) {
        fd::settle(fd);
    }
    // SAFETY: the caller's arguments, unchanged.
    let call = || unsafe { real::fcntl(fd, command, argument) };
    let result = match command {
        F_SETFL | F_SETFD => unchanged(fd, call),
        _ => call(),
    };
    match command {
        F_DUPFD_CLOEXEC if guard::is_inside() => eventfd::raise_own(result),
        F_DUPFD | F_DUPFD_CLOEXEC => duplicated(fd, result),
        F_SETFL | F_SETOWN | F_SETOWN_EX | F_SETSIG if result == 0 => {
            signal_driven::on_changed(fd);
            result
        }
        _ => result,
    }
}

alias! {
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int = fcntl(fd, command, argument);
    __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int = fcntl(fd, command, argument);
    __close(fd: c_int) -> c_int = close(fd);
    __dup2(fd: c_int, to: c_int) -> c_int = dup2(fd, to);
}

/// Records the result of a call that duplicates `fd` under a free number.
fn duplicated(fd: c_int, made: c_int) -> c_int {
    if is_recorded(fd, made) {
        fd::on_duplicated(fd, made);
        exposing::expose_standard(made);
    }
    made
}

/// Records the result of a call that duplicates `fd` under a number that may be in use.
fn replaced(fd: c_int, made: c_int) -> c_int {
    if is_recorded(fd, made) {
        fd::on_replaced(fd, made);
        exposing::expose_standard(made);
    }
    made
}

/// Returns true if a duplicate must be recorded. The child of a `vfork` records nothing: it
/// duplicates the descriptor for the program that it executes next.
fn is_recorded(fd: c_int, made: c_int) -> bool {
    if made < 0 || !(fd::is_in_use(fd) || fd::is_in_use(made)) {
        return false;
    }
    let is_own = !process::is_vforked();
    if !is_own {
        exposing::expose(fd);
    }
    is_own
}
