//! The limits on the receives that a queue pair may hold from its shared receive queue.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// No mark: a number of receives that no queue pair reaches.
const NONE: u32 = u32::MAX;

/// The two high watermarks of a queue pair.
#[derive(Debug)]
pub(super) struct Watermarks {
    /// Exceeding this mark raises one event.
    soft: AtomicU32,
    /// Exceeding this mark ends the connection.
    hard: AtomicU32,
    /// True if the soft mark was exceeded and the event is not delivered yet.
    is_due: AtomicBool,
}

impl Default for Watermarks {
    fn default() -> Self {
        Self {
            soft: AtomicU32::new(NONE),
            hard: AtomicU32::new(NONE),
            is_due: AtomicBool::new(false),
        }
    }
}

impl Watermarks {
    /// Sets both marks and arms the soft one.
    pub(super) fn set(&self, soft: Option<u32>, hard: Option<u32>) {
        self.is_due.store(false, Ordering::Release);
        self.soft.store(soft.unwrap_or(NONE), Ordering::Relaxed);
        self.hard.store(hard.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// True if the queue pair may hold this number of receives. Records that the soft mark was
    /// exceeded.
    pub(super) fn admit(&self, held: u32) -> bool {
        if held > self.soft.load(Ordering::Relaxed) {
            self.soft.store(NONE, Ordering::Relaxed);
            self.is_due.store(true, Ordering::Release);
        }
        held <= self.hard.load(Ordering::Relaxed)
    }

    /// True if the event of the soft mark must be delivered now. Returns `true` once.
    pub(super) fn take_event(&self) -> bool {
        self.is_due.load(Ordering::Acquire) && self.is_due.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_marks_everything_is_admitted_silently() {
        let marks = Watermarks::default();
        assert!(marks.admit(1_000_000));
        assert!(!marks.take_event());
    }

    #[test]
    fn the_soft_mark_is_reported_once_each_time_it_is_set() {
        let marks = Watermarks::default();
        for _ in 0..2 {
            marks.set(Some(2), None);
            assert!(marks.admit(2));
            assert!(!marks.take_event());
            assert!(marks.admit(3));
            assert!(marks.take_event());
            assert!(marks.admit(4));
            assert!(!marks.take_event());
        }
    }

    #[test]
    fn the_hard_mark_is_not_exceeded() {
        let marks = Watermarks::default();
        marks.set(None, Some(2));
        assert!(marks.admit(2));
        assert!(!marks.admit(3));
    }
}
