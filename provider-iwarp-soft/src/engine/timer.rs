//! Deadlines of the engine's sources, one each.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::Key;

/// A set of deadlines, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Instant, Key)>,
    of: HashMap<Key, Instant>,
}

impl Timers {
    /// Sets the deadline of `key`, and replaces an earlier one.
    pub(super) fn set(&mut self, key: Key, at: Instant) {
        self.clear(key);
        self.order.insert((at, key));
        self.of.insert(key, at);
    }

    /// Removes the deadline of `key`.
    pub(super) fn clear(&mut self, key: Key) {
        if let Some(at) = self.of.remove(&key) {
            self.order.remove(&(at, key));
        }
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes one deadline that has passed.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Key> {
        let (at, key) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.clear(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn deadlines_expire_in_order_and_once() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.set(Key(1), at(30));
        timers.set(Key(2), at(10));
        timers.set(Key(3), at(20));
        timers.set(Key(1), at(5));
        timers.clear(Key(3));
        assert_eq!(timers.next(), Some(at(5)));
        assert_eq!(timers.pop_expired(at(4)), None);
        assert_eq!(timers.pop_expired(at(40)), Some(Key(1)));
        assert_eq!(timers.pop_expired(at(40)), Some(Key(2)));
        assert_eq!(timers.pop_expired(at(40)), None);
        assert_eq!(timers.next(), None);
    }
}
