//! Events that wait until a test delivers them: the order is equal in every run, without a thread
//! or a clock.

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

impl std::fmt::Debug for HeldUpcalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldUpcalls").finish_non_exhaustive()
    }
}

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
    pub(super) fn tell(&self) {
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
            let (gone, kept): (VecDeque<_>, VecDeque<_>) =
                list.drain(..).partition(|(of, _)| *of == owner);
            *list = kept;
            drop(list);
            drop(gone);
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
    fn noting(said: &Arc<Mutex<Vec<u32>>>, number: u32) -> Job {
        let said = said.clone();
        Box::new(move || lock(&said).push(number))
    }

    #[test]
    fn news_is_told_in_order_with_what_it_brings_and_timers_when_they_expire() {
        let (news, said) = (Arc::new(HeldUpcalls::default()), Arc::default());
        let owner = news.new_owner();
        let (later, after) = (news.clone(), noting(&said, 3));
        news.add_timer(owner, noting(&said, 4));
        news.add(owner, noting(&said, 1));
        news.add(owner, Box::new(move || later.add(owner, after)));
        news.add(owner, noting(&said, 2));
        assert!(lock(&said).is_empty());
        news.tell();
        assert_eq!(*lock(&said), [1, 2, 3]);
        assert!(!news.is_empty());
        news.expire();
        news.tell();
        assert_eq!(*lock(&said), [1, 2, 3, 4]);
        assert!(news.is_empty());
    }

    #[test]
    fn news_of_an_rnic_that_is_gone_is_forgotten() {
        let (news, said) = (HeldUpcalls::default(), Arc::default());
        let (gone, stays) = (news.new_owner(), news.new_owner());
        for (owner, number) in [(gone, 1), (stays, 2)] {
            news.add(owner, noting(&said, number));
            news.add_timer(owner, noting(&said, 10 * number));
        }
        news.forget(gone);
        news.expire();
        news.tell();
        assert_eq!(*lock(&said), [2, 20]);
    }
}
