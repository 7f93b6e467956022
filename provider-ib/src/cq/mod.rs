//! Completion queues.
//!
//! | File | Contents |
//! |---|---|
//! | `inner` | the state that the lock guards: completions, and the queue pairs to which they belong |
//! | `wc` | the work completions of the device |
//!
//! # Events of the device
//!
//! The queues of an adapter have one completion channel ([`Channel`](crate::channel::Channel)). The
//! thread that reads an event there calls [`Cq::on_event`].
//!
//! # Completions without a waiter
//!
//! No device supports [`Notify::Never`](rnic::Notify). So the thread that reads the
//! event of such a completion takes the completion into the queue and arms the device again.

mod inner;
mod wc;

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use host::locks::IgnorePoison as _;
use rnic::{AsyncEvent, Completion, CqToken, Resource, RnicError};
use verbs_dl::types::*;

use self::inner::{Armed, Inner};
use crate::device::{checked, of, refused};
use crate::engine::Task;
use crate::shared::Shared;
use crate::work::{Ring, Work};

/// Number of events that are acknowledged together: each acknowledgement takes a lock.
const ACK_BATCH: u32 = 64;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    pub(crate) token: CqToken,
    hw: NonNull<ibv_cq>,
    /// The number by which the channel and the engine name the queue.
    number: u32,
    shared: Arc<Shared>,
    cqs: Arc<Cqs>,
    inner: Mutex<Inner>,
    depth: AtomicU32,
    unacknowledged: AtomicU32,
}

// SAFETY: verbs objects may be used by any thread (ibv_create_cq(3)).
unsafe impl Send for Cq {}
// SAFETY: verbs objects may be used by any thread (ibv_create_cq(3)).
unsafe impl Sync for Cq {}

