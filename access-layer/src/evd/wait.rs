//! Taking events: `dat_evd_wait` and `dat_evd_dequeue`.
//!
//! Both calls make progress on the calling thread ([`Rnic::drive`], [`Rnic::wait`]), so a
//! completion needs no other thread.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_abi::*;

use super::state::WaitTicket;
use super::{CompletionType, Evd, Inner, pull};
use crate::error::{DatError, DatResult};
use crate::handle::AnyPin;
use crate::rnic::{Completion, Notify, Rnic, WcStatus};

/// The result of a wait that succeeded.
#[derive(Debug)]
pub struct Woken {
    /// The oldest event.
    pub event: DatEvent,
    /// The number of events that are still queued.
    pub nmore: DatCount,
}

/// An event that was taken.
struct Taken {
    event: DatEvent,
    /// The endpoint of a completion, see [`super::OnTaken`].
    _ep: Option<AnyPin>,
}

/// The error of a wait whose timeout expired. No event was taken.
#[derive(Debug, PartialEq, Eq)]
pub struct TimedOut {
    /// The number of events in the queue.
    pub nmore: DatCount,
    /// The error that the C caller receives: the class bit depends on the EVD.
    pub error: DatError,
}

/// The reason why a wait returned no event.
#[derive(Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The timeout expired.
    TimedOut(TimedOut),
    /// The EVD cannot be waited on, or can no longer be waited on.
    Refused(DatError),
}

impl From<DatError> for WaitError {
    fn from(error: DatError) -> Self {
        Self::Refused(error)
    }
}

/// Error: a signal handler of the program ran in the thread that waits.
const INTERRUPTED: DatError = DatError::bare(DAT_INTERRUPTED_CALL, DAT_NO_SUBTYPE);

/// The condition under which a waiter returns.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WakeOn {
    /// Enough events of any kind are queued.
    Any,
    /// Enough events are queued, and an event that wakes waiters was received since the last poll.
    NewEvent,
}

impl<R: Rnic> Evd<R> {
    /// Takes the oldest event, if there is one.
    ///
    /// A poll takes no lock if it finds nothing and the previous poll found nothing either.
    pub(crate) fn take_oldest(&self) -> DatResult<DatEvent> {
        self.counters.bump(DCNT_EVD_DEQUEUE);
        if self.at_hand.load(Ordering::Acquire) == 0
            && !self.progress()
            && self.idle.load(Ordering::Acquire)
        {
            self.counters.bump(DCNT_EVD_DEQUEUE_NOT_FOUND);
            return Err(self.empty());
        }
        let mut inner = self.lock_to_poll();
        inner.state.check_dequeue()?;
        inner.announced = 0;
        let mut taken = self.take(&mut inner);
        if taken.is_none() && self.rearm(&mut inner) {
            // Completions were received between the poll and the arming of the CQ.
            taken = self.take(&mut inner);
        }
        self.publish_count(&inner);
        self.idle
            .store(taken.is_none() && inner.cno.is_none(), Ordering::Release);
        drop(inner);
        let Some(taken) = taken else {
            self.counters.bump(DCNT_EVD_DEQUEUE_NOT_FOUND);
            return Err(self.empty());
        };
        self.counters.bump(DCNT_EVD_DEQUEUE_FOUND);
        Ok(taken.event)
    }

    /// Makes progress, unless the EVD has completions or events already. Returns `false` if it has
    /// none afterwards.
    ///
    /// An EVD without a CQ makes progress too: a consumer that waits by polling its memory may poll
    /// no other EVD than that of its connections, and meanwhile no other thread receives.
    fn progress(&self) -> bool {
        let rnic = self.ia().rnic();
        let has_events = || match self.cq() {
            Some(cq) => rnic.may_have_completions(cq),
            None => self.at_hand.load(Ordering::Acquire) > 0,
        };
        has_events() || {
            rnic.drive();
            has_events()
        }
    }

    /// Waits for `threshold` events and takes the oldest one.
    pub(crate) fn await_events(
        &self,
        timeout_us: DatTimeout,
        threshold: DatCount,
    ) -> Result<Woken, WaitError> {
        let deadline = deadline(timeout_us);
        let (ticket, threshold) = self.begin_wait(threshold)?;
        let result = self.wait_until(deadline, threshold, ticket);
        self.end_wait(result.is_ok());
        result
    }

