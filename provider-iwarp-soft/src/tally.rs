//! The number of work requests of one queue that are posted and not finished.
//!
//! The count needs no read-modify-write instructions, each of which would add a few percent to the
//! cost of a small Send. Each part is written under one lock only, and any thread may read it.

use std::sync::atomic::{AtomicU32, Ordering};

/// The count of one queue. The parts grow and wrap; only their difference is used.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The number of posts under the lock of the connection.
    by_link: AtomicU32,
    /// The number of posts under the lock of the queue.
    by_queue: AtomicU32,
    /// The number of finished requests, counted under the lock of the connection.
    finished: AtomicU32,
}

impl Tally {
    /// Returns the number of posted and unfinished requests. It is never less than the true number
    /// at some moment of the call.
    pub(crate) fn pending(&self) -> u32 {
        // A value that is read too early can only be too small, and `finished` is subtracted.
        let finished = self.finished.load(Ordering::Acquire);
        let posted = self
            .by_link
            .load(Ordering::Acquire)
            .wrapping_add(self.by_queue.load(Ordering::Acquire));
        posted.wrapping_sub(finished)
    }

    /// Counts a post. The caller holds the lock of the connection.
    pub(crate) fn add_by_link(&self) {
        add(&self.by_link, 1);
    }

    /// Counts a post. The caller holds the lock of the queue.
    pub(crate) fn add_by_queue(&self) {
        add(&self.by_queue, 1);
    }

    /// Counts finished requests. The caller holds the lock of the connection.
    pub(crate) fn finish(&self, count: u32) {
        add(&self.finished, count);
    }
}

fn add(part: &AtomicU32, count: u32) {
    part.store(
        part.load(Ordering::Relaxed).wrapping_add(count),
        Ordering::Release,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_posting_are_counted_until_they_finish() {
        let tally = Tally::default();
        tally.add_by_link();
        tally.add_by_queue();
        tally.add_by_queue();
        assert_eq!(tally.pending(), 3);
        tally.finish(2);
        assert_eq!(tally.pending(), 1);
        tally.finish(1);
        assert_eq!(tally.pending(), 0);
    }

    #[test]
    fn the_parts_may_wrap() {
        let tally = Tally::default();
        tally.by_link.store(u32::MAX, Ordering::Relaxed);
        tally.finished.store(u32::MAX, Ordering::Relaxed);
        tally.add_by_link();
        tally.add_by_queue();
        assert_eq!(tally.pending(), 2);
    }
}
