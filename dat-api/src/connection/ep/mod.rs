//! Endpoints (DAT 2.0 section 6.6).

mod attr;
mod connect;
mod post;

pub use attr::{EpAttr, EpInfo, EpState, EpStatus};
pub use connect::{ConnectError, ConnectFailure, SocketRefused};
pub use post::CompletionFlags;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dat_abi::*;

use super::{Ep, EpInner, Evd, Route};
use crate::address::read_address;
use crate::counters;
use crate::error::{Result, check, to_count};
use crate::event::ConnectionKind;
use crate::handle::{EpId, Handle, SpId};
use crate::lock::lock;
use crate::posted_regions::PostedRegions;
use crate::pz::Pz;
use crate::socket::{PassedSocket, SocketOwnership};
use crate::srq::Srq;

/// The dispatchers of an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct EpEvds<'a> {
    /// For completions of Receives.
    pub recv: &'a Evd,
    /// For completions of Sends, RDMA Reads, RDMA Writes and binds.
    pub request: &'a Evd,
    /// For connection events.
    pub connect: &'a Evd,
}

/// The service point that last reserved the endpoint, and the dispatcher of its request.
#[derive(Debug)]
pub(super) struct Reserved {
    sp: SpId,
    requests: Evd,
}

/// The number of started attempts to connect whose final events have not been read, and the socket
/// of the last attempt. Final events are delivered in order, so an event concerns the socket only
/// if no other final event is outstanding.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    endings_due: u32,
    ownership: SocketOwnership,
}

/// Way in which an endpoint disconnects (`DAT_CLOSE_FLAGS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// Ends the connection at once: all posted work completes as flushed.
    Abrupt,
    /// Posted requests finish first; receives are flushed.
    Graceful,
}

impl Ep {
    /// Creates an unconnected endpoint; `None` for `attr` selects the provider's defaults.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` for an attribute above the limits of the adapter
    /// ([`IaAttr`](crate::IaAttr)), `DAT_INVALID_HANDLE` for a dispatcher that does not accept the
    /// events of its role, `DAT_INSUFFICIENT_RESOURCES` when no queue pair is available.
    pub fn create(pz: &Pz, evds: EpEvds<'_>, attr: Option<&EpAttr>) -> Result<Self> {
        Self::create_inner(pz, evds, None, attr)
    }

    /// Creates an endpoint that takes its receives from a shared queue.
    pub fn create_with_srq(
        pz: &Pz,
        evds: EpEvds<'_>,
        srq: &Srq,
        attr: Option<&EpAttr>,
    ) -> Result<Self> {
        Self::create_inner(pz, evds, Some(srq.clone()), attr)
    }

