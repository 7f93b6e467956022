//! Event dispatcher (DAT 2.0 section 6.3).
//!
//! An EVD owns a CQ of the RNIC if it accepts DTO or bind completions, and a queue of its own for
//! all other events. Completions stay in the CQ until a consumer waits or dequeues, until the EVD
//! counts them for its CNO, until a resize, or until an endpoint of the EVD is freed. The EVD's own
//! queue is bounded. An event that does not fit is lost: the asynchronous EVD reports the overflow,
//! and this EVD cannot be used any more (section 6.3.2.1).
//!
//! | File | Contents |
//! |---|---|
//! | `state` | which calls may take events in which state |
//! | `queue` | the EVD's own queue, and the completions that were pulled from the CQ |
//! | `pull` | translation of a CQ entry to a `DAT_EVENT` |
//! | `asynchronous` | the asynchronous events of an IA |
//! | `wait` | waiting for events, and taking them |
//!
//! # Cost
//!
//! `dequeue` of a completion: one lock, no allocation, no system call of this layer; one copy of
//! the completion from the CQ and one of the event to the consumer. One `poll_cq` serves up to 32
//! of them. `dequeue` that finds nothing: one [`Rnic::drive`] and, unless the previous `dequeue`
//! found nothing either, one lock. `post`: one lock, and one system call if a waiter sleeps.

mod asynchronous;
mod pull;
mod queue;
mod state;
mod wait;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use self::queue::{OwnQueue, Pulled};
use self::state::EvdState;
pub(crate) use self::wait::deadline;
pub use self::wait::{TimedOut, WaitError, Woken};
use crate::attr::is_mergeable;
use crate::cno::Cno;
use crate::counters::EvdCounters;
use crate::error::{DatError, DatResult};
use crate::handle::{self, AnyPin, Handle, Kind, Object, Pinned};
use crate::ia::{Child as _, Ia};
use crate::rnic::{Completion, CqToken, Rnic, Waker};
use crate::users::{User, Users};

/// The smallest queue length that is allocated. Consumers ask for queues of length one, but an EP
/// posts up to two events in a row that must not be lost (established, disconnected).
const CAPACITY_MIN: usize = 16;

/// The event streams whose events are received through the CQ.
const CQ_FLAGS: DatEvdFlags = DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG;

/// The rule by which completions wake a waiter. The first attached EP determines the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompletionType {
    /// No EP is attached yet: as [`Self::Threshold`].
    Open,
    /// Any completion wakes; thresholds above 1 are refused.
    Notify,
    /// Only solicited and failed completions wake; thresholds above 1 are refused.
    Solicited,
    /// The waiter wakes when the number of queued events reaches its threshold.
    Threshold,
}

impl CompletionType {
    fn from_flags(flags: DatCompletionFlags) -> Self {
        if flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG != 0 {
            Self::Solicited
        } else if flags & DAT_COMPLETION_EVD_THRESHOLD_FLAG != 0 {
            Self::Threshold
        } else {
            Self::Notify
        }
    }

    fn allows_thresholds(self) -> bool {
        matches!(self, Self::Open | Self::Threshold)
    }
}

/// Error: the queue was full. The caller must end the connection request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestRefused;

/// Event dispatcher.
pub struct Evd<R: Rnic> {
    cq: Option<R::Cq>,
    waker: Arc<Waker>,
    inner: Mutex<Inner<R>>,
    /// The number of queued events outside the CQ. If it is 0, a polling consumer drives the RNIC
    /// before it takes the lock.
    at_hand: AtomicUsize,
    /// True if the last `dequeue` found nothing, no CNO needed the CQ to be armed, and no other
    /// call has taken the lock since. The next `dequeue` then skips the lock.
    idle: AtomicBool,
    counters: EvdCounters,
    users: Users,
    flags: DatEvdFlags,
    handle: Handle,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Evd<R> {
    handle,
    flags,
    at_hand,
    users
});

