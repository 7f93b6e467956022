//! The requests of one queue, in the order in which they were posted and complete.
//!
//! One side posts, under the queue pair's lock; the other takes, under the completion queue's. They
//! meet in two counters, so neither takes the other's lock. Nothing allocates after the making.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use access_layer::rnic::WcOpcode;

/// A posted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posted {
    /// The consumer's.
    pub(crate) wr_id: u64,
    /// Bytes, as posted.
    pub(crate) len: u32,
    pub(crate) opcode: WcOpcode,
    /// Whether the consumer wants to hear of its success.
    pub(crate) told: bool,
    /// Whether its completion wakes a waiter.
    pub(crate) signalled: bool,
    /// Who completes it.
    pub(crate) at: At,
}

/// Who completes a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// The device, whatever becomes of it.
    Device,
    /// The device when it fails; its success shows in that of a later one.
    DeviceSilently,
    /// Nobody: it waits to be flushed.
    Nobody,
    /// The device, and nobody is told: it shows that all before it are done.
    Marker,
}

#[derive(Debug, Default)]
struct Slot {
    wr_id: AtomicU64,
    about: AtomicU64,
}

/// A queue's requests.
#[derive(Debug)]
pub(crate) struct Ring {
    slots: Box<[Slot]>,
    limit: u32,
    /// Requests ever taken; counts around.
    head: AtomicU32,
    /// Requests ever posted; counts around.
    tail: AtomicU32,
}

impl Ring {
    /// For so many requests at once; `None` when there is no memory.
    pub(crate) fn new(limit: u32) -> Option<Self> {
        // One more, for a marker.
        let capacity = limit.checked_add(1)?.checked_next_power_of_two()? as usize;
        let mut slots = Vec::new();
        slots.try_reserve_exact(capacity).ok()?;
        slots.resize_with(capacity, Slot::default);
        Some(Self {
            slots: slots.into_boxed_slice(),
            limit,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        })
    }

    /// Adds a request and returns its number; `None` when the queue is full. One caller at a time.
    #[inline]
    pub(crate) fn push(&self, posted: &Posted) -> Option<u32> {
        self.push_within(posted, self.limit)
    }

    /// Adds a marker, for which there is room beyond the limit.
    pub(crate) fn push_marker(&self) -> Option<u32> {
        let marker = Posted {
            wr_id: 0,
            len: 0,
            opcode: WcOpcode::RdmaWrite,
            told: false,
            signalled: false,
            at: At::Marker,
        };
        self.push_within(&marker, self.limit + 1)
    }

    #[inline]
    fn push_within(&self, posted: &Posted, limit: u32) -> Option<u32> {
        let tail = self.tail.load(Ordering::Relaxed);
        if tail.wrapping_sub(self.head.load(Ordering::Acquire)) >= limit {
            return None;
        }
        let slot = self.slot(tail);
        slot.wr_id.store(posted.wr_id, Ordering::Relaxed);
        slot.about.store(posted.about(), Ordering::Relaxed);
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Some(tail)
    }

    /// Takes the last request back, which the device refused. By the caller of `push`.
    pub(crate) fn unpush(&self) {
        let tail = self.tail.load(Ordering::Relaxed);
        self.tail.store(tail.wrapping_sub(1), Ordering::Release);
    }

    /// Takes the request of this number. Those before it are gone with it: they succeeded, and
    /// nobody wanted to hear of it. `None` when it was taken already. One caller at a time.
    #[inline]
    pub(crate) fn take(&self, sequence: u32) -> Option<Posted> {
        let head = self.head.load(Ordering::Relaxed);
        let posted = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        if sequence.wrapping_sub(head) >= posted {
            return None;
        }
        let request = self.read(sequence);
        self.head.store(sequence.wrapping_add(1), Ordering::Release);
        Some(request)
    }

    /// Takes the oldest request that did not succeed in silence. By the caller of `take`, when the
    /// device has nothing to say any more.
    pub(crate) fn pop_unfinished(&self) -> Option<Posted> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            let request = self.take(head)?;
            if !matches!(request.at, At::DeviceSilently | At::Marker) {
                return Some(request);
            }
        }
    }

    /// Whether the device still has something to say.
    pub(crate) fn awaits_device(&self) -> bool {
        let (head, tail) = (
            self.head.load(Ordering::Acquire),
            self.tail.load(Ordering::Acquire),
        );
        let mut sequence = head;
        while sequence != tail {
            if matches!(self.read(sequence).at, At::Device | At::Marker) {
                return true;
            }
            sequence = sequence.wrapping_add(1);
        }
        false
    }

    /// Whether the last request is one of which the device says nothing when it succeeds.
    pub(crate) fn ends_silently(&self) -> bool {
        let last = self.tail.load(Ordering::Acquire).wrapping_sub(1);
        self.len() > 0 && self.read(last).at == At::DeviceSilently
    }

    /// Requests that have not completed.
    pub(crate) fn len(&self) -> u32 {
        let tail = self.tail.load(Ordering::Acquire);
        tail.wrapping_sub(self.head.load(Ordering::Acquire))
    }

    fn slot(&self, sequence: u32) -> &Slot {
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }

    fn read(&self, sequence: u32) -> Posted {
        let slot = self.slot(sequence);
        let about = slot.about.load(Ordering::Relaxed);
        Posted::of(slot.wr_id.load(Ordering::Relaxed), about)
    }
}

