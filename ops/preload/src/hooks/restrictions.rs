//! `prctl`, by which a program restricts its system calls. `seccomp` has no function of its own.

use std::ffi::{c_int, c_long, c_ulong};

use super::jump;
use crate::local::spinning;
use crate::process::restrictions;
use crate::sharing::exposing;

jump! {
    /// Hook of `prctl`, whose variable arguments are words in every option.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int =
        if option == libc::PR_SET_SECCOMP => restrict_in_library;
}

/// Performs `prctl` with an option that restricts the process.
///
/// # Safety
/// As for `prctl`.
#[inline(never)]
unsafe extern "C-unwind" fn restrict_in_library(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    before_restriction();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { crate::process::real::prctl(option, a, b, c, d) }
}

/// Returns true for a system call that restricts the process, with this first argument.
pub(super) fn is_restriction(number: c_long, option: c_long) -> bool {
    number == libc::SYS_seccomp
        || (number == libc::SYS_prctl && option == c_long::from(libc::PR_SET_SECCOMP))
}

/// Ends the system calls that the program does not make itself. Connections that the kernel does
/// not carry pass through their socket pairs from now on: other threads or processes, which the
/// filter does not restrict, carry the bytes.
pub(super) fn before_restriction() {
    exposing::expose_all();
    restrictions::set_restricted();
    spinning::end();
}