/// Records at the endpoint of a completion that the consumer takes the completion. Returns a pin of
/// the endpoint. The end of the pin may destroy an endpoint that is being freed, which uses its
/// EVDs, so it must not end under the lock of an EVD.
pub(crate) type OnTaken = fn(&Completion) -> Option<AnyPin>;

struct Inner<R: Rnic> {
    state: EvdState,
    own: OwnQueue,
    pulled: Pulled,
    qlen: usize,
    completion_type: CompletionType,
    /// `None` until an endpoint is attached.
    on_taken: Option<OnTaken>,
    cno: Option<(Arc<Cno<R>>, User)>,
    /// True if the CQ is armed, for the CNO or a waiter: the next completion calls
    /// [`Evd::on_cq_ready`]. The flag is written in the critical section that arms the CQ, so that
    /// the write does not overwrite the effect of an immediate upcall.
    armed: bool,
    /// The number of completions that were reported to the CNO since the consumer last polled.
    announced: usize,
    /// True if an event that may end a wait was received since the waiter last polled.
    has_event: bool,
    /// True if the asynchronous EVD has received the overflow report and the consumer has taken no
    /// event of the EVD's own queue since.
    is_overflow_reported: bool,
}

impl<R: Rnic> Object for Evd<R> {
    const KIND: Kind = Kind::Evd;
}

impl<R: Rnic> Evd<R> {
    /// Implements `dat_evd_create`.
    pub fn create(
        ia: &Arc<Ia<R>>,
        min_qlen: DatCount,
        cno: Option<&Pinned<Cno<R>>>,
        flags: DatEvdFlags,
    ) -> DatResult<Handle> {
        let qlen = checked_qlen(ia, min_qlen)?;
        if !is_mergeable(flags) {
            return Err(DatError::invalid_arg(4));
        }
        let handle = Self::build(ia, qlen, flags)?.handle;
        if let Some(cno) = cno
            && let Some(evd) = handle::pin_handle::<Self>(handle)
            && let Err(error) = Self::modify_cno(&evd, Some(cno))
        {
            Self::abandon(&evd);
            return Err(error);
        }
        Ok(handle)
    }

    /// Creates the asynchronous EVD of an IA that is being opened.
    pub(crate) fn create_async(ia: &Arc<Ia<R>>, min_qlen: DatCount) -> DatResult<Arc<Self>> {
        let qlen = usize::try_from(min_qlen).ok().filter(|qlen| *qlen > 0);
        let qlen = qlen.ok_or(DatError::invalid_arg(2))?;
        let limit = usize::try_from(ia.attr().cqe_max).unwrap_or(usize::MAX);
        let qlen = qlen.min(limit).max(MIN_ASYNC_QLEN);
        Self::build(ia, qlen, DAT_EVD_ASYNC_FLAG)
    }

    fn build(ia: &Arc<Ia<R>>, qlen: usize, flags: DatEvdFlags) -> DatResult<Arc<Self>> {
        let reservation = ia.reserve()?;
        let handle = reservation.handle();
        let qlen = qlen.max(CAPACITY_MIN);
        let cq = if flags & CQ_FLAGS != 0 {
            let depth = u32::try_from(qlen).map_err(|_| NO_EVD)?;
            Some(ia.rnic().create_cq(depth, CqToken(handle.as_token()))?)
        } else {
            None
        };
        let evd = Arc::new(Self {
            cq,
            waker: Arc::new(Waker::new()),
            inner: Mutex::new(Inner {
                state: EvdState::new(),
                own: OwnQueue::new(qlen),
                pulled: Pulled::new(),
                qlen,
                completion_type: CompletionType::Open,
                on_taken: None,
                cno: None,
                armed: false,
                announced: 0,
                has_event: false,
                is_overflow_reported: false,
            }),
            at_hand: AtomicUsize::new(0),
            idle: AtomicBool::new(false),
            counters: EvdCounters::new(),
            users: Users::new(),
            flags,
            handle,
            ia: ia.clone(),
        });
        ia.install(reservation, evd.clone())?;
        Ok(evd)
    }

