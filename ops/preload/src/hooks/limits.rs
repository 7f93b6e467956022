//! `setrlimit` and related calls: a limit of the address space leaves out reserved addresses.
//!
//! Handles of DAT and the memory of threads are reserved addresses: they take no memory before they
//! are used, but the kernel counts them. A program that limits itself to the memory that it needs
//! could allocate none at all. So the kernel gets a higher limit, and the program reads the limit
//! that it has set.

use std::ffi::{c_int, c_uint};
use std::sync::Mutex;
use std::{fs, ptr};

use libc::{RLIM_INFINITY, RLIMIT_AS, pid_t, rlimit};

use super::alias;
use crate::process::{self, real};

/// The limit that the program has set, and the kernel's limit in its place. The lock is only tried,
/// because it may be held at a fork, or by a thread that a signal handler has interrupted.
static LIMIT: Mutex<Option<(rlimit, rlimit)>> = Mutex::new(None);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prlimit(
    process: pid_t,
    resource: c_uint,
    limit: *const rlimit,
    before: *mut rlimit,
) -> c_int {
    if resource != RLIMIT_AS || process != 0 && process != process::id() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::prlimit(process, resource, limit, before) };
    }
    // SAFETY: by the caller's contract the pointer is null or valid.
    let wanted = unsafe { limit.as_ref() }.copied();
    let widened = wanted.and_then(|wanted| widened(&wanted));
    let given = widened.as_ref().map_or(limit, ptr::from_ref);
    // SAFETY: the limit is the caller's or a local variable; the other arguments are the caller's.
    let result = unsafe { real::prlimit(process, resource, given, before) };
    if result == 0
        && let Ok(mut set) = LIMIT.try_lock()
    {
        // SAFETY: by the caller's contract the pointer is null or valid.
        if let Some(before) = unsafe { before.as_mut() }
            && let Some((own, kernel)) = *set
            && (before.rlim_cur, before.rlim_max) == (kernel.rlim_cur, kernel.rlim_max)
        {
            *before = own;
        }
        *set = wanted.zip(widened).or(*set);
    }
    result
}

alias! {
    prlimit64(
        process: pid_t, resource: c_uint, limit: *const rlimit, before: *mut rlimit
    ) -> c_int = prlimit(process, resource, limit, before);
    setrlimit(resource: c_uint, limit: *const rlimit) -> c_int =
        prlimit(0, resource, limit, ptr::null_mut());
    setrlimit64(resource: c_uint, limit: *const rlimit) -> c_int = setrlimit(resource, limit);
    getrlimit(resource: c_uint, limit: *mut rlimit) -> c_int =
        prlimit(0, resource, ptr::null(), limit);
    getrlimit64(resource: c_uint, limit: *mut rlimit) -> c_int = getrlimit(resource, limit);
}

/// Returns a limit of the address space, increased by the reserved addresses. `None`: the program's
/// limit is to be set, because the process has not used the stack.
fn widened(limit: &rlimit) -> Option<rlimit> {
    if !process::has_owner() || process::is_vforked() {
        return None;
    }
    let mut present = rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a local variable.
    let known = unsafe { real::prlimit(0, RLIMIT_AS, ptr::null(), &raw mut present) };
    (known == 0).then(|| increased(limit, present.rlim_max, reserved()))
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
