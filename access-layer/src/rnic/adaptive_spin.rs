//! The decision of a blocked consumer to spin before it sleeps, by the success of earlier spins.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// After so many failures in a row the pauses grow no more: 256 waits.
const FAILURES_MAX: u32 = 8;

/// The history of one consumer's waits.
///
/// Two threads that the scheduler keeps on one processor take it from each other by spinning: the
/// answer arrives when the spinner sleeps. Each failure in a row doubles the number of waits that
/// sleep at once. One thread waits with it as a rule; a lost count between two does not matter.
#[derive(Debug)]
pub(super) struct AdaptiveSpin {
    /// How long the last wait lasted, in microseconds.
    last_wait_us: AtomicU32,
    failures: AtomicU32,
    /// Waits that sleep at once before spinning is tried again.
    pause: AtomicU32,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self {
            last_wait_us: AtomicU32::new(u32::MAX),
            failures: AtomicU32::new(0),
            pause: AtomicU32::new(0),
        }
    }
}

impl AdaptiveSpin {
    pub(super) fn last_wait(&self) -> Duration {
        Duration::from_micros(self.last_wait_us.load(Ordering::Relaxed).into())
    }

    pub(super) fn note_wait(&self, lasted: Duration) {
        let lasted = u32::try_from(lasted.as_micros()).unwrap_or(u32::MAX);
        self.last_wait_us.store(lasted, Ordering::Relaxed);
    }

    /// A wait begins. Returns true if it is to spin first.
    pub(super) fn is_worth_it(&self) -> bool {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// The completion arrived during the spin.
    pub(super) fn on_success(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The spin was in vain.
    pub(super) fn on_failure(&self) {
        let failures = (self.failures.load(Ordering::Relaxed) + 1).min(FAILURES_MAX);
        self.failures.store(failures, Ordering::Relaxed);
        self.pause.store(1 << failures, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits without a spin until the next one with.
    fn pause_of(spin: &AdaptiveSpin) -> u32 {
        (0..).find(|_| spin.is_worth_it()).unwrap()
    }

    #[test]
    fn failures_in_a_row_double_the_pause_and_one_success_ends_it() {
        let spin = AdaptiveSpin::default();
        assert_eq!(pause_of(&spin), 0, "nothing is known yet");
        for expected in [2, 4, 8, 16, 32, 64, 128, 256, 256] {
            spin.on_failure();
            assert_eq!(pause_of(&spin), expected);
        }
        spin.on_success();
        assert_eq!(pause_of(&spin), 0);
        spin.on_failure();
        assert_eq!(pause_of(&spin), 2);
    }
}
