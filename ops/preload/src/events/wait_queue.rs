//! The place where threads of the program sleep in a blocking call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rustix::io::Errno;
use rustix::thread::futex;

use crate::process::cancelling::{self, CANCELLED};

/// A counter of wake-ups that threads sleep on until it changes.
///
/// The sleep is the kernel's `futex`. Without a deadline a signal whose handler was installed with
/// `SA_RESTART` does not end it, with one every signal does: just as in a call on a TCP socket.
#[derive(Debug, Default)]
pub(crate) struct WaitQueue {
    seq: AtomicU32,
    sleepers: AtomicU32,
}

impl WaitQueue {
    /// To be asked before looking, and given to [`sleep`](Self::sleep) when there was nothing.
    pub(crate) fn seq(&self) -> u32 {
        self.seq.load(Ordering::Acquire)
    }

    /// Wakes all: something has come about. No system call when nobody sleeps.
    pub(crate) fn wake(&self) {
        self.seq.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Waking cannot fail for a word of our own.
            let _ = futex::wake(&self.seq, futex::Flags::PRIVATE, u32::MAX >> 1);
        }
    }

    /// Sleeps until a wake-up after `seen`, or the deadline (`AGAIN`), or a signal (`INTR`), or a
    /// cancellation of the thread.
    pub(crate) fn sleep(&self, seen: u32, deadline: Option<Instant>) -> Result<(), Errno> {
        if cancelling::is_asked() {
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
        let slept = futex::wait(&self.seq, futex::Flags::PRIVATE, seen, timeout.as_ref());
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        match slept {
            // The wake-up came before the sleep began.
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(Errno::TIMEDOUT) => Err(Errno::AGAIN),
            Err(error) => Err(error),
        }
    }
}
