//! The rate at which waiting readers advertise their memory.

/// The most waits without an advertisement after one that was not used.
const PAUSE_MAX: u32 = 64;

/// The rate at which waiting readers advertise their memory.
///
/// An advertisement costs a registration and a message. A writer that is always ahead of the reader
/// sends messages that cross it, which makes it useless. So after each useless advertisement the
/// readers wait more often without one.
#[derive(Debug, Default)]
pub(super) struct SinkPace {
    /// The number of waits without an advertisement before the next one.
    skip: u32,
    /// The number of waits that were skipped after the last useless advertisement.
    pause: u32,
}

impl SinkPace {
    /// A reader waits. Returns true if it is to advertise its memory.
    pub(super) const fn on_wait(&mut self) -> bool {
        let is_due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        is_due
    }

    /// An advertisement has ended; `was_used` is true if the peer has written.
    pub(super) fn on_end(&mut self, was_used: bool) {
        self.pause = if was_used {
            0
        } else {
            (2 * self.pause + 1).min(PAUSE_MAX)
        };
        self.skip = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useless_advertisements_become_rare_and_a_useful_one_changes_that() {
        let mut pace = SinkPace::default();
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.extend((1..).find(|_| pace.on_wait()));
            pace.on_end(false);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 65, 65]);
        pace.on_end(true);
        assert!(pace.on_wait() && pace.on_wait());
    }
}
