//! The requests of one queue, in the order in which they were posted and complete.
//!
//! The posting side works under the queue pair's lock, the completing side under the completion
//! queue's lock. Atomic counters connect the two, so neither side takes the other's lock. Nothing
//! allocates after [`Ring::new`].
//!
//! # Requests that are overtaken
//!
//! A consumer gets its completions in the order of its posts, and takes a completion as proof that
//! all earlier requests are done. If the device lets requests overtake another
//! ([`At::DeviceLate`]), this ring keeps their outcomes until the overtaken request has its own.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rnic::{WcOpcode, WcStatus};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Posted {
    /// The consumer's identifier.
    pub(crate) wr_id: u64,
    /// Length in bytes, as posted.
    pub(crate) len: u32,
    pub(crate) opcode: WcOpcode,
    /// True if the consumer wants a completion on success.
    pub(crate) wants_completion: bool,
    /// True if the completion wakes a waiter.
    pub(crate) signalled: bool,
    /// The way in which the request completes.
    pub(crate) at: At,
}

/// The way in which a request completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// The device completes the request, on success and on failure.
    Device,
    /// As `Device`, but possibly after requests that were posted later.
    DeviceLate,
    /// The device completes the request only on failure. The completion of a later request shows
    /// its success.
    DeviceSilently,
    /// The device does not have the request, which waits to be flushed.
    NotPosted,
    /// The device completes the request, but the consumer gets no completion. It shows that all
    /// requests before it are done.
    Marker,
}

#[derive(Debug, Default)]
struct Slot {
    wr_id: AtomicU64,
    about: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Ring {
    slots: Box<[Slot]>,
    limit: u32,
    /// Number of requests ever taken; wraps around.
    head: AtomicU32,
    /// Number of requests ever posted; wraps around.
    tail: AtomicU32,
    /// Requests without an outcome that later requests may overtake.
    late: AtomicU32,
    /// Number of outcomes that wait for such a request. Only the completing side reads it.
    held: AtomicU32,
    /// The number of the last marker, and above it a bit that is set once there was one. Only the
    /// posting side reads it.
    marker: AtomicU64,
}

/// Set in [`Ring::marker`] once a marker has been posted.
const IS_NUMBER: u64 = 1 << 32;

/// The result of a completion of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// The request must be reported now.
    Now(Posted),
    /// An earlier request must be reported first. The outcome is kept, and [`Ring::release`]
    /// returns it.
    Held,
    /// The request was taken already.
    Gone,
}

impl Ring {
    /// Creates a ring for `limit` requests at once; `None` if there is no memory.
    pub(crate) fn new(limit: u32) -> Option<Self> {
        // One more than `limit`, for a marker.
        let capacity = limit.checked_add(1)?.checked_next_power_of_two()? as usize;
        let mut slots = Vec::new();
        slots.try_reserve_exact(capacity).ok()?;
        slots.resize_with(capacity, Slot::default);
        Some(Self {
            slots: slots.into_boxed_slice(),
            limit,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            late: AtomicU32::new(0),
            held: AtomicU32::new(0),
            marker: AtomicU64::new(0),
        })
    }

    /// Adds a request and returns its number; `None` if the queue is full. Only one thread may call
    /// this at a time.
    #[inline]
    pub(crate) fn push(&self, posted: &Posted) -> Option<u32> {
        // A marker does not count against the consumer's limit.
        self.push_within(posted, self.limit + u32::from(self.has_marker()))
    }

    /// Adds a marker, for which there is room beyond the limit.
    pub(crate) fn push_marker(&self) -> Option<u32> {
        let marker = Posted {
            wr_id: 0,
            len: 0,
            opcode: WcOpcode::RdmaWrite,
            wants_completion: false,
            signalled: false,
            at: At::Marker,
        };
        let sequence = self.push_within(&marker, self.limit + 1)?;
        let number = IS_NUMBER | u64::from(sequence);
        self.marker.store(number, Ordering::Relaxed);
        Some(sequence)
    }

