//! The data that the lock of a completion queue guards.

use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use rnic::{Completion, Notify, QpToken, WcOpcode, WcStatus};
use slab::Slab;
use verbs_dl::types::*;

use super::wc;
use crate::work::{Kind, PLACES, Posted, Receives, Taken, Ticket, Work};

/// Entries taken from the device by one call.
pub(super) const BATCH: usize = 16;

/// The completions for which the queue is armed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Armed {
    No,
    Any,
    SolicitedOnly,
}

/// Completions, and the queue pairs to which they belong.
pub(super) struct Inner {
    hw: NonNull<ibv_cq>,
    /// Completions that no poll has returned yet: flushed without the device, taken from the device
    /// by [`pull`](Self::pull), or queued behind such completions.
    pub(super) queue: VecDeque<Completion>,
    works: Slab<Arc<Work>>,
    /// Index of a queue pair in `works`, by its number. Receives of a shared queue carry no ticket
    /// of their queue pair.
    places: HashMap<u32, u32>,
    /// The shared receive queues of the queue pairs, by the numbers in their tickets.
    shared: HashMap<u32, Weak<Receives>>,
    /// Resources that the device may use for requests that it has not completed.
    kept: Vec<Kept>,
    pub(super) armed: Armed,
    /// True if a completion for which the queue is armed was queued or polled.
    pub(super) has_fired: bool,
    /// True if the device has reported a solicited message that has not been polled yet.
    pub(super) has_solicited_event: bool,
    /// Index of the queue pair whose request completed last, if outcomes may have waited for that
    /// request.
    unblocked: Option<u32>,
    /// Queue pairs whose work failed, to be reported after the lock is released.
    pub(super) failures: Vec<QpToken>,
    batch: Box<[ibv_wc; BATCH]>,
}

/// A resource that is dropped when the device has completed a request of a send queue.
pub(super) struct Kept {
    place: u32,
    sequence: u32,
    _what: Box<dyn Send>,
}

