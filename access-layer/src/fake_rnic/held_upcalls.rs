//! Events that wait until a test delivers them. Their order is the same in every run, without a
//! thread or a clock.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::lock;

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The RNIC to which an event belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner(u64);

/// The events of all RNICs of a network with held upcalls, in the order in which they occurred.
#[derive(Default)]
pub(super) struct HeldUpcalls {
    owners: AtomicU64,
    queue: Mutex<VecDeque<(Owner, Job)>>,
    /// Jobs to run when time passes.
    timers: Mutex<VecDeque<(Owner, Job)>>,
}

opaque_debug!(HeldUpcalls {});

impl HeldUpcalls {
    pub(super) fn new_owner(&self) -> Owner {
        Owner(self.owners.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn add(&self, owner: Owner, job: Job) {
        lock(&self.queue).push_back((owner, job));
    }

    pub(super) fn add_timer(&self, owner: Owner, job: Job) {
        lock(&self.timers).push_back((owner, job));
    }

    /// Delivers all events, including those that occur meanwhile.
    pub(super) fn deliver(&self) {
        // No lock is held while a job runs or is dropped, because jobs cause further events.
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        lock(&self.queue).pop_front().map(|(_, job)| job)
    }

    /// Expires all timers, the oldest first.
    pub(super) fn expire(&self) {
        let due = std::mem::take(&mut *lock(&self.timers));
        lock(&self.queue).extend(due);
    }

    /// Called when the RNIC is closed: drops all its events.
    pub(super) fn forget(&self, owner: Owner) {
        for list in [&self.queue, &self.timers] {
            let mut list = lock(list);
            let (removed, kept): (VecDeque<_>, VecDeque<_>) =
                list.drain(..).partition(|(of, _)| *of == owner);
            *list = kept;
            drop(list);
            drop(removed);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        lock(&self.queue).is_empty() && lock(&self.timers).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Returns an event that stores its number when it is delivered.
    fn noting(delivered: &Arc<Mutex<Vec<u32>>>, number: u32) -> Job {
        let delivered = delivered.clone();
        Box::new(move || lock(&delivered).push(number))
    }

    #[test]
    fn events_are_delivered_in_order_and_timers_after_expiry() {
        let (events, delivered) = (Arc::new(HeldUpcalls::default()), Arc::default());
        let owner = events.new_owner();
        let (later, after) = (events.clone(), noting(&delivered, 3));
        events.add_timer(owner, noting(&delivered, 4));
        events.add(owner, noting(&delivered, 1));
        events.add(owner, Box::new(move || later.add(owner, after)));
        events.add(owner, noting(&delivered, 2));
        assert!(lock(&delivered).is_empty());
        events.deliver();
        assert_eq!(*lock(&delivered), [1, 2, 3]);
        assert!(!events.is_empty());
        events.expire();
        events.deliver();
        assert_eq!(*lock(&delivered), [1, 2, 3, 4]);
        assert!(events.is_empty());
    }

    #[test]
    fn events_of_a_closed_rnic_are_dropped() {
        let (events, delivered) = (HeldUpcalls::default(), Arc::default());
        let (removed, stays) = (events.new_owner(), events.new_owner());
        for (owner, number) in [(removed, 1), (stays, 2)] {
            events.add(owner, noting(&delivered, number));
            events.add_timer(owner, noting(&delivered, 10 * number));
        }
        events.forget(removed);
        events.expire();
        events.deliver();
        assert_eq!(*lock(&delivered), [2, 20]);
    }
}
