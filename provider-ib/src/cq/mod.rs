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
//! # What the device cannot say
//!
//! That a completion wakes nobody ([`Notify::Never`](access_layer::rnic::Notify)). The engine takes
//! such completions into the queue to see what they are, and arms the device again.

mod inner;
mod wc;

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use access_layer::rnic::{AsyncEvent, Completion, CqToken, Resource, RnicError};
use host::locks::IgnorePoison as _;
use verbs_dl::types::*;

use self::inner::{Armed, Inner};
use crate::device::checked;
use crate::memory::{of, refused};
use crate::rnic::Shared;
use crate::work::Work;

/// Events of the channel that are acknowledged at once: each acknowledgement takes a lock.
const ACK_BATCH: u32 = 64;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) token: CqToken,
    hw: NonNull<ibv_cq>,
    /// Under which the channel and the engine know it.
    number: u32,
    shared: Arc<Shared>,
    inner: Mutex<Inner>,
    depth: AtomicU32,
    unacknowledged: AtomicU32,
}

// SAFETY: verbs objects may be used by any thread (ibv_create_cq(3)).
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// Makes a queue for so many completions.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        depth: u32,
        token: CqToken,
    ) -> Result<Arc<Self>, RnicError> {
        let verbs = &shared.device.libraries.verbs;
        let depth = depth.max(1);
        let size = i32::try_from(depth).unwrap_or(i32::MAX);
        let number = shared.cqs.reserve();
        let name = ptr::without_provenance_mut(number as usize);
        let (context, channel) = (shared.device.context(), shared.channel.hw());
        // SAFETY: the device is open and the channel alive; the context is a word for ourselves.
        let hw = unsafe { verbs.ibv_create_cq(context, size, name, channel, 0) };
        let Some(hw) = NonNull::new(hw) else {
            let why = refused(Resource::CompletionQueue);
            shared.cqs.remove(number);
            return Err(why);
        };
        let cq = Arc::new(Self {
            token,
            hw,
            number,
            shared: shared.clone(),
            inner: Mutex::new(Inner::new(hw)),
            depth: AtomicU32::new(depth),
            unacknowledged: AtomicU32::new(0),
        });
        shared.cqs.set(number, Arc::downgrade(&cq));
        Ok(cq)
    }

    pub(crate) fn hw(&self) -> *mut ibv_cq {
        self.hw.as_ptr()
    }

    /// Changes the depth; what is in the queue stays.
    pub(crate) fn resize(&self, depth: u32) -> Result<(), RnicError> {
        let size = i32::try_from(depth.max(1)).unwrap_or(i32::MAX);
        // SAFETY: alive as long as `self`; its size changes by this call only.
        if unsafe { self.hw.as_ref() }.cqe < size {
            let verbs = &self.shared.device.libraries.verbs;
            // SAFETY: as above.
            checked(unsafe { verbs.ibv_resize_cq(self.hw(), size) })
                .map_err(|why| of(why, Resource::CompletionQueue))?;
        }
        self.depth.store(depth.max(1), Ordering::Relaxed);
        Ok(())
    }

    /// Takes completions in order.
    pub(crate) fn poll(&self, out: &mut [Completion]) -> usize {
        let mut inner = self.lock();
        let count = inner.poll(out);
        self.report(inner);
        count
    }

    /// Takes what the device has into the queue, and lets those hear of it who are to.
    pub(crate) fn pull(&self) {
        let mut inner = self.lock();
        inner.pull();
        self.tell(inner);
    }

    /// Asks for one event. `true`: there are completions already.
    pub(crate) fn arm(&self, solicited_only: bool) -> bool {
        let mut inner = self.lock();
        inner.armed = match (solicited_only, inner.armed) {
            (true, Armed::No | Armed::SolicitedOnly) => Armed::SolicitedOnly,
            _ => Armed::Any,
        };
        self.arm_device(&inner);
        // What came before the device was armed makes no event.
        inner.pull();
        inner.fired = false;
        let some = !inner.queue.is_empty();
        self.report(inner);
        some
    }

    fn arm_device(&self, inner: &Inner) {
        let solicited_only =
            inner.armed == Armed::SolicitedOnly && self.shared.device.quirks().hears_solicited;
        // SAFETY: alive as long as `self`.
        if let Err(why) = unsafe { verbs_dl::req_notify_cq(self.hw(), solicited_only) } {
            tracing::warn!(%why, "a completion queue cannot be armed");
        }
    }

    /// The channel had an event for the queue, or a completion came without the device. *Calls up*
    /// when something came that the queue is armed for.
    pub(crate) fn on_event(&self) {
        if self.look() {
            self.shared.upcall.cq_ready(self.token);
        }
    }

    /// Called by a consumer of the armed queue before it sleeps. *Calls up* if something came that
    /// the queue is armed for; the event of the device finds the queue unarmed then.
    pub(crate) fn check(&self) {
        let mut inner = self.lock();
        // Whether a message was solicited only the event says.
        if inner.armed != Armed::Any {
            return;
        }
        inner.pull();
        let fired = std::mem::take(&mut inner.fired);
        if fired {
            inner.armed = Armed::No;
        }
        self.report(inner);
        if fired {
            self.shared.upcall.cq_ready(self.token);
        }
    }

    /// Returns true if the queue received a completion for which it is armed. Otherwise arms the
    /// device again.
    fn look(&self) -> bool {
        let mut inner = self.lock();
        if inner.armed == Armed::No {
            return false;
        }
        inner.heard_solicited |= inner.armed == Armed::SolicitedOnly;
        inner.pull();
        if !inner.fired {
            self.arm_device(&inner);
            inner.pull();
        }
        let fired = std::mem::take(&mut inner.fired);
        if fired {
            inner.armed = Armed::No;
        }
        self.report(inner);
        fired
    }

    /// An event of the queue was read from the channel. It is acknowledged later.
    pub(crate) fn note_event(&self) {
        let count = self.unacknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= ACK_BATCH {
            self.acknowledge();
        }
    }

    fn acknowledge(&self) {
        let count = self.unacknowledged.swap(0, Ordering::Relaxed);
        // SAFETY: alive as long as `self`; so many events were taken and not acknowledged.
        unsafe {
            self.shared
                .device
                .libraries
                .verbs
                .ibv_ack_cq_events(self.hw(), count);
        }
    }

    /// Adds the work of a queue pair of this number.
    pub(crate) fn attach(&self, work: &Arc<Work>, num: u32) -> Result<u32, RnicError> {
        let full = RnicError::NoResources(Resource::CompletionQueue);
        self.lock().attach(work, num).ok_or(full)
    }

    /// The queue pair at a place has another number now.
    pub(crate) fn rename(&self, place: u32, old: u32, new: u32) {
        self.lock().rename(place, old, new);
    }

    /// The queue pair at a place is gone.
    pub(crate) fn detach(&self, place: u32, num: u32) {
        self.lock().detach(place, num);
    }

    /// Drops something when the device has done with a request of the send queue at a place.
    /// `true`: it has not yet.
    pub(crate) fn keep(&self, place: u32, sequence: u32, what: Box<dyn Send>) -> bool {
        let mut inner = self.lock();
        inner.pull();
        let is_kept = inner.keep(place, sequence, what);
        self.tell(inner);
        is_kept
    }

    /// Adds a completion of a request that the device never sees. What does not fit is lost.
    pub(crate) fn push(&self, completion: Completion) {
        let mut inner = self.lock();
        if inner.queue.len() >= self.depth.load(Ordering::Relaxed) as usize {
            drop(inner);
            self.shared.engine.tell(AsyncEvent::CqOverflow(self.token));
            return;
        }
        inner.push(completion);
        self.tell(inner);
    }

    /// Takes what the device has, and then flushes what it has left of a queue pair's requests.
    pub(crate) fn flush_sends(&self, work: &Work) {
        let mut inner = self.lock();
        inner.pull();
        inner.flush_sends(work);
        self.tell(inner);
    }

    /// Takes the completions that the device has, and then flushes the receives of a queue pair
    /// that the device has not completed.
    pub(crate) fn flush_recvs(&self, work: &Work) {
        let mut inner = self.lock();
        inner.pull();
        inner.flush_recvs(work);
        self.tell(inner);
    }

    /// Releases the lock. For completions that came without an event of the device, the engine's
    /// thread calls up.
    fn tell(&self, inner: MutexGuard<'_, Inner>) {
        let fired = inner.fired;
        self.report(inner);
        if fired {
            self.shared.engine.nudge(self.number);
        }
    }

    /// Lets go of the lock and reports the queue pairs whose work failed.
    fn report(&self, mut inner: MutexGuard<'_, Inner>) {
        if inner.failures.is_empty() {
            return;
        }
        let failures = std::mem::take(&mut inner.failures);
        drop(inner);
        failures
            .into_iter()
            .for_each(|qp| self.shared.engine.report_failed(qp));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().ignore_poison()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let verbs = &self.shared.device.libraries.verbs;
        self.acknowledge();
        // SAFETY: made by us; queue pairs hold their queues, so nothing completes into it. An event
        // that another thread has just read is acknowledged there.
        unsafe { verbs.ibv_destroy_cq(self.hw()) };
        // Behind it: an event of a former queue does not meet a new one of this number.
        self.shared.cqs.remove(self.number);
    }
}

/// The queues of an RNIC, by the numbers under which the engine knows them.
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