impl Cq {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        cqs: &Arc<Cqs>,
        depth: u32,
        token: CqToken,
    ) -> Result<Arc<Self>, RnicError> {
        let verbs = shared.verbs();
        let depth = depth.max(1);
        let size = i32::try_from(depth).unwrap_or(i32::MAX);
        let number = cqs.reserve();
        let name = ptr::without_provenance_mut(number as usize);
        let (context, channel) = (shared.device.context(), shared.channel.hw());
        // SAFETY: the device is open and the channel alive; the library only stores the context.
        let hw = unsafe { verbs.ibv_create_cq(context, size, name, channel, 0) };
        let Some(hw) = NonNull::new(hw) else {
            let why = refused(Resource::CompletionQueue);
            cqs.remove(number);
            return Err(why);
        };
        let cq = Arc::new(Self {
            token,
            hw,
            number,
            shared: shared.clone(),
            cqs: cqs.clone(),
            inner: Mutex::new(Inner::new(hw)),
            depth: AtomicU32::new(depth),
            unacknowledged: AtomicU32::new(0),
        });
        cqs.set(number, Arc::downgrade(&cq));
        Ok(cq)
    }

    pub(crate) fn hw(&self) -> *mut ibv_cq {
        self.hw.as_ptr()
    }

    /// Changes the depth. Queued completions are kept.
    pub(crate) fn resize(&self, depth: u32) -> Result<(), RnicError> {
        let size = i32::try_from(depth.max(1)).unwrap_or(i32::MAX);
        // SAFETY: the queue is alive as long as `self`; only this call changes its size.
        if unsafe { self.hw.as_ref() }.cqe < size {
            let verbs = self.shared.verbs();
            // SAFETY: the queue is alive as long as `self`.
            checked(unsafe { verbs.ibv_resize_cq(self.hw(), size) })
                .map_err(|why| of(why, Resource::CompletionQueue))?;
        }
        self.depth.store(depth.max(1), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn poll(&self, out: &mut [Completion]) -> usize {
        let mut inner = self.lock();
        let count = inner.poll(out);
        self.report(inner);
        count
    }

    /// Moves the device's completions into the queue, and notifies waiters for which they are due.
    pub(crate) fn pull(&self) {
        let mut inner = self.lock();
        inner.pull();
        self.notify(inner);
    }

    /// Requests one event. Returns `true` if there are completions already.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let mut inner = self.lock();
        inner.armed = match (solicited_only, inner.armed) {
            (true, Armed::No | Armed::SolicitedOnly) => Armed::SolicitedOnly,
            _ => Armed::Any,
        };
        self.arm_device(&inner);
        inner.on_armed();
        let some = !inner.queue.is_empty();
        self.report(inner);
        some
    }

    fn arm_device(&self, inner: &Inner) {
        let solicited_only =
            inner.armed == Armed::SolicitedOnly && self.shared.device.quirks().reports_solicited;
        // SAFETY: the queue is alive as long as `self`.
        if let Err(why) = unsafe { verbs_dl::req_notify_cq(self.hw(), solicited_only) } {
            tracing::warn!(%why, "a completion queue cannot be armed");
        }
    }

    /// Called when the channel had an event for the queue, or a completion was queued without the
    /// device. Makes the upcall if the queue is armed for a completion.
    pub(crate) fn on_event(&self) {
        if self.check_armed() {
            self.shared.upcall.cq_ready(self.token);
        }
    }

    /// Called by a consumer of the armed queue before it sleeps. Makes the upcall if the queue is
    /// armed for a completion that was received; the event of the device then finds the queue
    /// unarmed.
    pub(crate) fn check(&self) {
        let mut inner = self.lock();
        // Only the event shows whether a message was solicited.
        if inner.armed != Armed::Any {
            return;
        }
        inner.pull();
        let has_fired = std::mem::take(&mut inner.has_fired);
        if has_fired {
            inner.armed = Armed::No;
        }
        self.report(inner);
        if has_fired {
            self.shared.upcall.cq_ready(self.token);
        }
    }

    /// Returns true if the queue received a completion for which it is armed. Otherwise arms the
    /// device again.
    fn check_armed(&self) -> bool {
        let mut inner = self.lock();
        if inner.armed == Armed::No {
            return false;
        }
        inner.on_event(self.shared.device.quirks().reports_solicited);
        if !inner.has_fired {
            self.arm_device(&inner);
            inner.pull();
        }
        let has_fired = std::mem::take(&mut inner.has_fired);
        if has_fired {
            inner.armed = Armed::No;
        }
        self.report(inner);
        has_fired
    }

    /// Called when an event of the queue was read from the channel. It is acknowledged later.
    pub(crate) fn note_event(&self) {
        let count = self.unacknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= ACK_BATCH {
            self.acknowledge();
        }
    }

    fn acknowledge(&self) {
        let count = self.unacknowledged.swap(0, Ordering::Relaxed);
        // SAFETY: alive as long as `self`; `count` events were taken and not acknowledged.
        unsafe {
            self.shared.verbs().ibv_ack_cq_events(self.hw(), count);
        }
    }

    /// Adds the work of a queue pair of this number.
    pub(crate) fn attach(&self, work: &Arc<Work>, num: u32) -> Result<u32, RnicError> {
        let full = RnicError::NoResources(Resource::CompletionQueue);
        self.lock().attach(work, num).ok_or(full)
    }

    /// Called when the queue pair at a place has another number.
    pub(crate) fn rename(&self, place: u32, old: u32, new: u32) {
        self.lock().rename(place, old, new);
    }

    /// Called when the queue pair at a place is destroyed.
    pub(crate) fn detach(&self, place: u32, num: u32) {
        self.lock().detach(place, num);
    }

    /// Drops `what` once the device has completed a request of the send queue at a place. Returns
    /// `true` if the request has not completed yet.
    pub(crate) fn keep(&self, place: u32, sequence: u32, what: Box<dyn Send>) -> bool {
        let mut inner = self.lock();
        inner.pull();
        let is_kept = inner.keep(place, sequence, what);
        self.notify(inner);
        is_kept
    }

    /// Adds a completion of a request that the device never receives. Lost if there is no room.
    pub(crate) fn push(&self, completion: Completion) {
        let mut inner = self.lock();
        if inner.queue.len() >= self.depth.load(Ordering::Relaxed) as usize {
            drop(inner);
            let event = AsyncEvent::CqOverflow(self.token);
            self.shared.engine.submit(Task::Report(event));
            return;
        }
        inner.push(completion);
        self.notify(inner);
    }

    /// Removes the last request of a queue that completes here, because the device refused it.
    /// Returns false if the device has completed it nevertheless ([`Ring::unpush`]).
    pub(crate) fn unpush(&self, requests: &Ring) -> bool {
        let _completes_nothing = self.lock();
        requests.unpush()
    }

    /// Takes the device's completions, and then flushes the requests that remain.
    pub(crate) fn flush_sends(&self, work: &Work) {
        let mut inner = self.lock();
        inner.pull();
        inner.flush_sends(work);
        self.notify(inner);
    }

    /// Takes the completions that the device has, and then flushes the receives of a queue pair
    /// that the device has not completed.
    pub(crate) fn flush_recvs(&self, work: &Work) {
        let mut inner = self.lock();
        inner.pull();
        inner.flush_recvs(work);
        self.notify(inner);
    }

    /// Releases the lock. For completions without an event of the device, the engine's thread calls
    /// up.
    fn notify(&self, inner: MutexGuard<'_, Inner>) {
        let has_fired = inner.has_fired;
        self.report(inner);
        if has_fired {
            self.shared.engine.submit(Task::CheckCq(self.number));
        }
    }

    /// Releases the lock and reports the queue pairs whose work failed.
    fn report(&self, mut inner: MutexGuard<'_, Inner>) {
        if inner.failures.is_empty() {
            return;
        }
        let failures = std::mem::take(&mut inner.failures);
        drop(inner);
        for qp in failures {
            self.shared.engine.submit(Task::BreakConnection(qp));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().ignore_poison()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.acknowledge();
        // SAFETY: created by `new`; queue pairs keep their queues alive, so nothing completes into
        // it. An event that another thread has just read is acknowledged there.
        unsafe { self.shared.verbs().ibv_destroy_cq(self.hw()) };
        // Last, so that an event of this queue is not taken for one of a new queue of this number.
        self.cqs.remove(self.number);
    }
}

/// The queues of an RNIC, by the numbers by which the engine names them.
#[derive(Debug, Default)]
pub(crate) struct Cqs(Mutex<slab::Slab<Weak<Cq>>>);

impl Cqs {
    fn reserve(&self) -> u32 {
        self.lock().insert(Weak::new()) as u32
    }

    fn set(&self, number: u32, cq: Weak<Cq>) {
        if let Some(place) = self.lock().get_mut(number as usize) {
            *place = cq;
        }
    }

    fn remove(&self, number: u32) {
        self.lock().try_remove(number as usize);
    }

    /// The queue of this number, if it is alive.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<Cq>> {
        self.lock().get(number as usize)?.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, slab::Slab<Weak<Cq>>> {
        self.0.lock().ignore_poison()
    }
}
