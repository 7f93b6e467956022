//! The next time at which each connection must be checked.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::id::Key;

/// At most one time for each key.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    in_order: BTreeSet<(Instant, Key)>,
    times: HashMap<Key, Instant>,
}

impl Timers {
    /// Sets the time of `key`, or cancels it (`None`). Returns `true` if `time` is the earliest
    /// now.
    pub(crate) fn set(&mut self, key: Key, time: Option<Instant>) -> bool {
        if let Some(old) = self.times.remove(&key) {
            self.in_order.remove(&(old, key));
        }
        let Some(time) = time else { return false };
        self.times.insert(key, time);
        self.in_order.insert((time, key));
        self.in_order.first() == Some(&(time, key))
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|(time, _)| *time)
    }

    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Key> {
        let (time, key) = *self.in_order.first()?;
        if time > now {
            return None;
        }
        self.set(key, None);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn keys_are_taken_in_the_order_of_their_times_and_once() {
        let start = Instant::now();
        let at = |seconds| Some(start + Duration::from_secs(seconds));
        let mut timers = Timers::default();
        assert!(timers.set(Key(1), at(5)));
        assert!(timers.set(Key(2), at(3)));
        assert!(!timers.set(Key(3), at(4)));
        assert!(timers.set(Key(1), at(1)), "moved to the front");
        assert!(!timers.set(Key(3), None));
        assert_eq!(timers.next(), at(1));
        let now = start + Duration::from_secs(4);
        assert_eq!(timers.take_due(now), Some(Key(1)));
        assert_eq!(timers.take_due(start), None, "not yet");
        assert_eq!(timers.take_due(now), Some(Key(2)));
        assert_eq!((timers.take_due(now), timers.next()), (None, None));
    }
}
