//! A removal from an `epoll` set that waits for the next call of the program.
//!
//! Event loops exchange the events of a socket by a removal and an addition (redis-benchmark,
//! libevent), which cost the kernel several times as much as a change. So the removal of a
//! connection within the host is recorded here first. An addition of the same descriptor to the
//! same set becomes one `EPOLL_CTL_MOD` for both. The kernel gets the removal before any call that
//! could show that it is late: a wait, another removal, the close of a descriptor, `exec`.
//!
//! A set is *private* while no other thread or process can wait for it: this process made it, has
//! had one thread since its start, and has neither forked nor passed the set on since then. Only
//! removals from private sets are deferred.
//!
//! A program that removes the same connection again and again uses no other and sleeps soon. Its
//! removals are not deferred: a shorter time before a sleep gains little, and on two processors of
//! a virtual machine the next wake-up took longer than the removals. The cause is probably that a
//! removal leaves memory to be freed by RCU, and that until then the kernel need not stop the tick
//! of an idle processor.
//!
//! A removal and an addition cost one system call instead of two. A removal without an addition
//! costs one, as before.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, epoll_event};

use crate::fd::slots::{existing, slot};
use crate::process::{errno, real};

/// The serial number of the last set.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The lowest serial number of a private set.
static OLDEST_PRIVATE: AtomicU32 = AtomicU32::new(1);

/// The removal that the kernel has not seen; 0 for none. It is one word, so that a signal handler
/// finds a complete removal or none.
static DEFERRED: AtomicU64 = AtomicU64::new(0);

/// The connection that was removed last.
static REMOVED_LAST: AtomicI32 = AtomicI32::new(-1);

/// Returns the word for a removal, which is not 0. Both numbers are valid descriptors.
fn word_of(set: c_int, fd: c_int) -> u64 {
    const USED: u64 = 1 << 63;
    USED | u64::from(set.unsigned_abs()) << 32 | u64::from(fd.unsigned_abs())
}

/// Records a set that the program has just made.
pub(super) fn record_set(set: c_int) {
    // The highest number is not given, so that a share of all sets has a number after theirs.
    let serial = LAST.load(Ordering::Relaxed) + 1;
    if serial < u32::MAX
        && let Some(slot) = slot(set)
    {
        LAST.store(serial, Ordering::Relaxed);
        slot.set.store(serial, Ordering::Relaxed);
    }
}

/// Returns the serial number of a private set.
fn private(set: c_int) -> Option<u32> {
    let serial = existing(set)?.set.load(Ordering::Relaxed);
    let is_private = serial >= OLDEST_PRIVATE.load(Ordering::Relaxed);
    (is_private && real::is_single_threaded()).then_some(serial)
}

/// Records that another process may use the sets that exist now.
pub(crate) fn share_sets() {
    make();
    let next = LAST.load(Ordering::Relaxed) + 1;
    OLDEST_PRIVATE.fetch_max(next, Ordering::Relaxed);
}

/// Records that the program passes a descriptor to another process.
pub(super) fn share(fd: c_int) {
    if private(fd).is_some() {
        share_sets();
    }
}

/// Returns true if the kernel has not seen the last removal.
#[inline]
pub(crate) fn is_deferred() -> bool {
    DEFERRED.load(Ordering::Relaxed) != 0
}

/// Makes the deferred removal, if there is one. Keeps `errno`.
#[inline]
pub(crate) fn make() {
    if is_deferred() {
        make_removal(DEFERRED.swap(0, Ordering::Relaxed));
    }
}

/// Removes a socket from a set. The removal fails only if the program has removed it in another
/// way.
#[cold]
fn make_removal(word: u64) {
    if word == 0 {
        return;
    }
    let set = (word >> 32) as c_int & c_int::MAX;
    let fd = word as c_int;
    let why = errno::get();
    // SAFETY: a removal reads no event.
    unsafe { real::epoll_ctl(set, EPOLL_CTL_DEL, fd, ptr::null_mut()) };
    errno::set(why);
}

/// Records that a descriptor gets another kernel object, which no set watches yet.
pub(super) fn on_new_object(fd: c_int) {
    if let Some(slot) = existing(fd) {
        slot.watched_by.store(0, Ordering::Relaxed);
        slot.watch.clear();
    }
}

/// Records that the program closes a descriptor, which may be a set.
pub(super) fn on_closed(fd: c_int) {
    if let Some(slot) = existing(fd)
        && slot.set.load(Ordering::Relaxed) != 0
    {
        make();
        slot.set.store(0, Ordering::Relaxed);
    }
}

/// Performs `epoll_ctl` for a connection within the host.
///
/// # Safety
/// As for `epoll_ctl`.
pub(crate) unsafe extern "C-unwind" fn control(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments, but for the operation; a removal reads no event.
    let call = |operation| unsafe { real::epoll_ctl(set, operation, fd, event) };
    let (Some(serial), Some(slot)) = (private(set), existing(fd)) else {
        return call(operation);
    };
    let result = match operation {
        EPOLL_CTL_DEL => {
            let is_watched = slot.watched_by.swap(0, Ordering::Relaxed) == serial;
            if is_watched && REMOVED_LAST.swap(fd, Ordering::Relaxed) != fd {
                make_removal(DEFERRED.swap(word_of(set, fd), Ordering::Relaxed));
                return 0;
            }
            make();
            call(EPOLL_CTL_DEL)
        }
        EPOLL_CTL_ADD if take(set, fd) => {
            let why = errno::get();
            if call(EPOLL_CTL_MOD) != 0 {
                // The kernel refuses to change to or from `EPOLLEXCLUSIVE`, and events at an
                // invalid address.
                call(EPOLL_CTL_DEL);
                errno::set(why);
                call(EPOLL_CTL_ADD)
            } else {
                0
            }
        }
        _ => {
            make();
            call(operation)
        }
    };
    if operation == EPOLL_CTL_ADD && result == 0 {
        slot.watched_by.store(serial, Ordering::Relaxed);
    }
    result
}

/// Takes back the deferred removal if it is this one.
fn take(set: c_int, fd: c_int) -> bool {
    let (word, order) = (word_of(set, fd), Ordering::Relaxed);
    DEFERRED.compare_exchange(word, 0, order, order).is_ok()
}