    /// The counters of the calls on this EVD and of its events.
    pub(crate) fn counters(&self) -> &EvdCounters {
        &self.counters
    }

    /// The handle of the EVD.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The IA to which the EVD belongs.
    pub fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    /// The event streams that the EVD accepts.
    pub fn flags(&self) -> DatEvdFlags {
        self.flags
    }

    /// True if the EVD accepts all of these event streams.
    pub fn has(&self, flags: DatEvdFlags) -> bool {
        self.flags & flags == flags
    }

    /// The queue length, in events.
    pub(crate) fn qlen(&self) -> usize {
        self.lock().qlen
    }

    /// The CQ whose completions the EVD dispatches, if the EVD has one.
    pub fn cq(&self) -> Option<&R::Cq> {
        self.cq.as_ref()
    }

    /// Prevents the EVD from being freed until the result is dropped.
    pub fn add_user(&self) -> DatResult<User> {
        self.users
            .take()
            .ok_or(DatError::invalid_handle(DAT_NO_SUBTYPE))
    }

    /// True while another object holds a [`User`] of this EVD.
    pub(crate) fn is_used(&self) -> bool {
        self.users.has_any()
    }

    /// Attaches an EP, whose requests or receives complete into this EVD. The first EP determines
    /// how waiters are woken.
    pub(crate) fn attach(&self, completion_flags: DatCompletionFlags, on_taken: OnTaken) {
        let mut inner = self.lock();
        inner.on_taken = Some(on_taken);
        if inner.completion_type == CompletionType::Open {
            inner.completion_type = CompletionType::from_flags(completion_flags);
        }
    }

    /// Queues an event that is not a completion of the CQ; `evd_handle` is filled in here.
    ///
    /// If the queue is full, the event is lost, the asynchronous EVD reports the overflow, and this
    /// EVD cannot be used any more.
    pub fn post(&self, event: DatEvent) {
        if let Err(queue::Full) = self.try_post(event) {
            tracing::error!(
                evd = ?self.handle,
                number = event.event_number,
                "event lost: queue full"
            );
            self.overflow();
        }
    }

    /// Queues a connection request that was received. If the queue is full, the peer is refused as
    /// by a busy service, and the caller ends the request. The EVD stays usable: the consumer has
    /// not yet received the request, and unknown peers must not be able to make an EVD unusable.
    pub(crate) fn post_request(&self, event: DatEvent) -> Result<(), RequestRefused> {
        if let Err(queue::Full) = self.try_post(event) {
            tracing::warn!(evd = ?self.handle, "connection request refused: queue full");
            return Err(RequestRefused);
        }
        Ok(())
    }

    /// Implements `dat_evd_post_se`.
    pub fn post_software(&self, event: &DatEvent) -> DatResult {
        if !self.has(DAT_EVD_SOFTWARE_FLAG) {
            return Err(DatError::invalid_arg(1));
        }
        if event.event_number != DAT_SOFTWARE_EVENT {
            return Err(DatError::invalid_arg(2));
        }
        let mut copy = DatEvent::zeroed();
        copy.event_number = DAT_SOFTWARE_EVENT;
        // SAFETY: the event number was checked above and selects this member; any bits are a valid
        // pointer.
        copy.event_data.software_event_data = unsafe { event.event_data.software_event_data };
        self.try_post(copy).map_err(|queue::Full| {
            // The returned error notifies the caller. The EVD has lost no event and stays usable.
            self.report_full();
            DatError::of(DAT_QUEUE_FULL)
        })
    }

    fn try_post(&self, mut event: DatEvent) -> Result<(), queue::Full> {
        event.evd_handle = self.handle.as_dat();
        let mut inner = self.lock();
        if inner.state.is_closed() {
            return Ok(());
        }
        inner.own.push(event)?;
        if event.event_number != DAT_SOFTWARE_EVENT {
            self.counters.bump(DCNT_EVD_CONN_CALLBACK);
        }
        inner.has_event = true;
        self.publish_count(&inner);
        self.nudge(inner);
        Ok(())
    }

