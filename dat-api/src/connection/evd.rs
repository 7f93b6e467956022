//! Event dispatchers: queues of events (DAT 2.0 section 6.3).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_abi::*;

use super::decode::decode;
use super::{Evd, EvdInner, Event, Route};
use crate::address::wait_for;
use crate::cno::Cno;
use crate::counters;
use crate::error::{Error, Result, check, to_count};
use crate::event::DtoCompletion;
use crate::handle::{EpId, EvdId, Handle, SpId};
use crate::ia::Ia;
use crate::leak::keep_for_ever;
use crate::lock::lock;

/// The streams of events that a dispatcher accepts (`DAT_EVD_FLAGS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvdFlags(DatEvdFlags);

impl EvdFlags {
    /// Software events.
    pub const SOFTWARE: Self = Self(DAT_EVD_SOFTWARE_FLAG);
    /// Connection requests.
    pub const CONNECTION_REQUEST: Self = Self(DAT_EVD_CR_FLAG);
    /// Completions of data transfers.
    pub const DTO: Self = Self(DAT_EVD_DTO_FLAG);
    /// Connection events.
    pub const CONNECTION: Self = Self(DAT_EVD_CONNECTION_FLAG);
    /// Completions of binds.
    pub const BIND: Self = Self(DAT_EVD_RMR_BIND_FLAG);

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl std::ops::BitOr for EvdFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Ia {
    /// The dispatcher of asynchronous errors, which was created when the adapter was opened.
    #[must_use]
    pub fn async_evd(&self) -> Evd {
        Evd::new(self.clone(), self.inner.async_evd, false, None)
    }
}

impl Evd {
    /// Creates a dispatcher with room for at least `min_qlen` events.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for a length of 0 and for flags that cannot be combined (data
    /// transfers with connection events), `DAT_INSUFFICIENT_RESOURCES` above
    /// [`IaAttr::max_evd_qlen`](crate::IaAttr::max_evd_qlen).
    pub fn create(ia: &Ia, min_qlen: u32, flags: EvdFlags) -> Result<Self> {
        Self::create_inner(ia, min_qlen, flags, None)
    }

    /// Creates a dispatcher that triggers `cno` when an event is delivered.
    pub fn create_with_cno(ia: &Ia, min_qlen: u32, flags: EvdFlags, cno: &Cno) -> Result<Self> {
        Self::create_inner(ia, min_qlen, flags, Some(cno.clone()))
    }

    fn create_inner(ia: &Ia, min_qlen: u32, flags: EvdFlags, cno: Option<Cno>) -> Result<Self> {
        let min_qlen = to_count(min_qlen, "an event queue length")?;
        let cno_handle = cno.as_ref().map_or(DAT_HANDLE_NULL, Cno::as_raw);
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open, the CNO live or null, the out-pointer writable.
        let code = unsafe {
            let create = ia.library().dat_evd_create;
            create(ia.as_raw(), min_qlen, cno_handle, flags.bits(), &mut handle)
        };
        check("dat_evd_create", code)?;
        Ok(Self::new(ia.clone(), Handle(handle), true, cno))
    }

    fn new(ia: Ia, handle: Handle, is_owned: bool, cno: Option<Cno>) -> Self {
        Self {
            inner: Arc::new(EvdInner {
                handle,
                ia,
                is_owned,
                cno: Mutex::new(cno),
                routes: Mutex::default(),
                skipped: Mutex::default(),
                skipped_len: AtomicUsize::new(0),
            }),
        }
    }

    /// Takes the oldest event without blocking; `None` when the queue is empty.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` while another thread waits on the dispatcher, and permanently after an
    /// overflow.
    pub fn dequeue(&self) -> Result<Option<Event>> {
        match self.take_skipped(|_| true) {
            Some(event) => Ok(Some(event)),
            None => self.dequeue_fresh(),
        }
    }

    /// Takes the oldest event, and waits for it up to `timeout` (`None`: no limit). Returns `None`
    /// when the timeout expired.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` when another thread already waits, after an overflow, and when the
    /// dispatcher is not waitable ([`Evd::set_waitable`]). `DAT_INTERRUPTED_CALL` when a signal
    /// handler has run in the thread meanwhile; call again.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<Event>> {
        match self.take_skipped(|_| true) {
            Some(event) => Ok(Some(event)),
            None => self.wait_fresh(timeout),
        }
    }

    /// Waits until `threshold` events are queued and takes the oldest; returns it with the number
    /// of remaining events. Returns `None` and takes nothing when `timeout` expired first. An event
    /// that was skipped by a wait for a particular event is returned at once.
    pub fn wait_many(
        &self,
        threshold: u32,
        timeout: Option<Duration>,
    ) -> Result<Option<(Event, u32)>> {
        if let Some(event) = self.take_skipped(|_| true) {
            let left = self.inner.skipped_len.load(Ordering::Acquire);
            return Ok(Some((event, u32::try_from(left).unwrap_or(u32::MAX))));
        }
        let threshold = to_count(threshold, "a threshold")?;
        self.wait_raw(threshold, timeout)
    }

