//! Completion queues: a ring, a length that is read without the lock, and an armed mark.
//!
//! # Cost
//!
//! A push takes the ring's lock once for all completions of one drive. A poll of an empty queue is
//! one atomic load. Memory is reserved when the queue is created and touched when it is used.
//!
//! # Notification
//!
//! A push notifies only if [`Cq::arm`] was called. The first push that matches clears the mark
//! under the same lock, and its caller makes one upcall after it has released every lock.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use host::locks::IgnorePoison as _;
use rnic::{Completion, CqToken, Notify, Resource, RnicError};

/// The most completions that one queue may hold.
pub(crate) const CQE_MAX: u32 = (1 << 20) - 1;

/// The number of completions for which a new queue has room, a power of two.
const RING_MIN: usize = 16;

/// The completions for which the queue is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Any,
    SolicitedOnly,
}

/// A circular buffer: `entries[index & mask]` for the indices `head..tail`, which wrap.
#[derive(Debug)]
struct Ring {
    /// Grows by doubling within its capacity, so that memory is touched when it is used and a push
    /// never allocates.
    entries: Vec<Completion>,
    head: usize,
    tail: usize,
    depth: usize,
    armed: Armed,
}

/// The notifications that the pusher must make after it has released its locks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// True if the queue was armed for one of these completions.
    pub(crate) must_notify: bool,
    /// True if at least one completion did not fit and is lost.
    pub(crate) overflow: bool,
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) token: CqToken,
    ring: Mutex<Ring>,
    len: AtomicUsize,
}

impl Cq {
    /// Creates a queue of this depth; `None` if there is no memory for it.
    pub(crate) fn new(depth: u32, token: CqToken) -> Option<Self> {
        let depth = depth.clamp(1, CQE_MAX) as usize;
        let mut entries = Vec::new();
        entries.try_reserve_exact(ring_len(depth)).ok()?;
        entries.resize(RING_MIN, Completion::EMPTY);
        Some(Self {
            token,
            ring: Mutex::new(Ring {
                entries,
                head: 0,
                tail: 0,
                depth,
                armed: Armed::No,
            }),
            len: AtomicUsize::new(0),
        })
    }

    /// Changes the depth, which must hold the queued completions.
    pub(crate) fn resize(&self, depth: u32) -> Result<(), RnicError> {
        let depth = depth.clamp(1, CQE_MAX) as usize;
        let mut ring = self.lock();
        if ring.len() > depth {
            return Err(RnicError::InvalidState(
                "more completions than the new depth",
            ));
        }
        let missing = ring_len(depth).saturating_sub(ring.entries.len());
        let grown = ring.entries.try_reserve(missing);
        grown.map_err(|_| RnicError::NoResources(Resource::Memory))?;
        ring.depth = depth;
        Ok(())
    }

    /// Adds completions in order and empties `batch`.
    pub(crate) fn push(&self, batch: &mut Vec<Completion>) -> Pushed {
        let mut pushed = Pushed::default();
        if batch.is_empty() {
            return pushed;
        }
        let mut ring = self.lock();
        for completion in batch.iter() {
            pushed.must_notify |= ring.is_armed_for(completion.notify);
            pushed.overflow |= !ring.push(completion);
        }
        if pushed.must_notify {
            ring.armed = Armed::No;
        }
        self.len.store(ring.len(), Ordering::Release);
        drop(ring);
        batch.clear();
        pushed
    }

    /// Takes completions in order.
    pub(crate) fn poll(&self, out: &mut [Completion]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut ring = self.lock();
        let count = out.len().min(ring.len());
        for slot in &mut out[..count] {
            *slot = ring.pop();
        }
        self.len.store(ring.len(), Ordering::Release);
        count
    }

    /// Requests one notification for the next completion. Returns `true` if there are completions
    /// already, which cause no notification.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let mut ring = self.lock();
        ring.armed = match (solicited_only, ring.armed) {
            (true, Armed::No | Armed::SolicitedOnly) => Armed::SolicitedOnly,
            _ => Armed::Any,
        };
        ring.len() > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().ignore_poison()
    }
}

/// The number of entries of a ring for this number of completions.
fn ring_len(depth: usize) -> usize {
    depth.next_power_of_two().max(RING_MIN)
}

impl Ring {
    fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    fn place(&self, index: usize) -> usize {
        index & (self.entries.len() - 1)
    }