    pub(super) fn begin_wait(&self, threshold: DatCount) -> DatResult<(WaitTicket, usize)> {
        let mut inner = self.lock();
        let threshold = inner.checked_threshold(threshold)?;
        // The first wait makes the descriptor, so that the number of a program's descriptors does
        // not depend on which waits sleep. A wait does not need it.
        let _ = self.waker.prepare();
        self.counters.bump(DCNT_EVD_WAIT);
        Ok((inner.state.on_begin_wait()?, threshold))
    }

    /// Ends a wait. Events that were received after the last poll of the waiter trigger the CNO,
    /// unless the waiter took an event: a consumer that took one event polls for more.
    pub(super) fn end_wait(&self, took: bool) {
        let mut inner = self.lock();
        inner.state.on_end_wait();
        inner.announced = 0;
        self.publish_count(&inner);
        if !took && inner.has_event {
            self.nudge(inner);
        } else {
            drop(inner);
        }
        self.arm_for_cno();
    }

    fn wait_until(
        &self,
        deadline: Option<Instant>,
        threshold: usize,
        ticket: WaitTicket,
    ) -> Result<Woken, WaitError> {
        let rnic = self.ia().rnic();
        if let Some(woken) = self.poll(threshold, ticket, WakeOn::Any)? {
            return Ok(woken);
        }
        self.progress();
        let mut wake_on = WakeOn::Any;
        loop {
            let remaining = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let expired = remaining.is_some_and(|left| left.is_zero());
            if let Some(woken) = self.poll(
                threshold,
                ticket,
                if expired { WakeOn::Any } else { wake_on },
            )? {
                return Ok(woken);
            }
            if expired {
                return Err(WaitError::TimedOut(self.timed_out()));
            }
            wake_on = WakeOn::NewEvent;
            self.counters.bump(DCNT_EVD_WAIT_BLOCKED);
            let interrupted = self.sleep(rnic, remaining);
            self.counters.bump(DCNT_EVD_WAIT_NOTIFY);
            if interrupted && self.waits_on_its_cq() {
                let woken = self.poll(threshold, ticket, WakeOn::Any)?;
                return woken.ok_or(WaitError::Refused(INTERRUPTED));
            }
        }
    }

    /// Sleeps until an event may have been received. May return early without an event. Returns
    /// `true` if a signal handler ran.
    fn sleep(&self, rnic: &R, remaining: Option<Duration>) -> bool {
        let Some(cq) = self.cq() else {
            // Progress also produces events for an EVD without a CQ. This thread has polled, so it
            // continues to make progress while it waits.
            return rnic.wait(&[], &self.waker, remaining);
        };
        !self.arm_to_sleep(cq) && rnic.wait(&[cq], &self.waker, remaining)
    }

    /// Arms the CQ, unless the upcall for its next completion is still outstanding. Returns `true`
    /// if the CQ has completions already.
    fn arm_to_sleep(&self, cq: &R::Cq) -> bool {
        let mut inner = self.lock();
        let solicited = inner.completion_type == CompletionType::Solicited;
        if inner.armed && !solicited {
            return false;
        }
        inner.armed = true;
        self.ia().rnic().arm_cq(cq, solicited)
    }

    /// True for the waits that OFA's providers make on the CQ itself and not on a condition
    /// variable: their timeouts have no class bit, and signal handlers end them.
    fn waits_on_its_cq(&self) -> bool {
        self.cq().is_some() && self.lock().cno.is_none()
    }

    /// Takes the oldest event if enough events are queued. With [`WakeOn::NewEvent`], an event that
    /// wakes waiters must also have been received since the last poll.
    pub(super) fn poll(
        &self,
        threshold: usize,
        ticket: WaitTicket,
        wake_on: WakeOn,
    ) -> DatResult<Option<Woken>> {
        // Dropped after the lock is released.
        let taken;
        let mut guard = self.lock();
        let inner = &mut *guard;
        inner.state.check_wait(ticket)?;
        if let Some(cq) = self.cq() {
            self.pull_for_waiter(inner, cq);
        }
        let has_event = std::mem::take(&mut inner.has_event);
        if inner.count() < threshold || (wake_on == WakeOn::NewEvent && !has_event) {
            return Ok(None);
        }
        taken = self.take(inner);
        Ok(taken.as_ref().map(|taken| Woken {
            event: taken.event,
            nmore: inner.nmore(),
        }))
    }