    /// Waits for the completion of the work that was posted to `ep` with `cookie`. Other events are
    /// kept for later calls, in order. Fails with [`Error::TimedOut`] when the timeout expired.
    pub fn wait_completion(
        &self,
        ep: EpId,
        cookie: u64,
        timeout: Option<Duration>,
    ) -> Result<DtoCompletion> {
        let wanted = |event: &Event| match event {
            Event::Dto(dto) => dto.ep == ep && dto.cookie == cookie,
            _ => false,
        };
        match self.wait_matching(timeout, wanted)? {
            Some(Event::Dto(dto)) => Ok(dto),
            _ => Err(Error::TimedOut),
        }
    }

    /// Waits for the first event that `wanted` accepts, and adds all earlier events to `skipped`.
    pub(crate) fn wait_matching(
        &self,
        timeout: Option<Duration>,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Option<Event>> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if let Some(event) = self.take_skipped(&wanted) {
            return Ok(Some(event));
        }
        loop {
            let remaining = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            match self.wait_fresh(remaining) {
                Ok(Some(event)) if wanted(&event) => return Ok(Some(event)),
                Ok(Some(event)) => self.skip(event),
                Ok(None) => return Ok(None),
                Err(error) if error.is(DAT_INTERRUPTED_CALL) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn dequeue_fresh(&self) -> Result<Option<Event>> {
        let mut raw = DatEvent::zeroed();
        // SAFETY: the handle is live and the out-pointer writable.
        let code = unsafe { (self.inner.ia.library().dat_evd_dequeue)(self.as_raw(), &mut raw) };
        if code.is(DAT_QUEUE_EMPTY) {
            return Ok(None);
        }
        check("dat_evd_dequeue", code)?;
        // SAFETY: the call filled `raw` and this dispatcher delivers each event once.
        Ok(Some(unsafe { decode(self, &raw) }))
    }

    fn wait_fresh(&self, timeout: Option<Duration>) -> Result<Option<Event>> {
        Ok(self.wait_raw(1, timeout)?.map(|(event, _)| event))
    }

    fn wait_raw(
        &self,
        threshold: DatCount,
        timeout: Option<Duration>,
    ) -> Result<Option<(Event, u32)>> {
        wait_for(timeout, |timeout| self.wait_us(threshold, timeout))
    }

    fn wait_us(&self, threshold: DatCount, timeout: DatTimeout) -> Result<Option<(Event, u32)>> {
        let mut raw = DatEvent::zeroed();
        let mut nmore: DatCount = 0;
        // SAFETY: the handle is live and both out-pointers are writable.
        let code = unsafe {
            let wait = self.inner.ia.library().dat_evd_wait;
            wait(self.as_raw(), timeout, threshold, &mut raw, &mut nmore)
        };
        if code.is(DAT_TIMEOUT_EXPIRED) || code.is(DAT_QUEUE_EMPTY) {
            return Ok(None);
        }
        check("dat_evd_wait", code)?;
        // SAFETY: the call filled `raw` and this dispatcher delivers each event once.
        let event = unsafe { decode(self, &raw) };
        Ok(Some((event, u32::try_from(nmore).unwrap_or(0))))
    }

    fn skip(&self, mut event: Event) {
        if let Event::ConnectionRequest(request) = &mut event {
            request.on_skipped();
        }
        let mut skipped = lock(&self.inner.skipped);
        skipped.push_back(event);
        self.inner
            .skipped_len
            .store(skipped.len(), Ordering::Release);
    }

    fn take_skipped(&self, wanted: impl Fn(&Event) -> bool) -> Option<Event> {
        if self.inner.skipped_len.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut skipped = lock(&self.inner.skipped);
        let index = skipped.iter().position(wanted)?;
        let mut event = skipped.remove(index);
        self.inner
            .skipped_len
            .store(skipped.len(), Ordering::Release);
        if let Some(Event::ConnectionRequest(request)) = &mut event {
            request.on_taken();
        }
        event
    }

    /// Rejects the unread request of service point `sp`. Returns `false` when there is no such
    /// request. Other events are kept, in order.
    pub(crate) fn reject_unread(&self, sp: SpId) -> Result<bool> {
        let wanted = |event: &Event| match event {
            Event::ConnectionRequest(request) => request.service_point() == sp,
            _ => false,
        };
        if let Some(event) = self.take_skipped(wanted) {
            drop(event);
            return Ok(true);
        }
        while let Some(event) = self.dequeue_fresh()? {
            if wanted(&event) {
                drop(event);
                return Ok(true);
            }
            self.skip(event);
        }
        Ok(false)
    }

    /// Posts a software event with a number of the caller's choice.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` without [`EvdFlags::SOFTWARE`], `DAT_QUEUE_FULL` when the queue is
    /// full.
    pub fn post_software(&self, number: usize) -> Result<()> {
        let mut raw = DatEvent::zeroed();
        raw.event_number = DAT_SOFTWARE_EVENT;
        raw.evd_handle = self.as_raw();
        raw.event_data.software_event_data = DatSoftwareEventData {
            pointer: std::ptr::without_provenance_mut(number),
        };
        // SAFETY: the handle is live and `raw` readable; the pointer in it is a number that is
        // never dereferenced.
        let code = unsafe { (self.inner.ia.library().dat_evd_post_se)(self.as_raw(), &raw) };
        Ok(check("dat_evd_post_se", code)?)
    }

    /// Changes the length of the queue.
    pub fn resize(&self, min_qlen: u32) -> Result<()> {
        let min_qlen = to_count(min_qlen, "an event queue length")?;
        // SAFETY: the handle is live.
        let code = unsafe { (self.inner.ia.library().dat_evd_resize)(self.as_raw(), min_qlen) };
        Ok(check("dat_evd_resize", code)?)
    }

    /// Attaches the dispatcher to the notification object `cno`, or detaches it (`None`).
    pub fn set_cno(&self, cno: Option<&Cno>) -> Result<()> {
        let mut current = lock(&self.inner.cno);
        let handle = cno.map_or(DAT_HANDLE_NULL, Cno::as_raw);
        // SAFETY: the handle is live and the CNO live or null; `current` keeps it alive while it is
        // in use.
        let code = unsafe { (self.inner.ia.library().dat_evd_modify_cno)(self.as_raw(), handle) };
        check("dat_evd_modify_cno", code)?;
        *current = cno.cloned();
        Ok(())
    }

    /// Returns the length of the queue, as the provider granted it.
    pub fn qlen(&self) -> Result<u32> {
        let mut param = DatEvdParam::zeroed();
        // SAFETY: the handle is live and the out-pointer writable.
        let code = unsafe {
            (self.inner.ia.library().dat_evd_query)(self.as_raw(), DAT_EVD_FIELD_ALL, &mut param)
        };
        check("dat_evd_query", code)?;
        Ok(u32::try_from(param.evd_qlen).unwrap_or(0))
    }

    /// Enables or disables the trigger of the notification object. If events are queued when the
    /// trigger is enabled again, they trigger at once.
    pub fn set_enabled(&self, enabled: bool) -> Result<()> {
        let library = self.inner.ia.library();
        let (call, change) = if enabled {
            ("dat_evd_enable", library.dat_evd_enable)
        } else {
            ("dat_evd_disable", library.dat_evd_disable)
        };
        // SAFETY: the handle is live.
        Ok(check(call, unsafe { change(self.as_raw()) })?)
    }

    /// Returns the counters of the dispatcher, indexed by `DCNT_EVD_*`; `reset` sets them to 0.
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        let library = self.inner.ia.library();
        counters::query(library, self.as_raw(), 0, DCNT_EVD_ALL_COUNTERS, reset)
    }

    /// Enables or disables waiting. While waiting is disabled, every wait fails with
    /// `DAT_INVALID_STATE`, also a wait that is in progress.
    pub fn set_waitable(&self, waitable: bool) -> Result<()> {
        let library = self.inner.ia.library();
        // SAFETY: the handle is live.
        let (call, code) = unsafe {
            if waitable {
                let code = (library.dat_evd_clear_unwaitable)(self.as_raw());
                ("dat_evd_clear_unwaitable", code)
            } else {
                (
                    "dat_evd_set_unwaitable",
                    (library.dat_evd_set_unwaitable)(self.as_raw()),
                )
            }
        };
        Ok(check(call, code)?)
    }

    /// The identity of the dispatcher, which [`Cno::wait`] returns.
    #[must_use]
    pub fn id(&self) -> EvdId {
        EvdId::of(self.as_raw())
    }

    /// The interface adapter of the dispatcher.
    #[must_use]
    pub fn ia(&self) -> &Ia {
        &self.inner.ia
    }

    /// The handle, for calls through [`Library`](crate::Library). Valid while `self` or a clone
    /// lives.
    ///
    /// Connection events and connection requests must be taken only by the methods of this type:
    /// they notify endpoints and service points, and a dequeue through the raw table does not.
    #[must_use]
    pub fn as_raw(&self) -> DatEvdHandle {
        self.inner.handle.0
    }

    pub(crate) fn routes(&self) -> MutexGuard<'_, HashMap<usize, Route>> {
        lock(&self.inner.routes)
    }
}

impl Drop for EvdInner {
    fn drop(&mut self) {
        if !self.is_owned {
            return;
        }
        let cno = self.cno.get_mut().unwrap_or_else(PoisonError::into_inner);
        if cno.is_some() {
            // The provider does not free a dispatcher while a thread waits on its notification
            // object, so the dispatcher is detached first. If this call fails, the call that frees
            // the dispatcher fails, too, and reports the error.
            // SAFETY: the handle is live, and a null handle is allowed.
            let _ =
                unsafe { (self.ia.library().dat_evd_modify_cno)(self.handle.0, DAT_HANDLE_NULL) };
        }
        // SAFETY: endpoints and service points that use the dispatcher hold a clone, so none of
        // them exists any more.
        let code = unsafe { (self.ia.library().dat_evd_free)(self.handle.0) };
        let freed = check("dat_evd_free", code);
        if freed.is_err() {
            std::mem::forget(cno.take());
        }
        keep_for_ever(freed, &self.ia);
    }
}

opaque_debug!(Evd, |it| [id: it.id()]);
