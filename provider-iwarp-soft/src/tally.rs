//! The work requests of one queue that are posted and not finished, and the places that they take.
//!
//! A request keeps its place in the queue after it has completed, until the consumer takes its
//! completion. So a consumer that takes no completions cannot post more than its completion queue
//! holds. The request of a suppressed completion frees its place when it succeeds.
//!
//! The counts need no read-modify-write instructions, each of which would add a few percent to the
//! cost of a small Send. Each part is written under one lock only, and any thread may read it.

use std::sync::atomic::{AtomicU32, Ordering};

/// The counts of one queue. The parts grow and wrap; only their differences are used.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The number of posts under the lock of the connection.
    by_link: AtomicU32,
    /// The number of posts under the lock of the queue.
    by_queue: AtomicU32,
    /// The number of posts under the lock of the queue that completed as flushed at once.
    flushed: AtomicU32,
    /// The number of finished requests, counted under the lock of the connection. It does not
    /// include `flushed`.
    finished: AtomicU32,
    /// The number of finished requests that have no completion, counted under the same lock.
    silent: AtomicU32,
    /// The number of completions that the consumer has taken, counted under the lock of its EVD.
    taken: AtomicU32,
}

impl Tally {
    /// Returns the number of posted and unfinished requests. It is never less than the true number
    /// at some moment of the call.
    pub(crate) fn pending(&self) -> u32 {
        // A value that is read too early can only be too small, and `finished` is subtracted.
        let finished = self.finished.load(Ordering::Acquire);
        self.posted().wrapping_sub(finished)
    }

    /// Returns the number of places in use, which may be too large in the same way.
    pub(crate) fn places(&self) -> u32 {
        let freed = self
            .silent
            .load(Ordering::Acquire)
            .wrapping_add(self.taken.load(Ordering::Acquire));
        let flushed = self.flushed.load(Ordering::Acquire);
        self.posted().wrapping_add(flushed).wrapping_sub(freed)
    }

    fn posted(&self) -> u32 {
        self.by_link
            .load(Ordering::Acquire)
            .wrapping_add(self.by_queue.load(Ordering::Acquire))
    }

    /// Counts a post. The caller holds the lock of the connection.
    pub(crate) fn add_by_link(&self) {
        add(&self.by_link, 1);
    }

    /// Counts a post. The caller holds the lock of the queue.
    pub(crate) fn add_by_queue(&self) {
        add(&self.by_queue, 1);
    }

    /// Counts a post that completes as flushed at once. The caller holds the lock of the queue.
    pub(crate) fn add_flushed(&self) {
        add(&self.flushed, 1);
    }

    /// Counts finished requests, of which `silent` have no completion. The caller holds the lock of
    /// the connection.
    pub(crate) fn finish(&self, count: u32, silent: u32) {
        add(&self.finished, count);
        add(&self.silent, silent);
    }

    /// Counts a completion that the consumer has taken. The caller holds the lock of the EVD.
    ///
    /// A completion of a former queue pair of the endpoint, which `dat_ep_modify` replaced, frees
    /// no place.
    pub(crate) fn take(&self) {
        if self.places() > 0 {
            add(&self.taken, 1);
        }
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
        tally.finish(2, 0);
        assert_eq!(tally.pending(), 1);
        tally.finish(1, 0);
        assert_eq!(tally.pending(), 0);
    }

    #[test]
    fn a_place_is_free_once_the_completion_is_taken_or_suppressed() {
        let tally = Tally::default();
        (0..3).for_each(|_| tally.add_by_link());
        tally.finish(3, 1);
        assert_eq!(tally.places(), 2);
        tally.take();
        assert_eq!(tally.places(), 1);
        tally.add_flushed();
        assert_eq!((tally.places(), tally.pending()), (2, 0));
        (0..3).for_each(|_| tally.take());
        assert_eq!(tally.places(), 0);
        tally.add_by_queue();
        assert_eq!(tally.places(), 1);
    }

    #[test]
    fn the_parts_may_wrap() {
        let tally = Tally::default();
        tally.by_link.store(u32::MAX, Ordering::Relaxed);
        tally.finished.store(u32::MAX, Ordering::Relaxed);
        tally.taken.store(u32::MAX, Ordering::Relaxed);
        tally.add_by_link();
        tally.add_by_queue();
        assert_eq!((tally.pending(), tally.places()), (2, 2));
    }
}
