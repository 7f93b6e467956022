//! `setrlimit` and `prlimit`: a limit of the address space leaves out reserved addresses.
//!
//! Handles of DAT and the memory of threads are reserved addresses: they take no memory before they
//! are used, but the kernel counts them. A program that limits itself to the memory that it needs
//! could allocate none at all.

use std::ffi::{c_int, c_uint};
use std::fs;

use libc::{RLIM_INFINITY, RLIMIT_AS, pid_t, rlimit};

use super::alias;
use crate::process::{self, real};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setrlimit(resource: c_uint, limit: *const rlimit) -> c_int {
    // SAFETY: by the caller's contract the pointer is null or valid.
    match unsafe { widened(resource, limit) } {
        // SAFETY: the limit is a local variable.
        Some(limit) => unsafe { real::setrlimit(resource, &raw const limit) },
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::setrlimit(resource, limit) },
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: pid_t,
    resource: c_uint,
    limit: *const rlimit,
    before: *mut rlimit,
) -> c_int {
    let is_own = process == 0 || process == process::id();
    // SAFETY: by the caller's contract the pointer is null or valid.
    match unsafe { widened(resource, limit) }.filter(|_| is_own) {
        // SAFETY: the limit is a local variable; the other arguments are the caller's.
        Some(limit) => unsafe { real::prlimit(process, resource, &raw const limit, before) },
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { real::prlimit(process, resource, limit, before) },
    }
}

alias! {
    setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int = setrlimit(resource, limit);
    prlimit64(
        process: pid_t, resource: c_uint, limit: *const rlimit, before: *mut rlimit
    ) -> c_int = prlimit(process, resource, limit, before);
}

/// Returns a limit of the address space, increased by the reserved addresses. `None`: the program's
/// limit is to be set, because the process has not used the stack.
///
/// # Safety
/// `limit` is null or valid.
unsafe fn widened(resource: c_uint, limit: *const rlimit) -> Option<rlimit> {
    if resource != RLIMIT_AS || !process::has_owner() || process::is_vforked() {
        return None;
    }
    let mut present = rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a local variable.
    let is_known = unsafe { libc::getrlimit(RLIMIT_AS, &raw mut present) } == 0;
    // SAFETY: the caller guarantees that the pointer is null or valid.
    let limit = unsafe { limit.as_ref() }.filter(|_| is_known)?;
    Some(increased(limit, present.rlim_max, reserved()))
}

/// Returns the limit increased by `reserved`, but not above the present maximum, which only
/// privileged processes may exceed.
fn increased(limit: &rlimit, maximum: u64, reserved: u64) -> rlimit {
    let rlim_max = match limit.rlim_max {
        all if all >= maximum => all,
        lower => lower.saturating_add(reserved).min(maximum),
    };
    let rlim_cur = match limit.rlim_cur {
        RLIM_INFINITY => RLIM_INFINITY,
        lower => lower.saturating_add(reserved).min(rlim_max.max(lower)),
    };
    rlimit { rlim_cur, rlim_max }
}

/// Returns the number of bytes of this process that can be neither read nor written.
fn reserved() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().filter_map(reserved_by).sum()
}

/// Returns the length of the mapping in a line of `/proc/self/maps` if its addresses are reserved.
fn reserved_by(line: &str) -> Option<u64> {
    let (range, rest) = line.split_once(' ')?;
    let (first, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    rest.starts_with("---p")
        .then_some(address(end)?.checked_sub(address(first)?)?)
}
