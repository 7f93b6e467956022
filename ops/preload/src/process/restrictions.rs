//! Restrictions of system calls that the program has imposed on itself.
//!
//! A filter of `seccomp` may end a process that makes a system call which the program does not make
//! itself. After a program has installed a filter, this library makes only the system calls that
//! the program names, on connections within the host and on those whose pairs carry bytes. A filter
//! that a program inherits is not noticed.

use std::sync::atomic::{AtomicBool, Ordering};

static IS_RESTRICTED: AtomicBool = AtomicBool::new(false);

/// Records that the program installs a filter. Called before the kernel applies it, because it may
/// apply to the other threads at once.
pub(crate) fn set_restricted() {
    IS_RESTRICTED.store(true, Ordering::Relaxed);
}

/// Returns true once the program has installed a filter.
#[inline]
pub(crate) fn is_restricted() -> bool {
    IS_RESTRICTED.load(Ordering::Relaxed)
}
