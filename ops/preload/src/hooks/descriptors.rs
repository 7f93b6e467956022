//! `close`, `dup`, `fcntl` and related functions.

use std::ffi::{c_int, c_uint};

use libc::{F_DUPFD, F_DUPFD_CLOEXEC, F_SETFD, F_SETFL, F_SETOWN};

use super::{alias, eventfd, jump, unchanged};
use crate::process::{self, guard, real};
use crate::setup::signal_driven::{self, F_SETOWN_EX, F_SETSIG};
use crate::sharing::exposing;
use crate::table::{self, Entry};
use crate::tcp::made;
use crate::{deferred_removal, numbers, registrations};

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    if !table::is_plain(fd) {
        forget(fd);
    }
    registrations::record_closed(fd);
    deferred_removal::on_closed(fd);
    // SAFETY: the call takes no pointers.
    unsafe { real::close(fd) }
}

/// Removes the entry of a descriptor. The calling convention stops a panic.
#[inline(never)]
extern "C" fn forget(fd: c_int) {
    numbers::forget(fd);
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
    // The range may contain any set.
    deferred_removal::share_sets();
    let lowest = host::descriptors::lowest().unsigned_abs();
    for fd in table::within(first as usize, last as usize) {
        numbers::forget(fd);
        if fd.unsigned_abs() >= lowest {
            // SAFETY: the number is the program's, and its entry was removed above.
            unsafe { real::close(fd) };
        }
    }
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
    table::settle(fd);
    // SAFETY: the call takes no pointers.
    copy_entry(fd, unsafe { real::dup(fd) })
}

/// Hook of `dup2`. The descriptor that had the new number is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(fd: c_int, to: c_int) -> c_int {
    table::settle(fd);
    deferred_removal::make();
    // SAFETY: the call takes no pointers.
    let made = unchanged(to, || unsafe { real::dup2(fd, to) });
    if fd == to {
        return made;
    }
    replace_entry(fd, made)
}

/// Hook of `dup3`. The descriptor that had the new number is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
    table::settle(fd);
    deferred_removal::make();
    // SAFETY: the call takes no pointers.
    replace_entry(fd, unchanged(to, || unsafe { real::dup3(fd, to, flags) }))
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
        table::settle(fd);
    }
    // SAFETY: the caller's arguments, unchanged.
    let call = || unsafe { real::fcntl(fd, command, argument) };
    let result = match command {
        F_SETFL | F_SETFD => unchanged(fd, call),
        _ => call(),
    };
    match command {
        F_DUPFD_CLOEXEC if guard::is_inside() => eventfd::raise_own(result),
        F_DUPFD | F_DUPFD_CLOEXEC => copy_entry(fd, result),
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

/// Adds the entry of `fd` for `made`, a duplicate of `fd`.
fn copy_entry(fd: c_int, made: c_int) -> c_int {
    if made >= 0 {
        made::duplicate(fd, made);
        if table::is_listed(fd) && process::owns_table() {
            table::share_record(fd);
        }
    }
    while made >= 0
        && let Some(entry) = table::entry(fd)
    {
        if !process::owns_table() {
            // The child of a `vfork` duplicates the descriptor for the program that it executes
            // next.
            exposing::expose(fd);
            return made;
        }
        let Entry::Socket(socket) = &entry else {
            numbers::insert(made, entry);
            return made;
        };
        // The entry is added within a call, because a handover waits for calls in progress. A
        // handover replaces the entries of all descriptors of a connection and would miss one that
        // is added meanwhile, whose calls would then wait for ever.
        if let Some(call) = socket.begin_call() {
            socket.add_number();
            numbers::insert(made, entry.clone());
            drop(call);
            exposing::expose_standard(made);
            return made;
        }
        socket.await_decision();
    }
    made
}

/// Adds the entry of `fd` for `made`, and removes a former entry of `made`.
fn replace_entry(fd: c_int, made: c_int) -> c_int {
    deferred_removal::on_closed(made);
    if made >= 0 && table::is_plain(fd) {
        numbers::forget(made);
    }
    copy_entry(fd, made)
}
