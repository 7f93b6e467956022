//! `eventfd`, and the move of the stack's descriptors to high numbers.
//!
//! Low numbers are left to the program: some programs refuse descriptors above the size of their
//! own table, or pass them to `select`.

use std::ffi::{c_int, c_uint};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use host::descriptors::raise;

use crate::process::{guard, real};

/// Hook of `eventfd`, which the stack calls for notification objects and for threads that sleep.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the call takes no pointers.
    raise_own(unsafe { real::eventfd(count, flags) })
}

/// Moves a descriptor that the stack has made to a high number.
pub(crate) fn raise_own(made: c_int) -> c_int {
    if made < 0 || !guard::is_inside() {
        return made;
    }
    // SAFETY: the stack has just made the descriptor, and its call has not returned yet.
    let own = unsafe { OwnedFd::from_raw_fd(made) };
    match raise(own) {
        Ok(raised) => raised.into_raw_fd(),
        Err(error) => {
            crate::process::errno::set(error.raw_os_error());
            -1
        }
    }
}