    /// Takes all completions from the CQ and notes whether one of them wakes a waiter.
    pub(super) fn pull_for_waiter(&self, inner: &mut Inner<R>, cq: &R::Cq) {
        let mode = inner.completion_type;
        inner.has_event |= inner
            .pulled
            .pull_all(self.ia().rnic(), cq, |c| wakes(c, mode));
    }

    /// Takes the oldest event of the EVD's own queue or, if that is empty, the oldest completion.
    fn take(&self, inner: &mut Inner<R>) -> Option<Taken> {
        if let Some(event) = inner.own.pop() {
            inner.is_overflow_reported = false;
            return Some(Taken { event, _ep: None });
        }
        if inner.pulled.len() == 0 {
            inner.pulled.pull(self.ia().rnic(), self.cq()?);
            self.counters.bump(DCNT_EVD_DEQUEUE_POLL);
            if inner.pulled.len() > 0 {
                self.counters.bump(DCNT_EVD_DEQUEUE_POLL_FOUND);
            }
        }
        let completion = inner.pulled.pop()?;
        let ep = inner.on_taken.and_then(|on_taken| on_taken(&completion));
        let event = pull::event_of(&completion, self.handle(), self.ia().binds());
        Some(Taken { event, _ep: ep })
    }

    /// Arms the CQ for the CNO, unless it is armed. Returns `true` if there are completions that
    /// have not been reported to the CNO.
    pub(super) fn rearm(&self, inner: &mut Inner<R>) -> bool {
        let Some(cq) = self.cq().filter(|_| inner.cno.is_some()) else {
            return false;
        };
        if inner.armed {
            return false;
        }
        let solicited = inner.completion_type == CompletionType::Solicited;
        let more = self.ia().rnic().arm_cq(cq, solicited);
        inner.armed = true;
        if more {
            self.pull_to_count(inner);
        }
        let count = inner.pulled.len();
        std::mem::replace(&mut inner.announced, count) < count
    }

    /// Takes completions from the CQ to count them, up to the queue length of the EVD.
    pub(super) fn pull_to_count(&self, inner: &mut Inner<R>) {
        let Some(cq) = self.cq() else { return };
        let mode = inner.completion_type;
        while inner.count() < inner.qlen {
            let batch = inner.pulled.pull(self.ia().rnic(), cq);
            if batch.is_empty() {
                break;
            }
            inner.has_event |= batch.iter().any(|completion| wakes(completion, mode));
        }
        self.publish_count(inner);
    }

    fn timed_out(&self) -> TimedOut {
        // Consumers compare the whole value, including the class bit.
        let make = if self.waits_on_its_cq() {
            DatError::bare
        } else {
            DatError::new
        };
        TimedOut {
            nmore: self.lock().nmore(),
            error: make(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE),
        }
    }

    /// The error of a `dequeue` that finds nothing. With a CQ the error has no class bit, because
    /// `dtest -p` compares the whole value.
    fn empty(&self) -> DatError {
        let make = if self.cq().is_some() {
            DatError::bare
        } else {
            DatError::new
        };
        make(DAT_QUEUE_EMPTY, DAT_NO_SUBTYPE)
    }
}

impl<R: Rnic> Inner<R> {
    fn checked_threshold(&self, threshold: DatCount) -> DatResult<usize> {
        let bad = DatError::invalid_arg(3);
        let threshold = usize::try_from(threshold).map_err(|_| bad)?;
        let possible = (1..=self.qlen).contains(&threshold);
        if !possible || (threshold > 1 && !self.completion_type.allows_thresholds()) {
            return Err(bad);
        }
        Ok(threshold)
    }

    fn nmore(&self) -> DatCount {
        DatCount::try_from(self.count()).unwrap_or(DatCount::MAX)
    }
}

/// Returns true if a completion ends a wait (DAT 2.0 section 6.3.2.3, notification suppression).
fn wakes(completion: &Completion, mode: CompletionType) -> bool {
    if completion.status != WcStatus::Success {
        return true;
    }
    match completion.notify {
        Notify::Solicited => true,
        Notify::Always => mode != CompletionType::Solicited,
        Notify::Never => false,
    }
}

/// Returns the time at which a timeout that begins now expires; `None` if it never does.
pub(crate) fn deadline(timeout_us: DatTimeout) -> Option<Instant> {
    (timeout_us != DAT_TIMEOUT_INFINITE)
        .then(|| Instant::now() + Duration::from_micros(u64::from(timeout_us)))
}