    #[inline]
    fn has_marker(&self) -> bool {
        let number = self.marker.load(Ordering::Relaxed);
        number & IS_NUMBER != 0 && self.has(number as u32)
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
        if posted.at == At::DeviceLate {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        self.tail.store(tail.wrapping_add(1), Ordering::Release);
        Some(tail)
    }

    /// Removes the last request, which the device refused. Returns false if the device has
    /// completed the request nevertheless: its completion is or was reported, so it counts as
    /// posted.
    ///
    /// Only the thread that called `push` may call this, and no thread may call `take` meanwhile.
    pub(crate) fn unpush(&self) -> bool {
        let tail = self.tail.load(Ordering::Relaxed);
        let last = tail.wrapping_sub(1);
        if tail == self.head.load(Ordering::Acquire) || self.outcome(last).is_some() {
            return false;
        }
        match self.read(last).at {
            At::DeviceLate => drop(self.late.fetch_sub(1, Ordering::Relaxed)),
            At::Marker => self.marker.store(0, Ordering::Relaxed),
            At::Device | At::DeviceSilently | At::NotPosted => {}
        }
        self.tail.store(last, Ordering::Release);
        true
    }

    /// Takes the request of this number, with its outcome. The requests before it are removed too:
    /// they succeeded, and the consumer wants no completion of them. Only one thread may call this
    /// at a time; that thread then calls [`release`](Self::release) until nothing is left.
    #[inline]
    pub(crate) fn take(&self, sequence: u32, status: WcStatus) -> Taken {
        let head = self.head.load(Ordering::Relaxed);
        let posted = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        if sequence.wrapping_sub(head) >= posted {
            return Taken::Gone;
        }
        let request = self.read(sequence);
        if self.late.load(Ordering::Relaxed) > 0 && !self.settle(head, sequence, &request, status) {
            return Taken::Held;
        }
        self.head.store(sequence.wrapping_add(1), Ordering::Release);
        Taken::Now(request)
    }

    /// Returns true if an outcome can be reported while some request is late. Otherwise the outcome
    /// is kept.
    fn settle(&self, head: u32, sequence: u32, request: &Posted, status: WcStatus) -> bool {
        if request.at == At::DeviceLate {
            self.late.fetch_sub(1, Ordering::Relaxed);
        }
        let before = sequence.wrapping_sub(head);
        let mut earlier = (0..before).map(|index| head.wrapping_add(index));
        if !earlier.any(|earlier| self.is_awaited_late(earlier)) {
            return true;
        }
        let about = &self.slot(sequence).about;
        about.fetch_or(outcome_bits(status), Ordering::Relaxed);
        self.held.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn is_awaited_late(&self, sequence: u32) -> bool {
        self.read(sequence).at == At::DeviceLate && self.outcome(sequence).is_none()
    }

    /// True if outcomes wait for that of an earlier request. Only the thread that calls `take` may
    /// call this.
    #[inline]
    pub(crate) fn has_held(&self) -> bool {
        self.held.load(Ordering::Relaxed) > 0
    }

    /// Takes the oldest request whose outcome was kept, unless an earlier request must be reported
    /// first. Only the thread that calls `take` may call this.
    pub(crate) fn release(&self) -> Option<(Posted, WcStatus)> {
        if !self.has_held() {
            return None;
        }
        let tail = self.tail.load(Ordering::Acquire);
        let mut sequence = self.head.load(Ordering::Relaxed);
        while sequence != tail {
            let (request, next) = (self.read(sequence), sequence.wrapping_add(1));
            match self.outcome(sequence) {
                Some(status) => {
                    self.held.fetch_sub(1, Ordering::Relaxed);
                    self.head.store(next, Ordering::Release);
                    return Some((request, status));
                }
                // A silent request is done if a later one is done.
                None if request.at == At::DeviceSilently => sequence = next,
                None => return None,
            }
        }
        None
    }

    /// Takes the oldest request that did not succeed silently, with its outcome if there is one,
    /// else as flushed. Only the thread that calls `take` may call this, once the device will
    /// complete nothing more.
    pub(crate) fn pop_unfinished(&self) -> Option<(Posted, WcStatus)> {
        loop {
            let head = self.head.load(Ordering::Relaxed);
            if head == self.tail.load(Ordering::Acquire) {
                return None;
            }
            let (request, outcome) = (self.read(head), self.outcome(head));
            match outcome {
                Some(_) => self.held.fetch_sub(1, Ordering::Relaxed),
                None if request.at == At::DeviceLate => self.late.fetch_sub(1, Ordering::Relaxed),
                None => 0,
            };
            self.head.store(head.wrapping_add(1), Ordering::Release);
            let is_silent = matches!(request.at, At::DeviceSilently | At::Marker);
            if outcome.is_some() || !is_silent {
                return Some((request, outcome.unwrap_or(WcStatus::Flushed)));
            }
        }
    }

    /// True if the device must still report a completion.
    pub(crate) fn awaits_device(&self) -> bool {
        let (head, tail) = (
            self.head.load(Ordering::Acquire),
            self.tail.load(Ordering::Acquire),
        );
        let mut sequence = head;
        while sequence != tail {
            let is_completed_by_device = matches!(
                self.read(sequence).at,
                At::Device | At::DeviceLate | At::Marker
            );
            if is_completed_by_device && self.outcome(sequence).is_none() {
                return true;
            }
            sequence = sequence.wrapping_add(1);
        }
        false
    }

    /// True if the request of this number has not completed.
    pub(crate) fn has(&self, sequence: u32) -> bool {
        let head = self.head.load(Ordering::Acquire);
        let posted = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        sequence.wrapping_sub(head) < posted
    }

    /// True if the device does not report the success of the last request.
    pub(crate) fn ends_silently(&self) -> bool {
        let last = self.tail.load(Ordering::Acquire).wrapping_sub(1);
        self.len() > 0 && self.read(last).at == At::DeviceSilently
    }

    /// The number of requests that have not completed.
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

    /// The outcome that is kept for a request which is not reported yet.
    fn outcome(&self, sequence: u32) -> Option<WcStatus> {
        let about = self.slot(sequence).about.load(Ordering::Relaxed);
        let number = (about >> OUTCOME_SHIFT) as usize;
        number.checked_sub(1).map(|index| OUTCOMES[index])
    }
}

/// The position of the outcome in a slot's word: 0 for none, else one more than its index in
/// [`OUTCOMES`].
const OUTCOME_SHIFT: u32 = 48;

/// All outcomes, by the number that a slot contains.
const OUTCOMES: [WcStatus; 12] = [
    WcStatus::Success,
    WcStatus::Flushed,
    WcStatus::LocalLength,
    WcStatus::LocalQpOperation,
    WcStatus::LocalProtection,
    WcStatus::BadResponse,
    WcStatus::RemoteAccess,
    WcStatus::RemoteInvalidRequest,
    WcStatus::RemoteOperation,
    WcStatus::Transport,
    WcStatus::ReceiverNotReady,
    WcStatus::BindFailed,
];

fn outcome_bits(status: WcStatus) -> u64 {
    let index = OUTCOMES.iter().position(|known| *known == status);
    (index.unwrap_or(0) as u64 + 1) << OUTCOME_SHIFT
}

/// All opcodes of posted requests, by the number that a slot contains.
const OPCODES: [WcOpcode; 9] = [
    WcOpcode::Send,
    WcOpcode::RdmaWrite,
    WcOpcode::RdmaRead,
    WcOpcode::Recv,
    WcOpcode::RdmaWriteImmediate,
    WcOpcode::FetchAdd,
    WcOpcode::CompareSwap,
    WcOpcode::BindMw,
    WcOpcode::LocalInvalidate,
];

/// The ways in which requests complete, indexed by their numbers.
const ATS: [At; 5] = [
    At::Device,
    At::DeviceLate,
    At::DeviceSilently,
    At::NotPosted,
    At::Marker,
];

impl Posted {
    /// Returns a receive that was posted to the device.
    pub(crate) fn receive(wr_id: u64, len: u32, signalled: bool) -> Self {
        Self {
            wr_id,
            len,
            opcode: WcOpcode::Recv,
            wants_completion: true,
            signalled,
            at: At::Device,
        }
    }

    fn about(&self) -> u64 {
        let opcode = OPCODES.iter().position(|known| *known == self.opcode);
        u64::from(self.len)
            | (opcode.unwrap_or(0) as u64) << 32
            | u64::from(self.wants_completion) << 40
            | u64::from(self.signalled) << 41
            | (self.at as u64) << 42
    }

    fn of(wr_id: u64, about: u64) -> Self {
        Self {
            wr_id,
            len: about as u32,
            opcode: OPCODES[(about >> 32 & 0xFF) as usize % OPCODES.len()],
            wants_completion: about >> 40 & 1 == 1,
            signalled: about >> 41 & 1 == 1,
            at: ATS[(about >> 42 & 7) as usize % ATS.len()],
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
            wants_completion: true,
            signalled: false,
            at,
        }
    }

    const DONE: WcStatus = WcStatus::Success;

    #[test]
    fn a_slot_keeps_every_opcode_whatever_the_flags() {
        for opcode in OPCODES {
            for (wants_completion, signalled) in [(false, false), (false, true), (true, true)] {
                let posted = Posted {
                    opcode,
                    wants_completion,
                    signalled,
                    ..request(1, At::DeviceLate)
                };
                let kept = Posted::of(1, posted.about());
                assert_eq!(kept.opcode, opcode);
                let flags = (kept.wants_completion, kept.signalled);
                assert_eq!(flags, (wants_completion, signalled));
            }
        }
    }

    /// Takes a request that has succeeded; `None` if it must not be reported.
    fn take(ring: &Ring, sequence: u32) -> Option<Posted> {
        match ring.take(sequence, DONE) {
            Taken::Now(posted) => Some(posted),
            Taken::Held | Taken::Gone => None,
        }
    }

    #[test]
    fn slots_store_all_fields() {
        for opcode in OPCODES {
            for (wants_completion, signalled) in [(false, true), (true, false)] {
                for at in ATS {
                    let posted = Posted {
                        wr_id: u64::MAX,
                        len: u32::MAX,
                        opcode,
                        wants_completion,
                        signalled,
                        at,
                    };
                    let ring = Ring::new(1).unwrap();
                    let sequence = ring.push(&posted).unwrap();
                    assert_eq!(take(&ring, sequence), Some(posted));
                }
            }
        }
    }

    #[test]
    fn a_queue_accepts_its_depth_and_no_more() {
        let ring = Ring::new(3).unwrap();
        for round in 0..10 {
            let first = ring.push(&request(round, At::Device)).unwrap();
            ring.push(&request(round, At::Device)).unwrap();
            ring.push(&request(round, At::Device)).unwrap();
            assert_eq!(ring.push(&request(9, At::Device)), None);
            assert_eq!(ring.len(), 3);
            assert!(take(&ring, first).is_some());
            assert_eq!(ring.len(), 2);
            assert!(take(&ring, first.wrapping_add(2)).is_some());
            assert_eq!(ring.len(), 0);
        }
    }

    #[test]
    fn a_completion_completes_all_requests_before_it() {
        let ring = Ring::new(4).unwrap();
        ring.push(&request(1, At::DeviceSilently)).unwrap();
        let second = ring.push(&request(2, At::Device)).unwrap();
        ring.push(&request(3, At::DeviceSilently)).unwrap();
        assert_eq!(take(&ring, second).map(|p| p.wr_id), Some(2));
        assert_eq!(take(&ring, second), None, "taken already");
        assert_eq!(ring.len(), 1);
        assert!(!ring.awaits_device());
    }

    #[test]
    fn a_refused_request_is_removed() {
        let ring = Ring::new(2).unwrap();
        ring.push(&request(1, At::Device)).unwrap();
        assert!(ring.unpush());
        assert_eq!(ring.len(), 0);
        let sequence = ring.push(&request(2, At::Device)).unwrap();
        assert_eq!(take(&ring, sequence).map(|p| p.wr_id), Some(2));
    }

    #[test]
    fn the_rest_is_flushed_in_order_without_silent_successes() {
        let ring = Ring::new(8).unwrap();
        for (wr_id, at) in [
            (1, At::DeviceSilently),
            (2, At::Device),
            (3, At::DeviceSilently),
            (4, At::NotPosted),
        ] {
            ring.push(&request(wr_id, at)).unwrap();
        }
        assert!(ring.awaits_device());
        let rest: Vec<(u64, bool)> = std::iter::from_fn(|| ring.pop_unfinished())
            .map(|(posted, status)| (posted.wr_id, status == WcStatus::Flushed))
            .collect();
        assert_eq!(rest, [(2, true), (4, true)]);
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
        assert_eq!(take(&ring, marker).map(|p| p.at), Some(At::Marker));
        assert_eq!(ring.len(), 0);
    }

    #[test]
    fn a_marker_uses_no_queue_entry_of_the_consumer() {
        let ring = Ring::new(2).unwrap();
        let silent = request(1, At::DeviceSilently);
        ring.push(&silent).unwrap();
        let marker = ring.push_marker().unwrap();
        ring.push(&silent).unwrap();
        assert_eq!(ring.push(&silent), None, "two requests are queued");
        assert!(take(&ring, marker).is_some());
        ring.push(&silent).unwrap();
        assert_eq!(ring.push(&silent), None, "two requests are queued");
        ring.push_marker().unwrap();
        assert!(ring.unpush());
        assert_eq!(ring.push(&silent), None, "the device has completed none");
    }

    #[test]
    fn numbers_wrap_around() {
        let ring = Ring::new(2).unwrap();
        ring.head.store(u32::MAX, Ordering::Relaxed);
        ring.tail.store(u32::MAX, Ordering::Relaxed);
        let last = ring.push(&request(1, At::Device)).unwrap();
        let first = ring.push(&request(2, At::Device)).unwrap();
        assert_eq!((last, first), (u32::MAX, 0));
        assert_eq!(take(&ring, first).map(|p| p.wr_id), Some(2));
        assert_eq!(ring.len(), 0);
    }

    #[test]
    fn a_queue_has_a_request_from_its_post_to_its_completion() {
        let ring = Ring::new(4).unwrap();
        assert!(!ring.has(0));
        let numbers = [0, 1, 2].map(|index| ring.push(&request(index, At::Device)).unwrap());
        assert_eq!(numbers.map(|number| ring.has(number)), [true; 3]);
        take(&ring, numbers[1]).unwrap();
        assert_eq!(numbers.map(|number| ring.has(number)), [false, false, true]);
        assert!(ring.unpush());
        assert!(!ring.has(numbers[2]) && !ring.has(numbers[2].wrapping_add(1)));
    }

    fn ring_of(ats: &[At]) -> Ring {
        let ring = Ring::new(8).unwrap();
        for (index, at) in ats.iter().enumerate() {
            ring.push(&request(index as u64, *at)).unwrap();
        }
        ring
    }

    fn released(ring: &Ring) -> Vec<(u64, WcStatus)> {
        std::iter::from_fn(|| ring.release())
            .map(|(posted, status)| (posted.wr_id, status))
            .collect()
    }

    #[test]
    fn outcomes_that_overtook_a_late_request_are_reported_after_it() {
        let ring = ring_of(&[
            At::DeviceLate,
            At::Device,
            At::DeviceSilently,
            At::Device,
            At::Device,
        ]);
        assert_eq!(ring.take(1, DONE), Taken::Held);
        assert_eq!(ring.take(3, WcStatus::LocalProtection), Taken::Held);
        assert!(ring.awaits_device());
        assert_eq!((ring.len(), released(&ring)), (5, vec![]));
        assert_eq!(take(&ring, 0).map(|p| p.wr_id), Some(0), "the late one");
        let rest = [(1, DONE), (3, WcStatus::LocalProtection)];
        assert_eq!(released(&ring), rest);
        assert_eq!(ring.take(1, DONE), Taken::Gone);
        assert_eq!(take(&ring, 4).map(|p| p.wr_id), Some(4));
        assert!(!ring.has_held() && !ring.awaits_device());
    }

    #[test]
    fn every_late_request_delays_later_requests() {
        let ring = ring_of(&[At::DeviceLate, At::Device, At::DeviceLate, At::Device]);
        assert_eq!(ring.take(1, DONE), Taken::Held);
        assert_eq!(ring.take(3, DONE), Taken::Held);
        assert!(take(&ring, 0).is_some());
        assert_eq!(released(&ring), [(1, DONE)]);
        assert!(ring.has_held());
        assert!(take(&ring, 2).is_some());
        assert_eq!(released(&ring), [(3, DONE)]);
        assert_eq!(ring.len(), 0);
    }

    #[test]
    fn late_requests_that_are_in_time_delay_no_other() {
        let ring = ring_of(&[At::Device, At::DeviceLate, At::Device]);
        for sequence in 0..3 {
            assert!(take(&ring, sequence).is_some());
            assert_eq!(released(&ring), []);
        }
        ring.push(&request(3, At::DeviceLate)).unwrap();
        assert!(ring.unpush());
        let next = ring.push(&request(4, At::Device)).unwrap();
        ring.push(&request(5, At::Device)).unwrap();
        assert!(take(&ring, next.wrapping_add(1)).is_some());
    }

    #[test]
    fn a_kept_outcome_is_unchanged_by_the_flush_of_the_late_request() {
        let ring = ring_of(&[At::DeviceLate, At::DeviceSilently, At::Device, At::Device]);
        assert_eq!(ring.take(2, DONE), Taken::Held);
        let rest: Vec<_> = std::iter::from_fn(|| ring.pop_unfinished())
            .map(|(posted, status)| (posted.wr_id, status))
            .collect();
        let flushed = WcStatus::Flushed;
        assert_eq!(rest, [(0, flushed), (2, DONE), (3, flushed)]);
        assert!(!ring.has_held() && ring.len() == 0);
        let next = ring.push(&request(6, At::Device)).unwrap();
        assert!(take(&ring, next).is_some(), "no request is late any more");
    }

    #[test]
    fn every_outcome_is_unchanged_while_it_is_kept() {
        for status in OUTCOMES {
            let ring = ring_of(&[At::DeviceLate, At::Device]);
            assert_eq!(ring.take(1, status), Taken::Held);
            assert!(take(&ring, 0).is_some());
            assert_eq!(released(&ring), [(1, status)]);
        }
    }

    /// siw's library makes a request visible to the kernel and then rings the doorbell, which may
    /// fail for a queue pair that the kernel is flushing.
    #[test]
    fn a_request_that_the_device_refused_and_completed_counts_as_posted() {
        let ring = Ring::new(4).unwrap();
        let sequence = ring.push(&request(1, At::Device)).unwrap();
        assert_eq!(take(&ring, sequence).map(|done| done.wr_id), Some(1));
        assert!(!ring.unpush());
        assert_eq!((ring.len(), ring.pop_unfinished()), (0, None));

        let late = ring.push(&request(2, At::DeviceLate)).unwrap();
        let last = ring.push(&request(3, At::Device)).unwrap();
        assert_eq!(ring.take(last, WcStatus::Flushed), Taken::Held);
        assert!(!ring.unpush());
        assert_eq!(take(&ring, late).map(|done| done.wr_id), Some(2));
        let (released, status) = ring.release().unwrap();
        assert_eq!((released.wr_id, status), (3, WcStatus::Flushed));
        assert_eq!(ring.len(), 0);
    }
}