/// All opcodes of posted requests, by the number that a slot holds.
const OPCODES: [WcOpcode; 8] = [
    WcOpcode::Send,
    WcOpcode::RdmaWrite,
    WcOpcode::RdmaRead,
    WcOpcode::Recv,
    WcOpcode::RdmaWriteImmediate,
    WcOpcode::FetchAdd,
    WcOpcode::CompareSwap,
    WcOpcode::BindMw,
];

impl Posted {
    fn about(&self) -> u64 {
        let opcode = OPCODES.iter().position(|known| *known == self.opcode);
        let at = match self.at {
            At::Device => 0,
            At::DeviceSilently => 1,
            At::Nobody => 2,
            At::Marker => 3_u64,
        };
        u64::from(self.len)
            | (opcode.unwrap_or(0) as u64) << 32
            | u64::from(self.told) << 40
            | u64::from(self.signalled) << 41
            | at << 42
    }

    fn of(wr_id: u64, about: u64) -> Self {
        Self {
            wr_id,
            len: about as u32,
            opcode: OPCODES[(about >> 32) as usize % OPCODES.len()],
            told: about >> 40 & 1 == 1,
            signalled: about >> 41 & 1 == 1,
            at: match about >> 42 {
                0 => At::Device,
                1 => At::DeviceSilently,
                2 => At::Nobody,
                _ => At::Marker,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(wr_id: u64, at: At) -> Posted {
        Posted {
            wr_id,
            len: 7,
            opcode: WcOpcode::Send,
            told: true,
            signalled: false,
            at,
        }
    }

    #[test]
    fn slots_keep_everything() {
        for opcode in OPCODES {
            for (told, signalled) in [(false, true), (true, false)] {
                for at in [At::Device, At::DeviceSilently, At::Nobody, At::Marker] {
                    let posted = Posted {
                        wr_id: u64::MAX,
                        len: u32::MAX,
                        opcode,
                        told,
                        signalled,
                        at,
                    };
                    let ring = Ring::new(1).unwrap();
                    let sequence = ring.push(&posted).unwrap();
                    assert_eq!(ring.take(sequence), Some(posted));
                }
            }
        }
    }

    #[test]
    fn a_queue_takes_what_it_was_made_for_and_no_more() {
        let ring = Ring::new(3).unwrap();
        for round in 0..10 {
            let first = ring.push(&request(round, At::Device)).unwrap();
            ring.push(&request(round, At::Device)).unwrap();
            ring.push(&request(round, At::Device)).unwrap();
            assert_eq!(ring.push(&request(9, At::Device)), None);
            assert_eq!(ring.len(), 3);
            assert!(ring.take(first).is_some());
            assert_eq!(ring.len(), 2);
            assert!(ring.take(first.wrapping_add(2)).is_some());
            assert_eq!(ring.len(), 0);
        }
    }

    #[test]
    fn a_completion_takes_those_before_it_along() {
        let ring = Ring::new(4).unwrap();
        ring.push(&request(1, At::DeviceSilently)).unwrap();
        let second = ring.push(&request(2, At::Device)).unwrap();
        ring.push(&request(3, At::DeviceSilently)).unwrap();
        assert_eq!(ring.take(second).map(|p| p.wr_id), Some(2));
        assert_eq!(ring.take(second), None, "a second time");
        assert_eq!(ring.len(), 1);
        assert!(!ring.awaits_device());
    }

    #[test]
    fn what_was_refused_is_gone() {
        let ring = Ring::new(2).unwrap();
        ring.push(&request(1, At::Device)).unwrap();
        ring.unpush();
        assert_eq!(ring.len(), 0);
        let sequence = ring.push(&request(2, At::Device)).unwrap();
        assert_eq!(ring.take(sequence).map(|p| p.wr_id), Some(2));
    }

    #[test]
    fn the_rest_is_flushed_in_order_without_silent_successes() {
        let ring = Ring::new(8).unwrap();
        for (wr_id, at) in [
            (1, At::DeviceSilently),
            (2, At::Device),
            (3, At::DeviceSilently),
            (4, At::Nobody),
        ] {
            ring.push(&request(wr_id, at)).unwrap();
        }
        assert!(ring.awaits_device());
        let rest: Vec<u64> = std::iter::from_fn(|| ring.pop_unfinished())
            .map(|p| p.wr_id)
            .collect();
        assert_eq!(rest, [2, 4]);
        assert_eq!(ring.len(), 0);
    }

    #[test]
    fn a_marker_follows_silent_requests_even_in_a_full_queue() {
        let ring = Ring::new(2).unwrap();
        assert!(!ring.ends_silently());
        ring.push(&request(1, At::Device)).unwrap();
        assert!(!ring.ends_silently());
        ring.push(&request(2, At::DeviceSilently)).unwrap();
        assert!(ring.ends_silently());
        let marker = ring.push_marker().unwrap();
        assert!(!ring.ends_silently());
        assert_eq!(ring.push_marker(), None);
        assert_eq!(ring.take(marker).map(|p| p.at), Some(At::Marker));
        assert_eq!(ring.len(), 0);
    }

    #[test]
    fn numbers_count_around() {
        let ring = Ring::new(2).unwrap();
        ring.head.store(u32::MAX, Ordering::Relaxed);
        ring.tail.store(u32::MAX, Ordering::Relaxed);
        let last = ring.push(&request(1, At::Device)).unwrap();
        let first = ring.push(&request(2, At::Device)).unwrap();
        assert_eq!((last, first), (u32::MAX, 0));
        assert_eq!(ring.take(first).map(|p| p.wr_id), Some(2));
        assert_eq!(ring.len(), 0);
    }
}
