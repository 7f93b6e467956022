//! The decision of a thread to spin before it sleeps, by the success of earlier spins.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Number of consecutive failures after which the pause stops growing, at 256 waits.
const FAILURES_MAX: u32 = 8;

/// Number of consecutive successes after which one failure causes no pause.
const SUCCESSES_MAX: u32 = 8;

/// The history of the waits of one consumer, or on one stream.
///
/// A spin takes the processor from the other thread if the scheduler keeps both threads on one
/// processor. The answer is then sent only when the spinning thread sleeps. Each consecutive
/// failure doubles the number of waits that sleep without a spin, except for the first one after
/// many successes: a peer that was interrupted once answers in time again. Usually one thread waits
/// with one history; a count lost between two threads does no harm.
#[derive(Debug)]
pub struct AdaptiveSpin {
    /// Duration of the last wait, in microseconds.
    last_wait_us: AtomicU32,
    failures: AtomicU32,
    /// Number of consecutive successes, up to [`SUCCESSES_MAX`].
    successes: AtomicU32,
    /// Number of waits that sleep at once before the next try to spin.
    pause: AtomicU32,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self {
            last_wait_us: AtomicU32::new(u32::MAX),
            failures: AtomicU32::new(0),
            successes: AtomicU32::new(0),
            pause: AtomicU32::new(0),
        }
    }
}

impl AdaptiveSpin {
    /// The duration of the last wait; more than an hour before the first one.
    pub fn last_wait(&self) -> Duration {
        Duration::from_micros(self.last_wait_us.load(Ordering::Relaxed).into())
    }

    /// Records the duration of a wait.
    pub fn note_wait(&self, lasted: Duration) {
        let lasted = u32::try_from(lasted.as_micros()).unwrap_or(u32::MAX);
        self.last_wait_us.store(lasted, Ordering::Relaxed);
    }

    /// True if the wait that begins now should spin first.
    pub fn is_worth_it(&self) -> bool {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// Called when the spin has found the completion.
    pub fn on_success(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        let successes = self.successes.load(Ordering::Relaxed);
        if successes < SUCCESSES_MAX {
            self.successes.store(successes + 1, Ordering::Relaxed);
        }
    }

    /// Called when the spin has found no completion.
    pub fn on_failure(&self) {
        if self.successes.swap(0, Ordering::Relaxed) == SUCCESSES_MAX {
            return;
        }
        let failures = (self.failures.load(Ordering::Relaxed) + 1).min(FAILURES_MAX);
        self.failures.store(failures, Ordering::Relaxed);
        self.pause.store(1 << failures, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of waits without a spin until the next one with a spin.
    fn pause_of(spin: &AdaptiveSpin) -> u32 {
        (0..).find(|_| spin.is_worth_it()).unwrap()
    }

    #[test]
    fn failures_in_a_row_double_the_pause_and_one_success_ends_it() {
        let spin = AdaptiveSpin::default();
        assert_eq!(pause_of(&spin), 0, "no sleep was measured yet");
        for expected in [2, 4, 8, 16, 32, 64, 128, 256, 256] {
            spin.on_failure();
            assert_eq!(pause_of(&spin), expected);
        }
        spin.on_success();
        assert_eq!(pause_of(&spin), 0);
        spin.on_failure();
        assert_eq!(pause_of(&spin), 2);
    }

    #[test]
    fn one_failure_after_many_successes_causes_no_pause() {
        let spin = AdaptiveSpin::default();
        for successes in [SUCCESSES_MAX, 2 * SUCCESSES_MAX] {
            (0..successes).for_each(|_| spin.on_success());
            spin.on_failure();
            assert_eq!(pause_of(&spin), 0);
            spin.on_failure();
            assert_eq!(pause_of(&spin), 2, "the second in a row");
        }
        (1..SUCCESSES_MAX).for_each(|_| spin.on_success());
        spin.on_failure();
        assert_eq!(pause_of(&spin), 2, "too few successes");
    }
}
