//! Reserved service points: one endpoint waits for one peer.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_abi::*;

use crate::decode::Route;
use crate::ep::{Ep, EpState};
use crate::error::{Result, check};
use crate::evd::Evd;
use crate::handle::{Handle, SpId};

/// A reserved service point, which accepts one request for its endpoint. Dropping the service point
/// releases the endpoint.
pub struct Rsp {
    inner: Arc<RspInner>,
}

pub(crate) struct RspInner {
    handle: Handle,
    ep: Ep,
    evd: Evd,
    /// True once the request has been read. From then on the request holds the endpoint.
    is_request_read: AtomicBool,
}

impl Rsp {
    /// Reserves `ep` for the first peer that connects to `conn_qual`; the request is delivered on
    /// `evd`.
    pub fn create(ep: &Ep, conn_qual: u64, evd: &Evd) -> Result<Self> {
        let ia = evd.ia();
        let mut handle = DAT_HANDLE_NULL;
        // Requests are read only through the dispatcher, so while this thread holds the lock no
        // request is decoded before the route is stored.
        let mut routes = evd.routes();
        // SAFETY: IA, endpoint and dispatcher are live and the out-pointer writable.
        let code = unsafe {
            let create = ia.library().dat_rsp_create;
            create(
                ia.as_raw(),
                conn_qual,
                ep.as_raw(),
                evd.as_raw(),
                &mut handle,
            )
        };
        check("dat_rsp_create", code)?;
        let inner = RspInner {
            handle: Handle(handle),
            ep: ep.clone(),
            evd: evd.clone(),
            is_request_read: AtomicBool::new(false),
        };
        let inner = Arc::new(inner);
        ep.inner.on_reserved(SpId::of(handle), evd);
        routes.insert(inner.handle.key(), Route::Rsp(Arc::downgrade(&inner)));
        drop(routes);
        Ok(Self { inner })
    }

    /// The identity that [`Cr::service_point`](crate::Cr::service_point) returns.
    #[must_use]
    pub fn id(&self) -> SpId {
        SpId::of(self.inner.handle.0)
    }

    /// The endpoint of the service point.
    #[must_use]
    pub fn ep(&self) -> &Ep {
        &self.inner.ep
    }
}

impl RspInner {
    /// Called when the request was read; returns the endpoint for it.
    pub(crate) fn on_request(&self) -> Ep {
        self.is_request_read.store(true, Ordering::Release);
        self.ep.clone()
    }
}

impl Drop for RspInner {
    fn drop(&mut self) {
        // The lock keeps a request from being read between the free and the check of the endpoint.
        let mut routes = self.evd.routes();
        routes.remove(&self.handle.key());
        // SAFETY: the handle is live and used for the last time.
        let code = unsafe { (self.evd.ia().library().dat_rsp_free)(self.handle.0) };
        if let Err(error) = check("dat_rsp_free", code) {
            tracing::warn!(%error, "a reserved service point was not freed");
            std::mem::forget((self.ep.clone(), self.evd.clone()));
            return;
        }
        if *self.is_request_read.get_mut() {
            return;
        }
        match self.ep.state() {
            Ok(EpState::PassiveConnectionPending) => {
                let ep = Arc::downgrade(&self.ep.inner);
                routes.insert(self.handle.key(), Route::Orphan { socket: None, ep });
            }
            _ => self.ep.inner.on_released(),
        }
    }
}

impl fmt::Debug for Rsp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rsp")
            .field("ep", &self.inner.ep)
            .finish_non_exhaustive()
    }
}
