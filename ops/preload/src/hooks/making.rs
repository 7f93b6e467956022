//! Making descriptors: those that the stack makes are put out of the program's way.
//!
//! Programs size their tables by the connections that they mean to have, and refuse higher numbers;
//! others hand numbers to `select`.

use std::ffi::{c_int, c_uint};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use host::descriptors::raise;

use crate::process::{guard, real};

/// Hook of `eventfd`: the stack has several for each connection.
///
/// # Safety
/// It takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eventfd(count: c_uint, flags: c_int) -> c_int {
    // SAFETY: the caller's numbers.
    placed(unsafe { real::eventfd(count, flags) })
}

/// Moves a descriptor that the stack has made to a high number.
pub(crate) fn placed(made: c_int) -> c_int {
    if made < 0 || !guard::is_inside() {
        return made;
    }
    // SAFETY: the kernel has just given it to the stack, whose call has not returned.
    let own = unsafe { OwnedFd::from_raw_fd(made) };
    match raise(own) {
        Ok(raised) => raised.into_raw_fd(),
        Err(error) => {
            crate::process::errno::set(error.raw_os_error());
            -1
        }
    }
}
