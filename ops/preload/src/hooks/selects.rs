//! `select`: a wait with sets of bits.
//!
//! A set with listeners is converted to one of `poll`, because the counters of offloaded
//! connections may have numbers beyond the sets.

use std::ffi::{c_int, c_long, c_ulong};
use std::ptr;
use std::time::{Duration, Instant};

use libc::{
    FD_SETSIZE, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, nfds_t, pollfd,
    sigset_t, timespec, timeval,
};

use super::waits::{is_plausible_address, ppoll_all, ppoll_now, spec};
use super::{alias, jump};
use crate::fd::{self, removals};
use crate::process::{errno, guard, real};
use crate::socket::polling;

/// Returns true if a `select` of this process has work before it sleeps.
#[inline]
fn has_work() -> bool {
    polling::is_in_use() || fd::has_listeners() || removals::is_deferred()
}

jump! {
    fn select(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int = if has_work() => select_in_library;

    fn pselect(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, except: *mut fd_set,
        timeout: *const timespec, mask: *const sigset_t,
    ) -> c_int = if has_work() => pselect_in_library;
}

/// Performs `select` on sets that may contain listeners, and may poll before it sleeps.
///
/// # Safety
/// As for `select`.
#[inline(never)]
unsafe extern "C-unwind" fn select_in_library(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    removals::make();
    if !are_plausible([readable, writable, except]) {
        polling::end_all();
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::select(count, readable, writable, except, timeout) };
    }
    // SAFETY: the caller's sets and timeout.
    let is_interrupted = unsafe {
        let may_poll = timeout.as_ref().is_none_or(is_long_span);
        poll_before_select(count, [readable, writable, except], may_poll)
    };
    if is_interrupted {
        return -1;
    }
    if !fd::has_listeners() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::select(count, readable, writable, except, timeout) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { select_with_listeners(count, readable, writable, except, timeout) }
}

/// Polls before a `select`, which then finds the events. Returns true if a signal has ended the
/// wait.
///
/// # Safety
/// The sets are null or hold `count` bits.
#[inline(never)]
unsafe fn poll_before_select(count: c_int, sets: [*mut fd_set; 3], may_poll: bool) -> bool {
    let mut made = None;
    let ask = || {
        // SAFETY: the caller guarantees the sets.
        let made = made.get_or_insert_with(|| unsafe { Sets::of(count, sets) });
        let wanted = &mut made.wanted;
        // SAFETY: the set is a local vector.
        unsafe { ppoll_now(wanted.as_mut_ptr(), wanted.len() as nfds_t) }
    };
    polling::before_wait(may_poll, ask) == Some(-1)
}

/// # Safety
/// As for `select`.
// A separate function, because a cancelled thread must have nothing to drop in the hook itself.
#[inline(never)]
unsafe fn select_with_listeners(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the caller's sets.
    let mut sets = unsafe { Sets::of(count, [readable, writable, except]) };
    if !sets.has_listener() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::select(count, readable, writable, except, timeout) };
    }
    let start = Instant::now();
    // SAFETY: by the caller's contract the timeout is null or valid.
    let limit = match unsafe { timeout.as_ref() } {
        None => None,
        Some(limit) => match span(limit) {
            Some(limit) => Some(limit),
            None => {
                errno::set(libc::EINVAL);
                return -1;
            }
        },
    };
    let spec = limit.map(spec);
    let spec = spec.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the caller's sets, and a local timeout.
    let ready = unsafe { sets.wait(spec, ptr::null()) };
    if let Some(limit) = limit {
        let left = limit.saturating_sub(start.elapsed());
        // SAFETY: the caller's timeout was read above. Linux writes the remaining time to it.
        unsafe {
            (*timeout).tv_sec = c_long::try_from(left.as_secs()).unwrap_or(c_long::MAX);
            (*timeout).tv_usec = left.subsec_micros().into();
        }
    }
    ready
}

/// Performs `pselect` on sets that may contain listeners, and may poll before it sleeps.
///
/// # Safety
/// As for `pselect`.
#[inline(never)]
unsafe extern "C-unwind" fn pselect_in_library(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    removals::make();
    if !are_plausible([readable, writable, except]) {
        polling::end_all();
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::pselect(count, readable, writable, except, timeout, mask) };
    }
    let may_poll = timeout.is_null() && mask.is_null();
    // SAFETY: the caller's sets.
    if unsafe { poll_before_select(count, [readable, writable, except], may_poll) } {
        return -1;
    }
    if !fd::has_listeners() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::pselect(count, readable, writable, except, timeout, mask) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { pselect_with_listeners(count, readable, writable, except, timeout, mask) }
}

/// # Safety
/// As for `pselect`.
#[inline(never)]
unsafe fn pselect_with_listeners(
    count: c_int,
    readable: *mut fd_set,
    writable: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's sets.
    let mut sets = unsafe { Sets::of(count, [readable, writable, except]) };
    if !sets.has_listener() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::pselect(count, readable, writable, except, timeout, mask) };
    }
    // SAFETY: the caller's sets, timeout and mask.
    unsafe { sets.wait(timeout, mask) }
}

