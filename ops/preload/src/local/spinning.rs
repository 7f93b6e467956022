//! Polling before sleeping, which `opsrun --spin` enables.
//!
//! Waking a sleeping thread takes longer than all other work for a short local message. So a thread
//! that is about to wait for a local connection polls it for [`OPS_SPIN`](VARIABLE) microseconds
//! first, by the program's own call without a timeout. After that the call waits as usual.
//!
//! A thread polls only while a processor is idle: between two polls it yields to other threads, and
//! the duration of that call shows whether another thread has run. [`PollingPolicy`] decides which
//! waits poll.

use std::cell::Cell;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::{MSG_DONTWAIT, MSG_WAITALL, nfds_t, pollfd, ssize_t};

use crate::local::polling_policy::{Polled, PollingPolicy};
use crate::process::{errno, is_nonblocking};
use crate::table;

/// The environment variable that holds the time to poll in microseconds.
const VARIABLE: &str = "OPS_SPIN";

/// The maximum time to poll in microseconds. Polling longer than a wake-up takes gains nothing.
const MOST_US: u32 = 1000;

/// The maximum duration of a `sched_yield` during which no other thread has run.
const ALONE: Duration = Duration::from_micros(5);

/// The time to poll, in microseconds; 0 disables polling.
static LIMIT_US: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static POLICY: Cell<PollingPolicy> = const { Cell::new(PollingPolicy::new()) };
}

/// Reads the environment, when the library is loaded.
pub(crate) fn begin() {
    let limit = host::environment::variable(VARIABLE).and_then(|text| text.to_str()?.parse().ok());
    if let Some(limit) = limit {
        start();
        LIMIT_US.store(MOST_US.min(limit), Ordering::Relaxed);
    }
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}

/// Returns true in programs that `opsrun --spin` has started.
#[inline]
pub(crate) fn is_on() -> bool {
    LIMIT_US.load(Ordering::Relaxed) != 0
}

/// Receives data that is available or arrives soon, by a call that takes flags. `None`: the caller
/// must make the call as the program made it.
#[inline]
pub(crate) fn receive(
    fd: c_int,
    flags: c_int,
    mut call: impl FnMut(c_int) -> ssize_t,
) -> Option<ssize_t> {
    if !is_on() || flags & MSG_WAITALL != 0 || !table::is_local(fd) || !must_poll() {
        return None;
    }
    let before = errno::get();
    let mut receive_now = || {
        let received = call(flags | MSG_DONTWAIT);
        (received >= 0 || errno::get() != libc::EAGAIN).then_some(received)
    };
    if let Some(received) = receive_now() {
        return Some(received);
    }
    // SAFETY: the kernel has just answered a call on the number, so it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    if flags & MSG_DONTWAIT != 0 || is_nonblocking(socket) {
        errno::set(libc::EAGAIN);
        return Some(-1);
    }
    let received = poll(receive_now);
    if received.is_none_or(|received| received >= 0) {
        errno::set(before);
    }
    received
}

/// Polls an `epoll` set of a program that has local connections. `ask` is the program's call
/// without a timeout. `None`: the caller must make the call as the program made it.
#[inline]
pub(crate) fn await_set(is_waiting: bool, ask: impl Fn() -> c_int) -> Option<c_int> {
    if !is_on() || !is_waiting || !table::has_local() || !must_poll() {
        return None;
    }
    poll(|| unless_zero(ask()))
}

/// Polls a set of `poll` that has local connections. `ask` is the program's call without a timeout.
/// `None`: the caller must make the call as the program made it.
///
/// # Safety
/// The contract of `poll`. `ask` makes the kernel check that the set is readable.
#[inline]
pub(crate) unsafe fn await_poll(
    set: *const pollfd,
    count: nfds_t,
    is_waiting: bool,
    ask: impl Fn() -> c_int,
) -> Option<c_int> {
    if !is_on() || !is_waiting || !table::has_local() || !must_poll() {
        return None;
    }
    if let Some(ready) = unless_zero(ask()) {
        return Some(ready);
    }
    // SAFETY: the kernel has just read this many entries.
    let is_local = |at| table::is_local(unsafe { set.add(at).read_unaligned() }.fd);
    if !(0..count as usize).any(is_local) {
        return None;
    }
    poll(|| unless_zero(ask()))
}

fn unless_zero(ready: c_int) -> Option<c_int> {
    (ready != 0).then_some(ready)
}

/// Returns true if this call of the thread must poll before it waits. A call that does not poll
/// costs nothing more than without `opsrun --spin`.
fn must_poll() -> bool {
    change(|policy| policy.on_wait(|| since_start(Instant::now())))
}

/// Changes the policy of the thread. Returns false for a thread that is ending.
fn change(change: impl FnOnce(&mut PollingPolicy) -> bool) -> bool {
    let changed = POLICY.try_with(|cell| {
        let mut policy = cell.get();
        let result = change(&mut policy);
        cell.set(policy);
        result
    });
    changed.unwrap_or(false)
}

fn since_start(at: Instant) -> Duration {
    at.saturating_duration_since(start())
}

/// Polls by `ask`, and records the result in the policy of the thread.
#[cold]
fn poll<T>(ask: impl FnMut() -> Option<T>) -> Option<T> {
    let (polled, result, at) = poll_until_time(Instant::now(), ask);
    change(|policy| {
        policy.on_polled(polled, since_start(at));
        true
    });
    result
}

/// Calls `ask` until it returns a result, the time is over, or another thread uses the processor.
/// Returns the time of the end too.
fn poll_until_time<T>(
    begun: Instant,
    mut ask: impl FnMut() -> Option<T>,
) -> (Polled, Option<T>, Instant) {
    let end = begun + Duration::from_micros(LIMIT_US.load(Ordering::Relaxed).into());
    let mut back = begun;
    loop {
        if let Some(result) = ask() {
            return (Polled::Found, Some(result), back);
        }
        let asked = Instant::now();
        rustix::thread::sched_yield();
        back = Instant::now();
        if back.duration_since(asked) > ALONE {
            return (Polled::Interrupted, None, back);
        }
        if back >= end {
            return (Polled::Nothing, None, back);
        }
    }
}
