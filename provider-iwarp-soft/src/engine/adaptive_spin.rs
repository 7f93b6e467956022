//! Whether a blocked consumer should spin before it sleeps, by how it fared when it did.

use std::sync::atomic::{AtomicU32, Ordering};

/// After so many failures in a row the pauses grow no more: 256 waits.
const FAILURES_MAX: u32 = 8;

/// What spinning has brought to the waits of one queue.
///
/// Two threads that the scheduler keeps on one processor take it from each other by spinning: the
/// answer comes when the spinner has given up. Each failure in a row doubles the number of waits
/// that sleep at once. One consumer waits for a queue as a rule; a lost count between two does not
/// matter.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveSpin {
    failures: AtomicU32,
    /// Waits that sleep at once before spinning is tried again.
    pause: AtomicU32,
}

impl AdaptiveSpin {
    /// A wait begins: whether it spins first.
    pub(crate) fn is_worth_it(&self) -> bool {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// What was waited for came while it span.
    pub(crate) fn on_success(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// It has to sleep after all.
    pub(crate) fn on_failure(&self) {
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
