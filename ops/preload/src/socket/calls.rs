//! Threads of the program in calls on a connection.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;

/// The result of a call that is to step aside, because other processes are to use the connection.
/// The kernel uses this number for restarts, and no program ever sees it.
pub(super) const ELSEWHERE: Errno = Errno::RESTART;

/// The calls that are under way. They can be counted, and stopped.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    under_way: AtomicU32,
    stopped: AtomicBool,
}

/// A call, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    calls: &'a Calls,
}

impl Calls {
    /// Begins a call; `None` while no call may begin.
    pub(crate) fn begin(&self) -> Option<UnderWay<'_>> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let call = UnderWay { calls: self };
        // Either `await_none` sees this call, or this call sees what `stop` has stored.
        (!self.are_stopped()).then_some(call)
    }

    /// Returns true while no call may go on.
    pub(crate) fn are_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// A call that is under way steps aside, because another process wants the connection. Returns
    /// true when calls may go on: this call is under way again. Returns false when `is_over` says
    /// that they never will; it is called in a loop, so it waits a moment.
    pub(super) fn step_aside(&self, is_over: impl Fn() -> bool) -> bool {
        self.leave();
        loop {
            if let Some(call) = self.begin() {
                std::mem::forget(call);
                return true;
            }
            if is_over() {
                // The drop of the call counts down once more. No thread waits for the count any
                // more.
                self.under_way.fetch_add(1, Ordering::SeqCst);
                return false;
            }
        }
    }

    fn leave(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.are_stopped() {
            let flags = futex::Flags::PRIVATE;
            let _ = futex::wake(&self.under_way, flags, u32::MAX >> 1);
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn allow(&self) {
        self.stopped.store(false, Ordering::SeqCst);
    }

    /// Waits until no call is under way. Returns false when the time has passed.
    pub(crate) fn await_none(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        loop {
            let count = self.under_way.load(Ordering::SeqCst);
            if count == 0 {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = futex::Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let flags = futex::Flags::PRIVATE;
            let _ = futex::wait(&self.under_way, flags, count, Some(&timeout));
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.calls.leave();
    }
}