// SAFETY: the pointer is to a verbs object, which any thread may use.
unsafe impl Send for Inner {}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner")
            .field("queued", &self.queue.len())
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(super) fn new(hw: NonNull<ibv_cq>) -> Self {
        Self {
            hw,
            queue: VecDeque::new(),
            works: Slab::new(),
            places: HashMap::new(),
            shared: HashMap::new(),
            kept: Vec::new(),
            armed: Armed::No,
            has_fired: false,
            has_solicited_event: false,
            unblocked: None,
            failures: Vec::new(),
            batch: Box::new([ibv_wc::default(); BATCH]),
        }
    }

    /// Adds the work of a queue pair with the number `num` and returns its index; `None` if there
    /// are too many.
    pub(super) fn attach(&mut self, work: &Arc<Work>, num: u32) -> Option<u32> {
        if self.works.len() >= PLACES {
            return None;
        }
        let place = self.works.insert(work.clone()) as u32;
        self.places.insert(num, place);
        if let Some(receives) = &work.srq {
            self.shared.retain(|_, known| known.strong_count() > 0);
            self.shared
                .insert(receives.number(), Arc::downgrade(receives));
        }
        Some(place)
    }

    pub(super) fn rename(&mut self, place: u32, old: u32, new: u32) {
        self.forget_number(place, old);
        self.places.insert(new, place);
    }

    pub(super) fn detach(&mut self, place: u32, num: u32) {
        self.forget_number(place, num);
        self.kept.retain(|kept| kept.place != place);
        self.works.try_remove(place as usize);
    }

    /// Keeps `what` until the device has completed a request of the send queue at `place`. Returns
    /// `false` and drops `what` if the device has completed the request already.
    pub(super) fn keep(&mut self, place: u32, sequence: u32, what: Box<dyn Send>) -> bool {
        let kept = Kept {
            place,
            sequence,
            _what: what,
        };
        let awaits = self.awaits(&kept);
        if awaits {
            self.kept.push(kept);
        }
        awaits
    }

    fn awaits(&self, kept: &Kept) -> bool {
        let work = self.works.get(kept.place as usize);
        work.is_some_and(|work| work.sends.has(kept.sequence))
    }

    /// Drops the resources of completed requests, before the completions are reported.
    #[cold]
    fn drop_kept(&mut self) {
        let mut kept = std::mem::take(&mut self.kept);
        kept.retain(|one| self.awaits(one));
        self.kept = kept;
    }

    /// Removes a number, unless the device has assigned it to another queue pair of this queue
    /// meanwhile.
    fn forget_number(&mut self, place: u32, num: u32) {
        if self.places.get(&num) == Some(&place) {
            self.places.remove(&num);
        }
    }

    pub(super) fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        loop {
            while count < out.len()
                && let Some(completion) = self.queue.pop_front()
            {
                out[count] = completion;
                count += 1;
            }
            let room = BATCH.min(out.len() - count);
            if room == 0 {
                return count;
            }
            let got = self.take_from_device(room);
            for index in 0..got {
                let entry = self.batch[index];
                match self.translate(&entry) {
                    Some(completion) if self.queue.is_empty() => {
                        // The device's event for this completion is still under way. If the
                        // completion did not count as reported, the engine would arm the device
                        // again and would be woken for every completion that a consumer polls.
                        self.has_fired |= self.is_armed_for(&completion);
                        out[count] = completion;
                        count += 1;
                    }
                    Some(completion) => self.push(completion),
                    None => {}
                }
                self.release();
            }
            if got < room && self.queue.is_empty() {
                return count;
            }
        }
    }

    /// Moves all completions of the device into the queue.
    pub(super) fn pull(&mut self) {
        loop {
            let got = self.take_from_device(BATCH);
            for index in 0..got {
                let entry = self.batch[index];
                if let Some(completion) = self.translate(&entry) {
                    self.push(completion);
                }
                self.release();
            }
            if got < BATCH {
                return;
            }
        }
    }

    /// Called when the device was armed. Earlier completions cause no event, so only the caller's
    /// poll can report them.
    pub(super) fn on_armed(&mut self) {
        self.pull();
        if self.armed == Armed::SolicitedOnly {
            self.solicit_one();
        }
        self.has_fired = false;
    }

    /// Called when the device has reported an event. If the event `is_exact`, it means that a
    /// message was solicited or that work failed. The completion may have been taken from the
    /// device before its event, into the queue or by a poll, and then counts as reported only now.
    pub(super) fn on_event(&mut self, is_exact: bool) {
        let solicited_only = self.armed == Armed::SolicitedOnly;
        self.has_solicited_event |= solicited_only;
        self.pull();
        if solicited_only && is_exact && !self.has_fired {
            self.solicit_one();
            (self.has_solicited_event, self.has_fired) = (false, true);
        }
    }

    /// Reports the oldest queued message as solicited, unless one is solicited already. A waiter
    /// that is woken once too often waits again; a waiter that is not woken waits for ever.
    fn solicit_one(&mut self) {
        let is_receive = |completion: &&mut Completion| {
            let is_waiting = completion.notify != Notify::Never;
            is_waiting && is_receive(completion.opcode)
        };
        if let Some(message) = self.queue.iter_mut().find(is_receive) {
            message.notify = Notify::Solicited;
        }
    }

    /// Queues the outcomes that waited for the request that was translated last.
    #[inline]
    fn release(&mut self) {
        let Some(place) = self.unblocked.take() else {
            return;
        };
        let Some(work) = self.works.get(place as usize).cloned() else {
            return;
        };
        while let Some((posted, status)) = work.sends.release() {
            if let Some(completion) = work.sent(&posted, status) {
                self.push(completion);
            }
        }
    }

    /// Adds a completion at the end of the queue.
    pub(super) fn push(&mut self, completion: Completion) {
        self.has_fired |= self.is_armed_for(&completion);
        self.queue.push_back(completion);
    }

    /// Flushes the remaining requests of a queue pair, without the device.
    pub(super) fn flush_sends(&mut self, work: &Work) {
        while let Some((posted, status)) = work.sends.pop_unfinished() {
            if let Some(completion) = work.sent(&posted, status) {
                self.push(completion);
            }
        }
        self.drop_kept();
    }

    /// Flushes the remaining receives of a queue pair, without the device.
    pub(super) fn flush_recvs(&mut self, work: &Work) {
        while let Some((posted, _)) = work.recvs.pop_unfinished() {
            self.push(work.flushed(&posted));
        }
    }

    fn take_from_device(&mut self, room: usize) -> usize {
        // SAFETY: the queue is alive as long as the `Cq` that owns this value.
        let got = unsafe { verbs_dl::poll_cq(self.hw.as_ptr(), &mut self.batch[..room]) };
        // A queue that cannot be polled is broken, which the device reports by a separate event.
        got.unwrap_or(0)
    }

    /// Translates an entry of the device. Returns `None` if the consumer wants no completion, if an
    /// outcome must wait for an earlier request, or if the queue pair is destroyed.
    fn translate(&mut self, entry: &ibv_wc) -> Option<Completion> {
        let ticket = Ticket::decode(entry.wr_id)?;
        let status = wc::status_of(entry.status);
        let (place, taken) = match ticket.kind {
            Kind::SharedRecv => self.take_shared(ticket, entry.qp_num)?,
            Kind::Send | Kind::Recv => (ticket.place, self.take(ticket, status)?),
        };
        if !self.kept.is_empty() {
            self.drop_kept();
        }
        let work = self.works.get(place as usize)?;
        if !matches!(status, WcStatus::Success | WcStatus::Flushed) {
            tracing::debug!(
                qp = work.token.0,
                ?status,
                vendor = entry.vendor_err,
                "work failed"
            );
            self.failures.extend(work.note_failure());
        }
        // Only for sends: the receives of a queue pair may be under another lock than its sends.
        if ticket.kind == Kind::Send && work.sends.has_held() {
            self.unblocked = Some(place);
        }
        match taken {
            Taken::Now(posted) => {
                complete(work, &posted, status, entry, &mut self.has_solicited_event)
            }
            Taken::Held | Taken::Gone => None,
        }
    }

    /// Takes a completed request of a queue pair's own queue.
    #[inline]
    fn take(&self, ticket: Ticket, status: WcStatus) -> Option<Taken> {
        let work = self.works.get(ticket.place as usize)?;
        if ticket.epoch != work.epoch() {
            return None;
        }
        let taken = match ticket.kind {
            Kind::Send => work.sends.take(ticket.sequence, status),
            Kind::Recv | Kind::SharedRecv => work.recvs.take(ticket.sequence, status),
        };
        if let Taken::Now(posted) = &taken {
            work.note_outcome(ticket.sequence, posted, status);
        }
        (taken != Taken::Gone).then_some(taken)
    }

    /// Takes a completed receive of a shared queue. Returns the index of its queue pair and the
    /// receive. The slot is freed even if the queue pair is destroyed and the completion cannot be
    /// reported.
    fn take_shared(&self, ticket: Ticket, num: u32) -> Option<(u32, Taken)> {
        let receives = self.shared.get(&ticket.shared_queue())?.upgrade()?;
        let posted = receives.take(ticket.sequence)?;
        let Some(place) = self.places.get(&num) else {
            tracing::debug!(qp_num = num, "a receive of a destroyed queue pair");
            return None;
        };
        Some((*place, Taken::Now(posted)))
    }

    fn is_armed_for(&self, completion: &Completion) -> bool {
        let failed = completion.status != WcStatus::Success;
        match self.armed {
            Armed::No => false,
            Armed::Any => failed || completion.notify != Notify::Never,
            Armed::SolicitedOnly => failed || completion.notify == Notify::Solicited,
        }
    }
}