    /// Handles the upcall for a completion in the armed CQ. The CQ is armed again after the
    /// consumer has polled it.
    pub fn on_cq_ready(&self) {
        let mut inner = self.lock();
        inner.armed = false;
        // Only this upcall shows that a message was solicited, because a completion has no such
        // flag. The message may have been polled before the upcall, without ending the wait.
        inner.has_event |= inner.completion_type == CompletionType::Solicited;
        self.pull_to_count(&mut inner);
        inner.announced = inner.pulled.len();
        self.counters.bump(DCNT_EVD_DTO_CALLBACK);
        self.nudge(inner);
    }

    /// Handles the loss of a completion because the CQ was full.
    pub fn on_cq_overflow(&self) {
        tracing::error!(evd = ?self.handle, "completion lost: CQ full");
        self.overflow();
    }

    fn overflow(&self) {
        let mut inner = self.lock();
        let is_first = inner.state.on_overflow();
        self.nudge(inner);
        if is_first {
            self.report_overflow();
        }
    }

    /// Reports on the asynchronous EVD that the queue had no room for an event; this EVD stays
    /// usable. The report is made once until the consumer has taken an event. Otherwise a consumer
    /// that posts in a loop could overflow the asynchronous EVD and make it unusable.
    pub(crate) fn report_full(&self) {
        if !std::mem::replace(&mut self.lock().is_overflow_reported, true) {
            self.report_overflow();
        }
    }

    fn report_overflow(&self) {
        if self.has(DAT_EVD_ASYNC_FLAG) {
            return; // The asynchronous EVD cannot report its own overflow; the overflow is logged.
        }
        self.ia.post_async(
            DAT_ASYNC_ERROR_EVD_OVERFLOW,
            self.handle.as_dat(),
            DAT_EVD_OVERFLOW_ERROR,
        );
    }

    /// Wakes the waiter, or else triggers the CNO. Takes the guard and releases the lock first,
    /// because neither may be done under the lock.
    fn nudge(&self, inner: MutexGuard<'_, Inner<R>>) {
        let waited = inner.state.is_waited();
        let cno = match &inner.cno {
            Some((cno, _)) if !waited && inner.state.is_enabled() => Some(cno.clone()),
            _ => None,
        };
        drop(inner);
        if waited {
            self.waker.wake();
        }
        if let Some(cno) = cno {
            cno.trigger(self.handle);
        }
    }

    /// Arms the CQ for the CNO, unless it is armed. Triggers the CNO if the CQ has completions
    /// already, because these have not been reported to the CNO.
    ///
    /// Called after the consumer has polled (it dequeued the last event, ended a wait, or begins to
    /// wait on the CNO), not in the upcall of the CQ. A completion that is received before the
    /// consumer polls needs no trigger of its own: the EVD would be empty when the consumer takes
    /// that trigger.
    pub(crate) fn arm_for_cno(&self) {
        let mut inner = self.lock();
        if self.rearm(&mut inner) {
            self.nudge(inner);
        }
    }