    fn create_inner(
        pz: &Pz,
        evds: EpEvds<'_>,
        srq: Option<Srq>,
        attr: Option<&EpAttr>,
    ) -> Result<Self> {
        let raw_attr = attr.map(|attr| attr.to_raw());
        let attr_ptr = raw_attr
            .as_ref()
            .map_or(std::ptr::null(), std::ptr::from_ref);
        let library = pz.ia().library();
        let (ia, zone) = (pz.ia().as_raw(), pz.as_raw());
        let (recv, request, connect) = (
            evds.recv.as_raw(),
            evds.request.as_raw(),
            evds.connect.as_raw(),
        );
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: every handle is live, the attributes are null or readable, the out-pointer
        // writable.
        let (call, code) = unsafe {
            match &srq {
                None => {
                    let create = library.dat_ep_create;
                    (
                        "dat_ep_create",
                        create(ia, zone, recv, request, connect, attr_ptr, &mut handle),
                    )
                }
                Some(srq) => {
                    let (create, srq) = (library.dat_ep_create_with_srq, srq.as_raw());
                    let code = create(ia, zone, recv, request, connect, srq, attr_ptr, &mut handle);
                    ("dat_ep_create_with_srq", code)
                }
            }
        };
        check(call, code)?;
        let inner = Arc::new(EpInner {
            handle: Handle(handle),
            pz: pz.clone(),
            recv: evds.recv.clone(),
            request: evds.request.clone(),
            connect: evds.connect.clone(),
            srq,
            posted_regions: PostedRegions::new(),
            attempts: Mutex::default(),
            reserved: Mutex::default(),
        });
        evds.connect
            .routes()
            .insert(inner.handle.key(), Route::Ep(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// Returns the endpoint of a weak reference, if the endpoint still exists.
    pub(crate) fn from_weak(ep: &Weak<EpInner>) -> Option<Self> {
        ep.upgrade().map(|inner| Self { inner })
    }

    /// Ends the connection, or the attempt to make one. The connection dispatcher delivers an event
    /// when the connection has ended.
    pub fn disconnect(&self, how: Close) -> Result<()> {
        let flags = match how {
            Close::Abrupt => DAT_CLOSE_ABRUPT_FLAG,
            Close::Graceful => DAT_CLOSE_GRACEFUL_FLAG,
        };
        // SAFETY: the handle is live.
        let code =
            unsafe { (self.inner.pz.ia().library().dat_ep_disconnect)(self.as_raw(), flags) };
        Ok(check("dat_ep_disconnect", code)?)
    }

    /// Makes a disconnected endpoint usable again.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` when the endpoint is neither disconnected nor unconnected.
    pub fn reset(&self) -> Result<()> {
        // SAFETY: the handle is live.
        let code = unsafe { (self.inner.pz.ia().library().dat_ep_reset)(self.as_raw()) };
        Ok(check("dat_ep_reset", code)?)
    }

    /// Returns the state of the endpoint.
    pub fn state(&self) -> Result<EpState> {
        self.inner.state()
    }

    /// Returns the state, and whether posted work is outstanding. OFA's providers report the two
    /// idle flags inverted.
    pub fn status(&self) -> Result<EpStatus> {
        self.inner.status()
    }

    /// Changes the limits, which is possible before the endpoint begins to connect
    /// (`dat_ep_modify`).
    pub fn set_attr(&self, attr: &EpAttr) -> Result<()> {
        let param = DatEpParam {
            ep_attr: attr.to_raw(),
            ..DatEpParam::zeroed()
        };
        // SAFETY: the handle is live and the parameters readable.
        let code = unsafe { (self.library().dat_ep_modify)(self.as_raw(), EpAttr::MASK, &param) };
        Ok(check("dat_ep_modify", code)?)
    }

    /// Returns the number of receives that the endpoint holds and that have not completed, and the
    /// number of queue entries from the first of these receives to the last.
    pub fn receives_held(&self) -> Result<(u32, u32)> {
        let (mut held, mut span) = (0, 0);
        // SAFETY: the handle is live and the out-pointers writable.
        let code =
            unsafe { (self.library().dat_ep_recv_query)(self.as_raw(), &mut held, &mut span) };
        check("dat_ep_recv_query", code)?;
        let count = |value: DatCount| u32::try_from(value).unwrap_or(0);
        Ok((count(held), count(span)))
    }

    /// Limits the number of receives of the shared queue that the endpoint may hold. More than
    /// `soft` cause one asynchronous event; more than `hard` end the connection. `None` sets no
    /// limit.
    pub fn set_watermarks(&self, soft: Option<u32>, hard: Option<u32>) -> Result<()> {
        let mark = |mark: Option<u32>| match mark {
            None => Ok(DAT_WATERMARK_INFINITE),
            Some(mark) => to_count(mark, "a watermark"),
        };
        let (soft, hard) = (mark(soft)?, mark(hard)?);
        // SAFETY: the handle is live.
        let code = unsafe { (self.library().dat_ep_set_watermark)(self.as_raw(), soft, hard) };
        Ok(check("dat_ep_set_watermark", code)?)
    }

    /// Returns the counters of the endpoint, indexed by `DCNT_EP_*`; `reset` sets them to 0.
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        counters::query(
            self.library(),
            self.as_raw(),
            0,
            DCNT_EP_ALL_COUNTERS,
            reset,
        )
    }

    /// Returns the counters of the payload of the endpoint's connections by transport, indexed by
    /// `DCNT_RS_*` from `DCNT_RS_TCP_SENT` on; `reset` sets them to 0. Only the providers of dat-rs
    /// have these counters.
    pub fn traffic(&self, reset: bool) -> Result<Vec<u64>> {
        let (first, all) = (DCNT_RS_TCP_SENT, DCNT_RS_ALL_COUNTERS);
        counters::query(self.library(), self.as_raw(), first, all, reset)
    }

    /// Returns the state, the addresses and the limits.
    pub fn query(&self) -> Result<EpInfo> {
        let mut param = DatEpParam::zeroed();
        // SAFETY: the handle is live and the out-pointer writable.
        let code = unsafe {
            (self.inner.pz.ia().library().dat_ep_query)(self.as_raw(), DAT_EP_FIELD_ALL, &mut param)
        };
        check("dat_ep_query", code)?;
        // SAFETY: the addresses of an endpoint are null or valid while the endpoint exists.
        let (local, remote) = unsafe {
            (
                read_address(param.local_ia_address_ptr),
                read_address(param.remote_ia_address_ptr),
            )
        };
        Ok(EpInfo {
            state: EpState::from_raw(param.ep_state),
            local,
            local_port: param.local_port_qual,
            remote,
            remote_port: param.remote_port_qual,
            attr: EpAttr::from_raw(&param.ep_attr),
        })
    }

    /// Returns the socket of a failed attempt, once.
    ///
    /// The socket is available after the failure has been read from the connection dispatcher.
    #[must_use]
    pub fn take_socket(&self) -> Option<OwnedFd> {
        self.inner.attempts().ownership.take_returned()
    }

    /// The identity of the endpoint in events.
    #[must_use]
    pub fn id(&self) -> EpId {
        EpId::of(self.as_raw())
    }

    /// The protection zone of the endpoint.
    #[must_use]
    pub fn pz(&self) -> &Pz {
        &self.inner.pz
    }

    /// The dispatcher of the completions of requests.
    pub(crate) fn request_evd(&self) -> &Evd {
        &self.inner.request
    }

    /// The dispatcher of connection events.
    #[must_use]
    pub fn connect_evd(&self) -> &Evd {
        &self.inner.connect
    }

    /// The handle, for calls through [`Library`](crate::Library). Valid while `self` or a clone
    /// lives.
    #[must_use]
    pub fn as_raw(&self) -> DatEpHandle {
        self.inner.handle.0
    }
}

impl EpInner {
    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        lock(&self.attempts)
    }

    /// Called when service point `sp` has reserved the endpoint; the request will be delivered on
    /// `requests`.
    pub(crate) fn on_reserved(&self, sp: SpId, requests: &Evd) {
        *lock(&self.reserved) = Some(Reserved {
            sp,
            requests: requests.clone(),
        });
    }

    /// Called when the service point has been freed and no unread request remains.
    pub(crate) fn on_released(&self) {
        *lock(&self.reserved) = None;
    }

    /// Rejects an unread request, which would keep the endpoint from being freed. The caller drops
    /// the last handle of the endpoint, so the request cannot be accepted any more.
    fn reject_unread_request(&self) {
        let reserved = lock(&self.reserved).take();
        let Some(Reserved { sp, requests }) = reserved else {
            return;
        };
        let waiting = || matches!(self.state(), Ok(EpState::PassiveConnectionPending));
        for _ in 0..REJECT_TRIES {
            if !waiting() || matches!(requests.reject_unread(sp), Ok(true)) {
                return;
            }
            // Another thread waits on the dispatcher, or has just read the request from it.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn state(&self) -> Result<EpState> {
        Ok(self.status()?.state)
    }

    fn status(&self) -> Result<EpStatus> {
        let mut state = 0;
        let (mut recv_idle, mut request_idle) = (DAT_FALSE, DAT_FALSE);
        // SAFETY: the handle is live and the out-pointers writable.
        let code = unsafe {
            let get_status = self.pz.ia().library().dat_ep_get_status;
            get_status(self.handle.0, &mut state, &mut recv_idle, &mut request_idle)
        };
        check("dat_ep_get_status", code)?;
        Ok(EpStatus {
            state: EpState::from_raw(state),
            recv_idle: recv_idle != DAT_FALSE,
            request_idle: request_idle != DAT_FALSE,
        })
    }

    /// Called before an attempt to connect starts, over the consumer's socket if there is one.
    pub(crate) fn on_attempt(&self, socket: Option<PassedSocket>) {
        let mut attempts = self.attempts();
        attempts.endings_due += 1;
        attempts.ownership = socket.map_or(SocketOwnership::None, SocketOwnership::Passed);
    }

    /// Called when the attempt that was just registered did not start. Returns the socket of the
    /// attempt, which the provider did not take.
    pub(crate) fn on_attempt_refused(&self) -> Option<PassedSocket> {
        let mut attempts = self.attempts();
        attempts.endings_due = attempts.endings_due.saturating_sub(1);
        attempts.ownership.take_passed()
    }

    /// Called when a connection event of this endpoint was read.
    pub(crate) fn on_connection_event(&self, kind: ConnectionKind) {
        let mut attempts = self.attempts();
        let is_last = attempts.endings_due <= 1;
        match kind {
            ConnectionKind::Established if is_last => attempts.ownership.on_established(),
            ConnectionKind::Established => {}
            ConnectionKind::PeerRejected
            | ConnectionKind::NonPeerRejected
            | ConnectionKind::AcceptCompletionError
            | ConnectionKind::Disconnected
            | ConnectionKind::Broken
            | ConnectionKind::TimedOut
            | ConnectionKind::Unreachable => {
                if is_last {
                    attempts.ownership.on_not_established();
                }
                attempts.endings_due = attempts.endings_due.saturating_sub(1);
            }
        }
    }
}

impl Drop for EpInner {
    fn drop(&mut self) {
        self.connect.routes().remove(&self.handle.key());
        self.reject_unread_request();
        // SAFETY: service points and requests that refer to the endpoint hold a clone, so none of
        // them exists any more; the handle is used for the last time.
        let code = unsafe { (self.pz.ia().library().dat_ep_free)(self.handle.0) };
        if let Err(error) = check("dat_ep_free", code) {
            tracing::error!(%error, "an endpoint and its parents are leaked");
            self.posted_regions.leak();
            std::mem::forget((self.pz.clone(), self.srq.clone()));
            std::mem::forget((
                self.recv.clone(),
                self.request.clone(),
                self.connect.clone(),
            ));
            return;
        }
        let attempts = self
            .attempts
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = attempts.ownership.take_passed() {
            // The outcome was not read. If the number still refers to the socket, the provider does
            // not close it, so this end does.
            drop(socket.reclaim());
        }
    }
}

/// Number of tries, one millisecond apart, to read from a dispatcher on which another thread waits.
const REJECT_TRIES: u32 = 100;

opaque_debug!(Ep, |it| [id: it.id()]);
