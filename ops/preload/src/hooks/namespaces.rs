//! `setns` and `unshare`, by which a thread enters another network namespace.

use std::ffi::c_int;

use crate::process::real;
use crate::tcp::namespaces;

/// Hook of `setns`.
///
/// # Safety
/// The function takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(fd: c_int, kind: c_int) -> c_int {
    // With a kind of zero, the descriptor decides.
    if kind == 0 || kind & libc::CLONE_NEWNET != 0 {
        namespaces::record_change();
    }
    // SAFETY: the call takes no pointers.
    unsafe { real::setns(fd, kind) }
}

/// Hook of `unshare`.
///
/// # Safety
/// The function takes no pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_NEWNET != 0 {
        namespaces::record_change();
    }
    // SAFETY: the call takes no pointers.
    unsafe { real::unshare(flags) }
}
