//! The kernel's clocks.
//!
//! They are read through the C library. rustix finds the kernel's function for them by itself, at
//! an address that is not mapped in a program under valgrind.
//!
//! A program may run with a library that replaces `clock_gettime`, so that the program sees another
//! time (libfaketime). Limits of connections must not depend on that time. So this module defines a
//! hidden symbol `clock_gettime`, to which the linker binds the calls of a library of this project,
//! those of the standard library included. The symbol leads to the C library's own function.

use std::ffi::c_int;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

#[cfg(all(target_arch = "x86_64", not(miri)))]
std::arch::global_asm!(
    ".globl clock_gettime",
    ".hidden clock_gettime",
    ".type clock_gettime,@function",
    "clock_gettime: jmp {}",
    sym clock_gettime_of_c_library,
);

#[cfg(all(target_arch = "aarch64", not(miri)))]
std::arch::global_asm!(
    ".globl clock_gettime",
    ".hidden clock_gettime",
    ".type clock_gettime,%function",
    "clock_gettime: b {}",
    sym clock_gettime_of_c_library,
);

type GetTime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The C library's function; null: not found yet.
static FOUND: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Finds the C library's function. Otherwise the first reading of a clock does this, which may be
/// in a signal handler.
pub fn find() {
    // SAFETY: the arguments are valid. The handle stays open, as the library itself does.
    let found = unsafe {
        let library = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        match library.is_null() {
            true => ptr::null_mut(),
            false => libc::dlsym(library, c"clock_gettime".as_ptr()),
        }
    };
    let by_kernel: GetTime = clock_gettime_of_kernel;
    let found = if found.is_null() {
        by_kernel as *mut ()
    } else {
        found.cast()
    };
    FOUND.store(found, Ordering::Relaxed);
}

#[cfg_attr(
    any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    expect(dead_code, reason = "the symbol is not defined")
)]
unsafe extern "C" fn clock_gettime_of_c_library(
    clock: libc::clockid_t,
    to: *mut libc::timespec,
) -> c_int {
    if FOUND.load(Ordering::Relaxed).is_null() {
        find();
    }
    let found = FOUND.load(Ordering::Relaxed);
    // SAFETY: `find` has stored a function of this type. The arguments are the caller's.
    unsafe { mem::transmute::<*mut (), GetTime>(found)(clock, to) }
}

/// Reads a clock where the process has another C library.
unsafe extern "C" fn clock_gettime_of_kernel(
    clock: libc::clockid_t,
    to: *mut libc::timespec,
) -> c_int {
    // SAFETY: the arguments are the caller's.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, to) as c_int }
}

/// A clock of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Time since some point in the past. Does not run while the machine is suspended.
    Monotonic,
    /// Time since the machine started, including the time for which it was suspended.
    Boot,
    /// Time since 1970, which may be set.
    Real,
}

impl Clock {
    /// Returns the time of the clock.
    #[must_use]
    pub fn now(self) -> Duration {
        let clock = match self {
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::Boot => libc::CLOCK_BOOTTIME,
            Self::Real => libc::CLOCK_REALTIME,
        };
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the structure is valid for writes. The call cannot fail, because Linux has had
        // these clocks since 2.6.39.
        unsafe { libc::clock_gettime(clock, &raw mut now) };
        let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0));
        seconds + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_clocks_tell_the_time() {
        let before = SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let real = Clock::Real.now();
        assert!(before <= real && real <= SystemTime::UNIX_EPOCH.elapsed().unwrap());
        let monotonic = Clock::Monotonic.now();
        assert!(monotonic <= Clock::Monotonic.now());
        assert!(monotonic <= Clock::Boot.now() && !monotonic.is_zero());
    }
}
