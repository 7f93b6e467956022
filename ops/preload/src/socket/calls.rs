//! Counts and stops the calls of this process on a connection.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::thread::futex;

/// The result of a call that must stop using the stream, because another process requests the
/// connection. The kernel uses this number for restarts, and no program ever sees it.
pub(super) const HANDED_OVER: Errno = Errno::RESTART;

/// The calls in progress on one connection.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    in_progress: AtomicU32,
    is_stopped: AtomicBool,
}

/// A call in progress, which ends when the guard is dropped.
#[derive(Debug)]
pub(crate) struct CallGuard<'a> {
    calls: &'a Calls,
}

impl Calls {
    /// Begins a call. `None`: calls are stopped.
    pub(crate) fn begin(&self) -> Option<CallGuard<'_>> {
        self.in_progress.fetch_add(1, Ordering::SeqCst);
        let call = CallGuard { calls: self };
        // Either `await_none` counts this call, or this call reads the flag that `stop` has set.
        (!self.is_stopped()).then_some(call)
    }

    /// Returns true while no call may use the stream.
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Pauses a call in progress while calls are stopped. Returns true when calls are allowed
    /// again; the call then counts as in progress. Returns false when `is_over` returns true.
    /// `is_over` is called in a loop, so it must wait for a moment.
    pub(super) fn pause(&self, is_over: impl Fn() -> bool) -> bool {
        self.end_one();
        loop {
            if let Some(call) = self.begin() {
                std::mem::forget(call);
                return true;
            }
            if is_over() {
                // Balances the decrement when the call is dropped. No thread waits for the count
                // any more.
                self.in_progress.fetch_add(1, Ordering::SeqCst);
                return false;
            }
        }
    }

    /// Sleeps within a call in progress, which does not count as such meanwhile: a handler may
    /// leave the call by `siglongjmp`. Fails with [`HANDED_OVER`] if calls are stopped afterwards.
    pub(super) fn while_asleep(
        &self,
        sleep: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.end_one();
        let slept = sleep();
        self.in_progress.fetch_add(1, Ordering::SeqCst);
        // As in `begin`, a call that is not counted by `await_none` finds the flag.
        match slept {
            Ok(()) if self.is_stopped() => Err(HANDED_OVER),
            slept => slept,
        }
    }

    fn end_one(&self) {
        self.in_progress.fetch_sub(1, Ordering::SeqCst);
        if self.is_stopped() {
            let flags = futex::Flags::PRIVATE;
            let _ = futex::wake(&self.in_progress, flags, u32::MAX >> 1);
        }
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
    }

    pub(crate) fn allow(&self) {
        self.is_stopped.store(false, Ordering::SeqCst);
    }

    /// Waits until no call is in progress. Returns false if the time has passed before.
    pub(crate) fn await_none(&self, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        loop {
            let count = self.in_progress.load(Ordering::SeqCst);
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
            let _ = futex::wait(&self.in_progress, flags, count, Some(&timeout));
        }
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.calls.end_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_sleeps_does_not_delay_a_hand_over() {
        let calls = Calls::default();
        let call = calls.begin().unwrap();
        assert!(!calls.await_none(Duration::ZERO));
        let slept = calls.while_asleep(|| {
            calls.stop();
            assert!(calls.await_none(Duration::ZERO));
            Ok(())
        });
        assert_eq!(slept, Err(HANDED_OVER), "the call uses the stream no more");
        let interrupted = calls.while_asleep(|| Err(Errno::INTR));
        assert_eq!(interrupted, Err(Errno::INTR));
        calls.allow();
        assert_eq!(calls.while_asleep(|| Ok(())), Ok(()));
        assert!(!calls.await_none(Duration::ZERO));
        drop(call);
        assert!(calls.await_none(Duration::ZERO));
    }
}
