//! The rate at which waiting readers advertise their memory.

/// The most waits without an advertisement after two that were not used.
const PAUSE_MAX: u32 = 64;

/// The rate at which waiting readers advertise their memory.
///
/// An advertisement costs a registration and a message. A message that crosses it makes it useless,
/// but a writer that has seen it waits for the next one. So readers advertise twice in a row. If
/// both were useless, they wait without an advertisement before the next two, and the number of
/// these waits doubles each time.
#[derive(Debug, Default)]
pub(super) struct SinkPace {
    /// The number of waits without an advertisement before the next one.
    skip: u32,
    /// The number of waits that were skipped last, since the peer has used an advertisement.
    pause: u32,
    /// True if the last advertisement was useless and the next one follows at once.
    is_second: bool,
}

impl SinkPace {
    /// Called when a reader waits. Returns true if it is to advertise its memory.
    pub(super) const fn on_wait(&mut self) -> bool {
        let is_due = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        is_due
    }

    /// Called when an advertisement has ended; `was_used` is true if the peer has written.
    pub(super) fn on_end(&mut self, was_used: bool) {
        if was_used {
            *self = Self::default();
        } else if self.is_second {
            self.is_second = false;
            self.pause = (2 * self.pause + 1).min(PAUSE_MAX);
            self.skip = self.pause;
        } else {
            self.is_second = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn useless_advertisements_become_rare_and_a_useful_one_changes_that() {
        let mut pace = SinkPace::default();
        let mut waits = Vec::new();
        for _ in 0..18 {
            waits.extend((1..).find(|_| pace.on_wait()));
            pace.on_end(false);
        }
        let pairs = [1, 2, 4, 8, 16, 32, 64, 65, 65];
        let expected: Vec<u32> = pairs.into_iter().flat_map(|first| [first, 1]).collect();
        assert_eq!(waits, expected);
        pace.on_end(true);
        assert!(pace.on_wait() && pace.on_wait());
    }
}