fn is_receive(opcode: WcOpcode) -> bool {
    matches!(
        opcode,
        WcOpcode::Recv
            | WcOpcode::RecvInvalidate
            | WcOpcode::RecvImmediate
            | WcOpcode::RecvSendImmediate
    )
}

fn complete(
    work: &Work,
    posted: &Posted,
    status: WcStatus,
    entry: &ibv_wc,
    has_solicited_event: &mut bool,
) -> Option<Completion> {
    if posted.opcode != WcOpcode::Recv || status != WcStatus::Success {
        return work.sent(posted, status);
    }
    let mut completion = wc::received(work, posted, entry);
    // Only the device's event shows that a message was solicited, not its entry. So the first
    // receive after the event is reported as solicited.
    if *has_solicited_event && completion.notify == Notify::Always {
        completion.notify = Notify::Solicited;
        *has_solicited_event = false;
    }
    Some(completion)
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use rnic::QpToken;

    use super::*;
    use crate::work::At;

    /// A queue of a simulated device that completes what a test requests.
    struct Device {
        context: Box<ibv_context>,
        queue: Box<ibv_cq>,
        work: Arc<Work>,
        place: u32,
        inner: Inner,
    }

    /// The device's `poll_cq`. Returns entries from the deque that the queue's context points to.
    unsafe extern "C" fn poll(queue: *mut ibv_cq, room: c_int, out: *mut ibv_wc) -> c_int {
        // SAFETY: `Device::complete` set the pointer, and nothing else uses the deque during the
        // call.
        let due = unsafe { &mut *(*queue).cq_context.cast::<VecDeque<ibv_wc>>() };
        let count = due.len().min(room as usize);
        for (index, entry) in due.drain(..count).enumerate() {
            // SAFETY: the caller guarantees room for `count` entries.
            unsafe { out.add(index).write(entry) };
        }
        count as c_int
    }

    impl Device {
        fn new() -> Self {
            let (mut context, mut queue) = <(Box<ibv_context>, Box<ibv_cq>)>::default();
            context.ops.poll_cq = Some(poll);
            queue.context = &raw mut *context;
            let hw = NonNull::new(&raw mut *queue).unwrap();
            let mut inner = Inner::new(hw);
            let work = Arc::new(Work::new(QpToken(1), 8, 8, None).unwrap());
            let place = inner.attach(&work, 5).unwrap();
            Self {
                context,
                queue,
                work,
                place,
                inner,
            }
        }

        fn post(&self, opcode: WcOpcode, at: At, wants_completion: bool) -> u32 {
            let posted = Posted {
                wr_id: u64::from(self.work.sends.len()),
                len: 1,
                opcode,
                wants_completion,
                signalled: true,
                at,
            };
            self.work.sends.push(&posted).unwrap()
        }

        /// Makes the device complete the entries of `due`, and polls for `room` completions at a
        /// time.
        fn complete(&mut self, due: &[(u32, ibv_wc_status)], room: usize) -> Vec<(u64, WcStatus)> {
            let entries = due.iter().map(|(sequence, status)| {
                let mut entry = ibv_wc::default();
                let ticket = Ticket {
                    kind: Kind::Send,
                    epoch: 0,
                    place: self.place,
                    sequence: *sequence,
                };
                entry.wr_id = ticket.encode();
                entry.status = *status;
                entry
            });
            let mut entries: VecDeque<ibv_wc> = entries.collect();
            self.queue.cq_context = (&raw mut entries).cast();
            self.queue.context = &raw mut *self.context;
            let mut done = Vec::new();
            loop {
                let mut out = vec![Completion::EMPTY; room];
                let count = self.inner.poll(&mut out);
                done.extend(out[..count].iter().map(|done| (done.wr_id, done.status)));
                if count == 0 {
                    return done;
                }
            }
        }
    }

    const OK: ibv_wc_status = IBV_WC_SUCCESS;
    const DONE: WcStatus = WcStatus::Success;

    #[test]
    fn an_overtaken_read_is_reported_first() {
        for room in [1, 2, 3, 16] {
            let mut device = Device::new();
            let read = device.post(WcOpcode::RdmaRead, At::DeviceLate, true);
            let write = device.post(WcOpcode::RdmaWrite, At::Device, true);
            let hidden = device.post(WcOpcode::Send, At::Device, false);
            let send = device.post(WcOpcode::Send, At::Device, true);
            assert_eq!(device.complete(&[(write, OK), (hidden, OK)], room), []);
            let done = device.complete(&[(read, OK), (send, OK)], room);
            assert_eq!(done, [(0, DONE), (1, DONE), (3, DONE)], "room {room}");
            assert_eq!(device.work.sends.len(), 0);
        }
    }

    #[test]
    fn a_suppressed_read_delays_later_outcomes() {
        let mut device = Device::new();
        let read = device.post(WcOpcode::RdmaRead, At::DeviceLate, false);
        let write = device.post(WcOpcode::RdmaWrite, At::Device, true);
        assert_eq!(device.complete(&[(write, OK)], 4), []);
        assert_eq!(device.complete(&[(read, OK)], 4), [(1, DONE)]);
    }

    #[test]
    fn a_failure_is_noted_at_once_and_completed_in_order() {
        let mut device = Device::new();
        let read = device.post(WcOpcode::RdmaRead, At::DeviceLate, true);
        let write = device.post(WcOpcode::RdmaWrite, At::Device, true);
        let failed = IBV_WC_LOC_PROT_ERR;
        assert_eq!(device.complete(&[(write, failed)], 4), []);
        assert_eq!(device.inner.failures, [QpToken(1)]);
        assert!(device.work.has_failed());
        let done = device.complete(&[(read, IBV_WC_WR_FLUSH_ERR)], 4);
        let failed = (1, WcStatus::LocalProtection);
        assert_eq!(done, [(0, WcStatus::Flushed), failed]);
    }

    #[test]
    fn a_waiter_is_notified_of_outcomes_that_waited_for_a_read() {
        let mut device = Device::new();
        let read = device.post(WcOpcode::RdmaRead, At::DeviceLate, false);
        let write = device.post(WcOpcode::RdmaWrite, At::Device, true);
        device.inner.armed = Armed::Any;
        device.complete(&[(write, OK)], 1);
        assert!(!device.inner.has_fired);
        device.complete(&[(read, OK)], 1);
        assert!(device.inner.has_fired);
    }

    #[test]
    fn the_end_of_a_connection_reports_held_outcomes() {
        let mut device = Device::new();
        device.post(WcOpcode::RdmaRead, At::DeviceLate, true);
        let write = device.post(WcOpcode::RdmaWrite, At::Device, true);
        assert_eq!(device.complete(&[(write, OK)], 4), []);
        let work = device.work.clone();
        device.inner.flush_sends(&work);
        let done = device.complete(&[], 4);
        assert_eq!(done, [(0, WcStatus::Flushed), (1, DONE)]);
    }

    impl Device {
        /// Posts a receive, and makes the device complete it when it is polled next.
        fn receive(&self) -> VecDeque<ibv_wc> {
            let posted = Posted::receive(7, 1, true);
            let ticket = Ticket {
                kind: Kind::Recv,
                epoch: 0,
                place: self.place,
                sequence: self.work.recvs.push(&posted).unwrap(),
            };
            let mut entry = ibv_wc::default();
            (entry.wr_id, entry.opcode) = (ticket.encode(), IBV_WC_RECV);
            [entry].into()
        }

        fn provide(&mut self, entries: &mut VecDeque<ibv_wc>) {
            self.queue.cq_context = ptr::from_mut(entries).cast();
        }

        fn notifications(&mut self) -> Vec<Notify> {
            let mut out = [Completion::EMPTY; 4];
            let count = self.inner.poll(&mut out);
            out[..count].iter().map(|done| done.notify).collect()
        }
    }

    /// The device reports no event for a message that it received before it was armed.
    #[test]
    fn a_message_before_the_arming_may_be_solicited() {
        for (armed, notify) in [
            (Armed::SolicitedOnly, Notify::Solicited),
            (Armed::Any, Notify::Always),
        ] {
            let mut device = Device::new();
            let mut received = device.receive();
            device.provide(&mut received);
            device.inner.armed = armed;
            device.inner.on_armed();
            assert!(!device.inner.has_fired);
            assert_eq!(device.notifications(), [notify], "{armed:?}");
        }
    }

    #[test]
    fn a_solicited_message_that_precedes_its_event_is_reported_by_the_event() {
        for is_polled in [false, true] {
            let mut device = Device::new();
            let mut received = device.receive();
            device.provide(&mut received);
            device.inner.armed = Armed::SolicitedOnly;
            if is_polled {
                assert_eq!(device.notifications(), [Notify::Always]);
            } else {
                // Another queue pair of this queue is disconnected, for example.
                device.inner.pull();
            }
            assert!(!device.inner.has_fired);
            device.inner.on_event(true);
            assert!(device.inner.has_fired, "polled: {is_polled}");
            if !is_polled {
                assert_eq!(device.notifications(), [Notify::Solicited]);
            }
            assert!(!device.inner.has_solicited_event, "it is used up");
        }
    }

    struct Window(Arc<AtomicBool>);

    impl Drop for Window {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    impl Device {
        /// Keeps a window until a request completes; `None` if the window was dropped at once.
        fn keep_until_done(&mut self, sequence: u32) -> Option<Arc<AtomicBool>> {
            let is_gone = Arc::new(AtomicBool::new(false));
            let window = Box::new(Window(is_gone.clone()));
            let is_kept = self.inner.keep(self.place, sequence, window);
            assert_ne!(is_kept, is_gone.load(Ordering::Relaxed));
            is_kept.then_some(is_gone)
        }
    }

    #[test]
    fn a_window_is_not_deallocated_before_its_bind() {
        let mut device = Device::new();
        let before = device.post(WcOpcode::Send, At::Device, true);
        let bind = device.post(WcOpcode::BindMw, At::DeviceSilently, false);
        let unbind = device.post(WcOpcode::BindMw, At::Device, true);
        let is_gone = device.keep_until_done(bind).unwrap();
        device.complete(&[(before, OK)], 4);
        assert!(!is_gone.load(Ordering::Relaxed), "the bind would fail");
        assert_eq!(device.complete(&[(unbind, OK)], 4), [(2, DONE)]);
        assert!(is_gone.load(Ordering::Relaxed));
        assert!(
            device.keep_until_done(bind).is_none(),
            "the bind is done already"
        );
    }

    #[test]
    fn windows_are_deallocated_when_the_connection_ends() {
        let mut device = Device::new();
        let bind = device.post(WcOpcode::BindMw, At::Device, true);
        let is_gone = device.keep_until_done(bind).unwrap();
        let work = device.work.clone();
        device.inner.flush_sends(&work);
        assert!(is_gone.load(Ordering::Relaxed), "before the queue pair");
    }

    #[test]
    fn the_reported_outcome_of_a_bind_is_recorded() {
        let mut device = Device::new();
        let binds = [0; 4].map(|_| device.post(WcOpcode::BindMw, At::Device, true));
        let flushed = IBV_WC_WR_FLUSH_ERR;
        device.complete(&[(binds[0], OK), (binds[2], flushed)], 4);
        let done = binds.map(|bind| device.work.has_bound(bind));
        // The second is done, because the third completed. The outcome of the last is unknown.
        assert_eq!(done, [true, true, false, false]);
        device.work.begin_epoch();
        assert!(device.work.has_bound(binds[2]), "of the former queue pair");
    }

    fn shared_entry(ticket: Ticket, num: u32) -> ibv_wc {
        let mut entry = ibv_wc::default();
        (entry.wr_id, entry.qp_num) = (ticket.encode(), num);
        entry
    }

    #[test]
    fn a_shared_receive_of_a_destroyed_queue_pair_frees_its_slot() {
        let mut device = Device::new();
        let receives = Arc::new(Receives::default());
        let work = Work::new(QpToken(2), 8, 0, Some(receives.clone())).unwrap();
        let place = device.inner.attach(&Arc::new(work), 6).unwrap();
        let [first, second, third] = [10, 11, 12].map(|wr_id| receives.record(wr_id));
        let taken = |inner: &mut Inner, ticket, num| {
            inner
                .translate(&shared_entry(ticket, num))
                .map(|done| done.wr_id)
        };
        assert_eq!(taken(&mut device.inner, first, 6), Some(10));
        device.inner.rename(place, 6, 7);
        // The completion is of the queue pair that was replaced.
        assert_eq!(taken(&mut device.inner, second, 6), None);
        assert_eq!(receives.left(), 1);
        assert_eq!(taken(&mut device.inner, second, 7), None, "taken already");
        assert_eq!(receives.left(), 1);
        device.inner.detach(place, 7);
        assert_eq!(taken(&mut device.inner, third, 7), None);
        assert_eq!(receives.left(), 0);
    }

    #[test]
    fn a_polled_completion_counts_as_the_requested_event() {
        let mut device = Device::new();
        device.inner.armed = Armed::Any;
        let send = device.post(WcOpcode::Send, At::Device, true);
        assert_eq!(device.complete(&[(send, OK)], 4), [(0, DONE)]);
        assert!(
            device.inner.has_fired,
            "the device would be armed again and again"
        );
    }
}