/// Returns true if each set is null or at an address that programs use. The kernel refuses all
/// others.
fn are_plausible(sets: [*mut fd_set; 3]) -> bool {
    sets.iter()
        .all(|set| set.is_null() || is_plausible_address(*set))
}

/// Returns true for a timeout that polls do not exceed.
fn is_long_span(timeout: &timeval) -> bool {
    timeout.tv_sec > 0 || timeout.tv_usec >= 10_000
}

/// Converts a time from C. `select` accepts more than a million microseconds.
fn span(time: &timeval) -> Option<Duration> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let micros = u64::try_from(time.tv_usec).ok()?;
    Duration::from_secs(seconds).checked_add(Duration::from_micros(micros))
}

/// The three sets of a `select`.
struct Sets {
    sets: [*mut fd_set; 3],
    wanted: Vec<pollfd>,
}

/// The events to request from `poll` for each set, and the results that mean "ready".
const REQUESTED: [i16; 3] = [POLLIN, POLLOUT, POLLPRI];
const READY: [i16; 3] = [POLLIN | POLLHUP | POLLERR, POLLOUT | POLLERR, POLLPRI];

impl Sets {
    /// # Safety
    /// The sets are null or hold `count` bits.
    unsafe fn of(count: c_int, sets: [*mut fd_set; 3]) -> Self {
        let mut wanted = Vec::new();
        for fd in 0..select_bits(count) {
            let mut events = 0;
            for (set, requested) in sets.iter().zip(REQUESTED) {
                // SAFETY: the caller's set has `count` bits.
                if !set.is_null() && unsafe { has_bit(fd, *set) } {
                    events |= requested;
                }
            }
            if events != 0 {
                wanted.push(pollfd {
                    fd,
                    events,
                    revents: 0,
                });
            }
        }
        Self { sets, wanted }
    }

    /// Returns true if the sets contain a listener with an offload protocol next to it.
    fn has_listener(&self) -> bool {
        let mut wanted = self.wanted.iter();
        wanted.any(|entry| fd::is_listener(entry.fd))
    }

    /// Waits with `ppoll`, because the counters of listeners may have numbers beyond the sets.
    ///
    /// # Safety
    /// The timeout and the mask are null or valid.
    unsafe fn wait(&mut self, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        let count = self.wanted.len() as nfds_t;
        // SAFETY: the set is a local vector.
        let ready = unsafe { ppoll_all(self.wanted.as_mut_ptr(), count, timeout, mask) };
        if ready < 0 {
            return ready;
        }
        if self
            .wanted
            .iter()
            .any(|entry| entry.revents & POLLNVAL != 0)
        {
            errno::set(libc::EBADF);
            return -1;
        }
        let mut bits = 0;
        for entry in &self.wanted {
            for ((set, requested), ready_events) in self.sets.iter().zip(REQUESTED).zip(READY) {
                if entry.events & requested == 0 {
                    continue;
                }
                if entry.revents & ready_events != 0 {
                    bits += 1;
                } else {
                    // SAFETY: the bit was found in this set.
                    unsafe { clear_bit(entry.fd, *set) };
                }
            }
        }
        bits
    }
}

/// Returns the number of bits that the kernel reads, which is limited by the size of the descriptor
/// table. Some programs make sets larger than `fd_set`. Some pass their descriptor limit as the
/// count, with a set of the usual size.
fn select_bits(count: c_int) -> c_int {
    if count <= FD_SETSIZE as c_int {
        return count;
    }
    let _inside = guard::enter();
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    let size = size.and_then(|size| size.trim().parse().ok());
    count.min(size.unwrap_or(FD_SETSIZE as c_int))
}

/// Returns the word and the bit of a descriptor in a set. The C library's macros support one set
/// size only.
fn word(fd: c_int, set: *mut fd_set) -> (*mut c_ulong, c_ulong) {
    let bits = c_ulong::BITS as usize;
    let at = usize::try_from(fd).unwrap_or(0);
    (
        set.cast::<c_ulong>().wrapping_add(at / bits),
        1 << (at % bits),
    )
}

/// # Safety
/// The set is large enough to hold the bit.
unsafe fn has_bit(fd: c_int, set: *mut fd_set) -> bool {
    let (word, bit) = word(fd, set);
    // SAFETY: the caller guarantees that the set holds the bit.
    unsafe { word.read_unaligned() & bit != 0 }
}

/// # Safety
/// The set is large enough to hold the bit.
unsafe fn clear_bit(fd: c_int, set: *mut fd_set) {
    let (word, bit) = word(fd, set);
    // SAFETY: the caller guarantees that the set holds the bit.
    unsafe { word.write_unaligned(word.read_unaligned() & !bit) };
}

alias! {
    __select(
        count: c_int, readable: *mut fd_set, writable: *mut fd_set, except: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int = select(count, readable, writable, except, timeout);
}
