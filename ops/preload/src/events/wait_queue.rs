//! The queue on which threads of the program sleep in a blocking call.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustix::thread::futex;

use crate::process::cancellation::{self, CANCELLED};
use crate::process::guard;

/// A counter of wake-ups; a thread sleeps on it until it changes.
///
/// The sleep is the kernel's `futex`. Without a deadline, a signal whose handler was installed with
/// `SA_RESTART` does not end the sleep; with a deadline, every signal does. A call on a TCP socket
/// behaves in the same way.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    seq: AtomicU32,
    sleepers: AtomicU32,
    /// Callers of [`hold`](Self::hold).
    holders: AtomicU32,
    /// True if a wake-up was held.
    is_held: AtomicBool,
}

impl WaitQueue {
    /// Returns the current count. Read it before checking for work, and pass it to
    /// [`sleep`](Self::sleep) if there was none.
    pub(crate) fn seq(&self) -> u32 {
        self.seq.load(Ordering::Acquire)
    }

    /// Returns true while a thread sleeps.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.load(Ordering::SeqCst) > 0
    }

    /// Wakes all sleeping threads. Makes no system call if none sleeps.
    pub(crate) fn wake(&self) {
        self.seq.fetch_add(1, Ordering::SeqCst);
        if self.holders.load(Ordering::SeqCst) == 0 {
            return self.wake_sleepers();
        }
        self.is_held.store(true, Ordering::SeqCst);
        if self.holders.load(Ordering::SeqCst) == 0 {
            // The last holder may have released before `is_held` was set.
            self.wake_sleepers();
        }
    }

    /// Delays further wake-ups until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes the sleeping threads if a wake-up was held.
    pub(crate) fn release(&self) {
        self.holders.fetch_sub(1, Ordering::SeqCst);
        if self.is_held.swap(false, Ordering::SeqCst) {
            self.wake_sleepers();
        }
    }

    fn wake_sleepers(&self) {
        if self.has_sleepers() {
            // Waking cannot fail, because the word is valid memory of this process.
            let _ = futex::wake(&self.seq, futex::Flags::PRIVATE, u32::MAX >> 1);
        }
    }

    /// Sleeps until a wake-up after `seen`. Fails with `AGAIN` at the deadline, `INTR` after a
    /// signal, or [`CANCELLED`] if the thread was cancelled.
    pub(crate) fn sleep(&self, seen: u32, deadline: Option<Instant>) -> Result<(), Errno> {
        if cancellation::is_cancelled() {
            return Err(CANCELLED);
        }
        let timeout = match deadline {
            None => None,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(Errno::AGAIN);
                }
                Some(futex::Timespec {
                    tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                    tv_nsec: left.subsec_nanos().into(),
                })
            }
        };
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let asleep = guard::fall_asleep();
        let slept = futex::wait(&self.seq, futex::Flags::PRIVATE, seen, timeout.as_ref());
        drop(asleep);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        match slept {
            // The wake-up was sent before the sleep began.
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(Errno::TIMEDOUT) => Err(Errno::AGAIN),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_wake_up_that_is_held_wakes_at_the_release() {
        let queue = Arc::new(WaitQueue::default());
        let seen = queue.seq();
        let sleeper = queue.clone();
        let thread = std::thread::spawn(move || sleeper.sleep(seen, None));
        queue.hold();
        queue.wake();
        assert!(queue.is_held.load(Ordering::SeqCst));
        assert_ne!(
            queue.seq(),
            seen,
            "a thread that reads the count now does not sleep"
        );
        queue.release();
        assert!(!queue.is_held.load(Ordering::SeqCst));
        assert_eq!(thread.join().unwrap(), Ok(()));
    }
}