    /// Adds a completion. Returns `false` if the ring is full.
    fn push(&mut self, completion: &Completion) -> bool {
        if self.len() >= self.depth {
            return false;
        }
        if self.len() == self.entries.len() {
            self.grow();
        }
        let place = self.place(self.tail);
        self.entries[place] = *completion;
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Takes the oldest completion. The ring must not be empty.
    fn pop(&mut self) -> Completion {
        let completion = self.entries[self.place(self.head)];
        self.head = self.head.wrapping_add(1);
        completion
    }

    #[cold]
    fn grow(&mut self) {
        let (len, at) = (self.len(), self.place(self.head));
        self.entries.rotate_left(at);
        self.entries
            .resize(self.entries.len() * 2, Completion::EMPTY);
        (self.head, self.tail) = (0, len);
    }

    fn is_armed_for(&self, notify: Notify) -> bool {
        match self.armed {
            Armed::No => false,
            Armed::Any => notify != Notify::Never,
            Armed::SolicitedOnly => notify == Notify::Solicited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(wr_id: u64, notify: Notify) -> Completion {
        Completion {
            wr_id,
            notify,
            ..Completion::EMPTY
        }
    }

    fn push(cq: &Cq, wr_id: u64, notify: Notify) -> Pushed {
        cq.push(&mut vec![completion(wr_id, notify)])
    }

    fn taken(cq: &Cq) -> Vec<u64> {
        let mut out = [Completion::EMPTY; 8];
        let count = cq.poll(&mut out);
        out[..count].iter().map(|c| c.wr_id).collect()
    }

    #[test]
    fn completions_are_polled_in_order() {
        let cq = Cq::new(4, CqToken(1)).unwrap();
        assert!(cq.is_empty());
        for id in 0..3 {
            assert_eq!(push(&cq, id, Notify::Always), Pushed::default());
        }
        assert_eq!(taken(&cq), [0, 1, 2]);
        assert!(cq.is_empty());
    }

    #[test]
    fn growth_keeps_the_order_at_every_place_of_the_ring() {
        for shift in 0..RING_MIN as u64 {
            let cq = Cq::new(100, CqToken(1)).unwrap();
            for id in 0..shift {
                push(&cq, id, Notify::Always);
                assert_eq!(taken(&cq), [id]);
            }
            let ids: Vec<u64> = (0..40).collect();
            for id in &ids {
                assert!(!push(&cq, *id, Notify::Always).overflow);
            }
            let mut all = Vec::new();
            while !cq.is_empty() {
                all.extend(taken(&cq));
            }
            assert_eq!(all, ids, "begun at {shift}");
        }
    }

    #[test]
    fn a_full_queue_reports_the_loss_and_keeps_its_completions() {
        let cq = Cq::new(2, CqToken(1)).unwrap();
        let mut batch: Vec<_> = (0..3).map(|id| completion(id, Notify::Always)).collect();
        assert!(cq.push(&mut batch).overflow);
        assert!(batch.is_empty());
        assert_eq!(taken(&cq), [0, 1]);
        assert!(!push(&cq, 9, Notify::Always).overflow);
    }

    #[test]
    fn an_armed_queue_notifies_once() {
        let cq = Cq::new(8, CqToken(1)).unwrap();
        assert!(!cq.arm(false));
        assert!(!push(&cq, 1, Notify::Never).must_notify);
        assert!(push(&cq, 2, Notify::Always).must_notify);
        assert!(!push(&cq, 3, Notify::Always).must_notify);
        assert!(cq.arm(false), "there is a completion");
        assert_eq!(taken(&cq), [1, 2, 3]);
        assert!(!cq.arm(false));
        assert!(push(&cq, 4, Notify::Solicited).must_notify);
    }

    #[test]
    fn a_queue_armed_for_solicited_events_ignores_others() {
        let cq = Cq::new(8, CqToken(1)).unwrap();
        assert!(!cq.arm(true));
        assert!(!push(&cq, 1, Notify::Always).must_notify);
        assert!(push(&cq, 2, Notify::Solicited).must_notify);
        taken(&cq);
        assert!(!cq.arm(true));
        assert!(!cq.arm(false), "the wider request wins");
        assert!(push(&cq, 3, Notify::Always).must_notify);
    }

    #[test]
    fn resizing_keeps_the_queued_completions() {
        let cq = Cq::new(2, CqToken(1)).unwrap();
        push(&cq, 1, Notify::Always);
        push(&cq, 2, Notify::Always);
        assert!(matches!(cq.resize(1), Err(RnicError::InvalidState(_))));
        cq.resize(3).unwrap();
        assert!(!push(&cq, 3, Notify::Always).overflow);
        assert!(push(&cq, 4, Notify::Always).overflow);
        assert_eq!(taken(&cq), [1, 2, 3]);
    }
}
