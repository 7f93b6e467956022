//! Threads of the program in calls on a connection.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;

/// A call that moved nothing is to be made again, on the descriptor itself. The kernel uses the
/// number for the like, and no program ever sees it.
pub(crate) const ELSEWHERE: Errno = Errno::RESTART;

/// Counts them, and can have none.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    under_way: AtomicU32,
    stopped: AtomicBool,
}

/// A call; its drop is its end.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    calls: &'a Calls,
}

impl Calls {
    /// `None`: no call may begin.
    pub(crate) fn begin(&self) -> Option<UnderWay<'_>> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let call = UnderWay { calls: self };
        // Seen by `await_none`, or seeing what `stop` has stored.
        (!self.stopped.load(Ordering::SeqCst)).then_some(call)
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn allow(&self) {
        self.stopped.store(false, Ordering::SeqCst);
    }

    /// Waits until none is under way. `false`: not in time.
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
        self.calls.under_way.fetch_sub(1, Ordering::SeqCst);
        if self.calls.stopped.load(Ordering::SeqCst) {
            let word = &self.calls.under_way;
            let _ = futex::wake(word, futex::Flags::PRIVATE, u32::MAX >> 1);
        }
    }
}
