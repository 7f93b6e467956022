//! Shared receive queues: one queue of posted receives for many queue pairs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use host::locks::IgnorePoison as _;
use rnic::{Resource, RnicError, SrqToken};

use crate::engine::Key;
use crate::work::RecvSlot;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) sge_max: u32,
    pub(crate) pd: u32,
    pub(crate) token: SrqToken,
    inner: Mutex<Inner>,
    /// True if the queue fell below the limit and the event was not delivered yet. An atomic
    /// outside the lock, because every drive of a connection checks it.
    is_limit_due: AtomicBool,
}

#[derive(Debug)]
struct Inner {
    slots: VecDeque<RecvSlot>,
    depth: usize,
    /// The number of receives below which one event is raised; 0 if no event is wanted.
    limit: usize,
    /// The connections that the next post wakes, because their next messages wait for receives.
    wakes: Vec<Key>,
}

impl Srq {
    pub(crate) fn new(pd: u32, depth: u32, sge_max: u32, token: SrqToken) -> Self {
        let inner = Inner {
            slots: VecDeque::new(),
            depth: depth as usize,
            limit: 0,
            wakes: Vec::new(),
        };
        Self {
            sge_max,
            pd,
            token,
            inner: Mutex::new(inner),
            is_limit_due: AtomicBool::new(false),
        }
    }

    /// Adds a receive. Returns the connections to wake, see [`Self::wake_at_post`].
    pub(crate) fn post(&self, slot: RecvSlot) -> Result<Vec<Key>, RnicError> {
        let mut inner = self.lock();
        if inner.slots.len() >= inner.depth {
            return Err(RnicError::NoResources(Resource::WorkRequest));
        }
        inner.slots.push_back(slot);
        Ok(std::mem::take(&mut inner.wakes))
    }

    /// Makes the next post wake a connection whose next message waits for a receive. Returns false
    /// if there is a receive.
    pub(crate) fn wake_at_post(&self, key: Key) -> bool {
        let mut inner = self.lock();
        if inner.slots.is_empty() && !inner.wakes.contains(&key) {
            inner.wakes.push(key);
        }
        inner.slots.is_empty()
    }

    /// Takes the oldest receive for a message whose first segment was received.
    pub(crate) fn take(&self) -> Option<RecvSlot> {
        let mut inner = self.lock();
        let slot = inner.slots.pop_front();
        if inner.slots.len() < inner.limit {
            inner.limit = 0;
            self.is_limit_due.store(true, Ordering::Release);
        }
        slot
    }

    /// Returns the number of receives that no message has taken.
    pub(crate) fn len(&self) -> usize {
        self.lock().slots.len()
    }

    /// Changes the depth. Returns `false` if more receives are posted than the new depth.
    pub(crate) fn resize(&self, depth: u32) -> bool {
        let mut inner = self.lock();
        let fits = inner.slots.len() <= depth as usize;
        if fits {
            inner.depth = depth as usize;
        }
        fits
    }

    /// Requests one event. The event is due when a message has taken a receive and fewer than
    /// `limit` receives remain. A limit of 0 cancels the request.
    pub(crate) fn arm(&self, limit: u32) {
        let mut inner = self.lock();
        inner.limit = limit as usize;
        self.is_limit_due.store(false, Ordering::Release);
    }

    /// True if the event must be delivered now. Returns `true` once.
    pub(crate) fn take_limit_event(&self) -> bool {
        self.is_limit_due.load(Ordering::Acquire) && self.is_limit_due.swap(false, Ordering::AcqRel)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use rnic::RecvWr;

    use super::*;

    const TOKEN: SrqToken = SrqToken(7);

    fn slot(wr_id: u64) -> RecvSlot {
        let wr = RecvWr {
            wr_id,
            sgl: &[],
            signalled: true,
        };
        RecvSlot::new(&wr, 0)
    }

    #[test]
    fn receives_are_taken_in_order_and_limited_by_the_depth() {
        let srq = Srq::new(1, 2, 4, TOKEN);
        srq.post(slot(1)).unwrap();
        srq.post(slot(2)).unwrap();
        assert!(matches!(
            srq.post(slot(3)),
            Err(RnicError::NoResources(Resource::WorkRequest))
        ));
        assert_eq!(srq.take().map(|s| s.wr_id), Some(1));
        srq.post(slot(4)).unwrap();
        assert_eq!(srq.take().map(|s| s.wr_id), Some(2));
        assert_eq!(srq.take().map(|s| s.wr_id), Some(4));
        assert!(srq.take().is_none());
    }

    #[test]
    fn a_post_wakes_the_connections_that_wait_for_it() {
        let srq = Srq::new(1, 8, 4, TOKEN);
        let [one, other] = [1, 2].map(Key::for_test);
        assert!(srq.wake_at_post(one));
        assert!(srq.wake_at_post(other));
        assert!(
            srq.wake_at_post(one),
            "again, after a wake-up for another reason"
        );
        assert_eq!(srq.post(slot(1)).unwrap(), [one, other]);
        assert_eq!(srq.post(slot(2)).unwrap(), []);
        assert!(!srq.wake_at_post(one), "there are receives");
        assert_eq!(srq.post(slot(3)).unwrap(), []);
    }

    #[test]
    fn the_limit_is_reported_once_and_only_when_armed() {
        let srq = Srq::new(1, 8, 4, TOKEN);
        for wr_id in 0..6 {
            srq.post(slot(wr_id)).unwrap();
        }
        srq.take();
        assert!(!srq.take_limit_event());
        srq.arm(4);
        srq.take();
        assert!(!srq.take_limit_event(), "four remain");
        srq.take();
        assert!(srq.take_limit_event(), "three remain");
        srq.take();
        assert!(!srq.take_limit_event(), "reported already");
        srq.arm(2);
        srq.arm(0);
        srq.take();
        assert!(!srq.take_limit_event(), "cancelled");
    }

    #[test]
    fn a_smaller_depth_must_hold_the_posted_receives() {
        let srq = Srq::new(1, 2, 4, TOKEN);
        srq.post(slot(1)).unwrap();
        srq.post(slot(2)).unwrap();
        assert!(!srq.resize(1));
        assert!(srq.resize(3));
        srq.post(slot(3)).unwrap();
        assert_eq!(srq.len(), 3);
    }
}
