//! Deadlines of the engine's sources, one each.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::Key;

/// A set of deadlines and wake-ups, the earliest first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    order: BTreeSet<(Instant, Key)>,
    deadlines: HashMap<Key, Instant>,
    wakes: HashMap<Key, Instant>,
}

impl Timers {
    /// Sets the deadline of `key`, and replaces an earlier one.
    pub(super) fn set(&mut self, key: Key, at: Instant) {
        self.clear(key);
        self.order.insert((at, key));
        self.deadlines.insert(key, at);
    }

    /// Removes the deadline of `key`.
    pub(super) fn clear(&mut self, key: Key) {
        if let Some(at) = self.deadlines.remove(&key)
            && self.wakes.get(&key) != Some(&at)
        {
            self.order.remove(&(at, key));
        }
    }

    /// Replaces the deadline of `key` by `now`. A deadline that is set later does not: the thread
    /// that sets it may not know the reason of the wake-up.
    pub(super) fn wake(&mut self, key: Key, now: Instant) {
        self.clear(key);
        if let Entry::Vacant(wake) = self.wakes.entry(key) {
            wake.insert(now);
            self.order.insert((now, key));
        }
    }

    /// Removes a source.
    pub(super) fn remove(&mut self, key: Key) {
        self.clear(key);
        if let Some(at) = self.wakes.remove(&key) {
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
        self.order.pop_first();
        for times in [&mut self.deadlines, &mut self.wakes] {
            if times.get(&key) == Some(&at) {
                times.remove(&key);
            }
        }
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

    #[test]
    fn a_deadline_that_is_set_after_a_wake_up_does_not_replace_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut timers = Timers::default();
        timers.set(Key(1), at(90));
        timers.wake(Key(1), at(10));
        assert_eq!(timers.next(), Some(at(10)));
        timers.set(Key(1), at(60));
        timers.wake(Key(2), at(20));
        timers.clear(Key(2));
        assert_eq!(timers.pop_expired(at(40)), Some(Key(1)));
        assert_eq!(timers.pop_expired(at(40)), Some(Key(2)));
        assert_eq!(timers.pop_expired(at(40)), None);
        assert_eq!(timers.pop_expired(at(60)), Some(Key(1)));
        timers.set(Key(3), at(70));
        timers.wake(Key(3), at(70));
        timers.set(Key(3), at(70));
        timers.remove(Key(3));
        assert_eq!(timers.next(), None);
    }
}