    /// Implements `dat_evd_modify_cno`.
    pub fn modify_cno(this: &Pinned<Self>, cno: Option<&Pinned<Cno<R>>>) -> DatResult {
        let new = match cno {
            // A waiter of a CNO drives only the RNIC of the CNO's own IA.
            Some(cno) if !Arc::ptr_eq(cno.ia(), this.ia()) => {
                return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_CNO));
            }
            Some(cno) => Some((cno.to_arc(), cno.add_user()?)),
            None => None,
        };
        if let Some((cno, _)) = &new {
            cno.add_evd(this.handle);
        }
        let mut inner = this.lock();
        if inner.state.is_closed() {
            // The thread that ended the EVD found no CNO in it, so this thread removes the EVD from
            // the CNO.
            drop(inner);
            if let Some((cno, _)) = new {
                cno.remove_evd(this.handle);
            }
            return Err(DatError::invalid_handle(DAT_NO_SUBTYPE));
        }
        let old = std::mem::replace(&mut inner.cno, new);
        drop(inner);
        if let Some((old, _)) = old
            && cno.is_none_or(|cno| cno.handle() != old.handle())
        {
            old.remove_evd(this.handle);
        }
        if cno.is_some() {
            this.arm_for_cno();
            this.trigger_if_not_empty();
        }
        Ok(())
    }

    fn trigger_if_not_empty(&self) {
        let inner = self.lock();
        if inner.count() > 0 {
            self.nudge(inner);
        }
    }

    /// Implements `dat_evd_enable`: events trigger the CNO from now on, including those that are
    /// queued already.
    pub fn enable(&self) {
        let mut inner = self.lock();
        inner.state.on_set_enabled(true);
        if self.rearm(&mut inner) || inner.count() > 0 {
            self.nudge(inner);
        }
    }

    /// Implements `dat_evd_disable`.
    pub fn disable(&self) {
        self.lock().state.on_set_enabled(false);
    }

    /// Implements `dat_evd_set_unwaitable`.
    pub fn set_unwaitable(&self) {
        self.lock().state.on_set_unwaitable();
        self.waker.wake();
    }

    /// Implements `dat_evd_clear_unwaitable`.
    pub fn clear_unwaitable(&self) {
        self.lock().state.on_clear_unwaitable();
    }

    /// Implements `dat_evd_resize`.
    pub fn resize(&self, min_qlen: DatCount) -> DatResult {
        let limit = usize::try_from(self.ia.attr().cqe_max).unwrap_or(usize::MAX);
        let requested = usize::try_from(min_qlen)
            .ok()
            .filter(|qlen| (1..=limit).contains(qlen));
        let requested = requested.ok_or(DatError::invalid_arg(2))?;
        let qlen = requested.max(CAPACITY_MIN);
        let mut inner = self.lock();
        if requested == inner.qlen {
            return Ok(());
        }
        if inner.state.is_waited() {
            return Err(DatError::of(DAT_INVALID_STATE));
        }
        if let Some(cq) = &self.cq {
            inner.pulled.pull_all(self.ia.rnic(), cq, |_| false);
            self.publish_count(&inner);
        }
        // The length that the consumer requested is the limit, although the queue may have room for
        // more events.
        if inner.count() > requested {
            return Err(DatError::of(DAT_INVALID_STATE));
        }
        if let Some(cq) = &self.cq {
            self.ia
                .rnic()
                .resize_cq(cq, u32::try_from(qlen).map_err(|_| NO_EVD)?)?;
        }
        inner.qlen = qlen;
        inner.own.set_capacity(qlen);
        Ok(())
    }

    /// Implements `dat_evd_query`.
    pub fn query(&self) -> DatEvdParam {
        let inner = self.lock();
        DatEvdParam {
            ia_handle: self.ia.consumer_handle(),
            evd_qlen: DatCount::try_from(inner.qlen).unwrap_or(DatCount::MAX),
            evd_state: inner.state.as_dat(),
            cno_handle: inner
                .cno
                .as_ref()
                .map_or(DAT_HANDLE_NULL, |(cno, _)| cno.handle().as_dat()),
            evd_flags: self.flags,
        }
    }

    /// Closes the EVD to new users. Fails while the EVD has users or a thread waits on its CNO.
    pub(crate) fn close_to_users(&self) -> DatResult {
        let cno = self.lock().cno.as_ref().map(|(cno, _)| cno.clone());
        if cno.is_some_and(|cno| cno.has_waiter()) || !self.users.close() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_EVD_IN_USE));
        }
        Ok(())
    }

    /// Closes an EVD whose handle was retired. Returns the events that the consumer has not taken.
    pub(crate) fn close(this: &Pinned<Self>) -> VecDeque<DatEvent> {
        this.users.close_anyway();
        let mut inner = this.lock();
        inner.state.on_close();
        let undelivered = inner.own.take_all();
        inner.pulled.clear();
        let cno = inner.cno.take();
        drop(inner);
        this.waker.wake();
        if let Some((cno, _)) = cno {
            cno.remove_evd(this.handle);
        }
        this.ia.disown(Kind::Evd, this.handle);
        undelivered
    }

    /// Discards the undelivered completions of an EP that is being freed. The connection events of
    /// the EP stay queued, as with OFA, but without their private data, which is freed with the EP.
    ///
    /// This call also takes the completions of other EPs out of the CQ, so it wakes a waiter that
    /// may need them.
    pub fn forget_ep(&self, ep: Handle) {
        let mut inner = self.lock();
        if let Some(cq) = &self.cq {
            self.pull_for_waiter(&mut inner, cq);
            inner
                .pulled
                .retain(|completion| completion.qp.0 != ep.as_token());
        }
        inner.own.for_each_mut(|event| cut_private_data(event, ep));
        self.publish_count(&inner);
        let must_wake = inner.has_event && inner.state.is_waited();
        drop(inner);
        if must_wake {
            self.waker.wake();
        }
    }

    /// Removes the private data from the unread connection events of `ep`. The memory is about to
    /// be freed.
    pub(crate) fn cut_private_data_of(&self, ep: Handle) {
        let mut inner = self.lock();
        inner.own.for_each_mut(|event| cut_private_data(event, ep));
    }

    fn publish_count(&self, inner: &Inner<R>) {
        self.at_hand.store(inner.count(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Inner<R>> {
        let inner = self.lock_to_poll();
        self.idle.store(false, Ordering::Relaxed);
        inner
    }

    /// Takes the lock without clearing [`Self::idle`]. The caller sets that flag itself afterwards.
    fn lock_to_poll(&self) -> MutexGuard<'_, Inner<R>> {
        self.inner.lock().ignore_poison()
    }
}

impl<R: Rnic> Inner<R> {
    /// The number of queued events outside the CQ.
    fn count(&self) -> usize {
        self.own.len() + self.pulled.len()
    }
}

/// Error: no further EVD, or no EVD of this length, can be created.
const NO_EVD: DatError = DatError::no_resources(DAT_RESOURCE_TEVD);
/// The smallest length of an asynchronous EVD. Consumers pass arbitrary lengths when they open an
/// IA, and few of them read asynchronous events at once. Each EP of a shared receive queue reports
/// its end there: `dtestsrq` requests a length of 8 and ends 100 EPs.
const MIN_ASYNC_QLEN: usize = 1024;

fn checked_qlen<R: Rnic>(ia: &Ia<R>, min_qlen: DatCount) -> DatResult<usize> {
    let qlen = u32::try_from(min_qlen).ok().filter(|qlen| *qlen > 0);
    let qlen = qlen.ok_or(DatError::invalid_arg(2))?;
    if qlen > ia.attr().cqe_max {
        return Err(NO_EVD);
    }
    usize::try_from(qlen).map_err(|_| NO_EVD)
}

fn cut_private_data(event: &mut DatEvent, ep: Handle) {
    if event.event_number & DAT_CONNECTION_EVENTS != DAT_CONNECTION_EVENTS {
        return;
    }
    // SAFETY: the event number selects this member; the caller of `post` initialized it.
    let mut data = unsafe { event.event_data.connect_event_data };
    if data.ep_handle == ep.as_dat() {
        data.private_data_size = 0;
        data.private_data = std::ptr::null_mut();
        event.event_data.connect_event_data = data;
    }
}

/// The bit that is set in the numbers of all connection events and of no other events.
const DAT_CONNECTION_EVENTS: DatEventNumber = 0x0_4000;

#[cfg(test)]
mod tests;
