//! Completion queues.
//!
//! | File | What |
//! |---|---|
//! | `inner` | what the lock guards: completions, and the queue pairs whose they are |
//! | `wc` | the device's words |
//!
//! # Who hears the device
//!
//! Each queue has a completion channel of its own. A consumer that waits sleeps on it itself; for
//! one that does not wait the engine listens. The engine hears the edge in either case and leaves
//! the event alone while somebody waits, who looks at the channel once more when it leaves. So each
//! event is taken by one of the two, and none is lost between them.
//!
//! # What the device cannot say
//!
//! That a completion wakes nobody ([`Notify::Never`](access_layer::rnic::Notify)). The engine takes
//! such completions into the queue to see what they are, and arms the device again.

mod inner;
mod wc;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use access_layer::rnic::{AsyncEvent, Completion, CqToken, Resource, RnicError};
use verbs_dl::types::*;

use self::inner::{Armed, Inner};
use crate::device::{checked, set_nonblocking};
use crate::engine::Source;
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
    channel: NonNull<ibv_comp_channel>,
    /// Wakes who waits when a completion comes without the device.
    wake: OwnedFd,
    /// Under which the engine knows it.
    number: u32,
    shared: Arc<Shared>,
    inner: Mutex<Inner>,
    depth: AtomicU32,
    waiters: AtomicU32,
    /// The channel tells nothing any more, because the device is gone.
    events_failed: AtomicBool,
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
        let context = shared.device.context();
        // SAFETY: takes no pointers; the result is checked before it is owned.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(refused(Resource::CompletionQueue));
        }
        // SAFETY: eventfd just returned this descriptor and nobody else knows it.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        // SAFETY: the device is open.
        let channel = unsafe { verbs.ibv_create_comp_channel(context) };
        let channel = NonNull::new(channel).ok_or_else(|| refused(Resource::CompletionQueue))?;
        let depth = depth.max(1);
        let size = i32::try_from(depth).unwrap_or(i32::MAX);
        let name = ptr::without_provenance_mut(token.0 as usize);
        // SAFETY: the device is open and the channel alive; the context is a word for ourselves.
        let hw = unsafe { verbs.ibv_create_cq(context, size, name, channel.as_ptr(), 0) };
        let Some(hw) = NonNull::new(hw) else {
            let why = refused(Resource::CompletionQueue);
            // SAFETY: made above, and nothing uses it.
            unsafe { verbs.ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(why);
        };
        let cq = Arc::new(Self {
            token,
            hw,
            channel,
            wake,
            number: shared.cqs.reserve(),
            shared: shared.clone(),
            inner: Mutex::new(Inner::new(hw)),
            depth: AtomicU32::new(depth),
            waiters: AtomicU32::new(0),
            events_failed: AtomicBool::new(false),
            unacknowledged: AtomicU32::new(0),
        });
        cq.listen()?;
        shared.cqs.set(cq.number, Arc::downgrade(&cq));
        Ok(cq)
    }

    /// Lets the engine hear the channel, and makes reading it never block.
    fn listen(&self) -> Result<(), RnicError> {
        let fd = self.channel_fd();
        set_nonblocking(fd)?;
        Ok(self.shared.engine.watch(fd, Source::Cq(self.number))?)
    }

    pub(crate) fn hw(&self) -> *mut ibv_cq {
        self.hw.as_ptr()
    }

    /// What a sleeper listens to for the device's events; `None` when there are none to come.
    pub(crate) fn event_fd(&self) -> Option<RawFd> {
        let events_failed = self.events_failed.load(Ordering::Relaxed);
        (!events_failed).then(|| self.channel_fd())
    }

    /// The channel has failed. It stays ready, and who slept on it would not sleep.
    pub(crate) fn disable_events(&self) {
        self.events_failed.store(true, Ordering::Relaxed);
    }

    /// Readable when the device has an event for this queue.
    fn channel_fd(&self) -> RawFd {
        // SAFETY: alive as long as `self`, and its descriptor does not change.
        unsafe { self.channel.as_ref() }.fd
    }

    /// Readable when a completion came without the device.
    pub(crate) fn wake_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
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

    /// Engine: the channel may have events, or a completion came without the device.
    pub(crate) fn on_event(&self) {
        if self.waiters.load(Ordering::SeqCst) > 0 {
            return;
        }
        while self.take_event() {}
        if self.look() {
            self.shared.upcall.cq_ready(self.token);
        }
    }

    /// Whether something came that the queue is armed for; if nothing did, the device is armed
    /// again.
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

    /// Takes one event from the channel; `false`: there is none.
    fn take_event(&self) -> bool {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        let verbs = &self.shared.device.libraries.verbs;
        let channel = self.channel.as_ptr();
        // SAFETY: the channel is alive and does not block; the places are of this frame.
        if unsafe { verbs.ibv_get_cq_event(channel, &raw mut cq, &raw mut context) } != 0 {
            return false;
        }
        let count = self.unacknowledged.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= ACK_BATCH {
            self.acknowledge();
        }
        true
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

    /// Whether completions are in the queue that came without an event of the device.
    pub(crate) fn has_queued(&self) -> bool {
        !self.lock().queue.is_empty()
    }

    /// Somebody is about to sleep on the descriptors.
    pub(crate) fn begin_wait(&self) {
        self.waiters.fetch_add(1, Ordering::SeqCst);
    }

    /// The sleeper woke up. *Calls up* when something came that the queue is armed for.
    pub(crate) fn end_wait(&self) {
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        let mut count: u64 = 0;
        // SAFETY: eight bytes of this frame; the descriptor does not block.
        let woken =
            unsafe { libc::read(self.wake_fd(), (&raw mut count).cast(), size_of::<u64>()) > 0 };
        if (self.take_event() || woken) && self.look() {
            self.shared.upcall.cq_ready(self.token);
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

    /// The same for receives.
    pub(crate) fn flush_recvs(&self, work: &Work) {
        let mut inner = self.lock();
        inner.pull();
        inner.flush_recvs(work);
        self.tell(inner);
    }

    /// Lets go of the lock and makes those look who are to hear of what came without an event.
    fn tell(&self, inner: MutexGuard<'_, Inner>) {
        let fired = inner.fired;
        self.report(inner);
        if !fired {
            return;
        }
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let one: u64 = 1;
            // SAFETY: eight bytes of this frame. Only a count near 2^64 could make it fail.
            unsafe { libc::write(self.wake_fd(), (&raw const one).cast(), size_of::<u64>()) };
        }
        // Also then: who was about to leave has perhaps looked at the descriptor already.
        self.shared.engine.nudge(self.number);
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
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let verbs = &self.shared.device.libraries.verbs;
        self.shared.engine.unwatch(self.channel_fd());
        self.shared.cqs.remove(self.number);
        self.acknowledge();
        // SAFETY: made by us; queue pairs hold their queues, so nothing completes into it, and all
        // its events are acknowledged.
        unsafe { verbs.ibv_destroy_cq(self.hw()) };
        // SAFETY: made by us; its queue is gone.
        unsafe { verbs.ibv_destroy_comp_channel(self.channel.as_ptr()) };
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
