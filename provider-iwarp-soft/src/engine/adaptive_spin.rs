//! Whether a blocked consumer should spin before it sleeps, by how it fared when it did.

use std::sync::atomic::{AtomicU32, Ordering};

/// After so many failures in a row the pauses grow no more: 256 waits.
const LOSSES_MAX: u32 = 8;

/// What spinning has brought to the waits of one queue.
///
/// Two threads that the scheduler keeps on one processor take it from each other by spinning: the
/// answer comes when the spinner has given up. Each failure in a row doubles the number of waits
/// that sleep at once. One consumer waits for a queue as a rule; a lost count between two does not
/// matter.
#[derive(Debug, Default)]
pub(crate) struct SpinLuck {
    losses: AtomicU32,
    /// Waits that sleep at once before spinning is tried again.
    pause: AtomicU32,
}

impl SpinLuck {
    /// A wait begins: whether it spins first.
    pub(crate) fn tries(&self) -> bool {
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
        }
        pause == 0
    }

    /// What was waited for came while it span.
    pub(crate) fn on_success(&self) {
        if self.losses.load(Ordering::Relaxed) > 0 {
            self.losses.store(0, Ordering::Relaxed);
        }
    }

    /// It has to sleep after all.
    pub(crate) fn on_failure(&self) {
        let losses = (self.losses.load(Ordering::Relaxed) + 1).min(LOSSES_MAX);
        self.losses.store(losses, Ordering::Relaxed);
        self.pause.store(1 << losses, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits without a spin until the next one with.
    fn pause_of(luck: &SpinLuck) -> u32 {
        (0..).find(|_| luck.tries()).unwrap()
    }

    #[test]
    fn failures_in_a_row_double_the_pause_and_one_success_ends_it() {
        let luck = SpinLuck::default();
        assert_eq!(pause_of(&luck), 0, "nothing is known yet");
        for expected in [2, 4, 8, 16, 32, 64, 128, 256, 256] {
            luck.on_failure();
            assert_eq!(pause_of(&luck), expected);
        }
        luck.on_success();
        assert_eq!(pause_of(&luck), 0);
        luck.on_failure();
        assert_eq!(pause_of(&luck), 2);
    }
}
