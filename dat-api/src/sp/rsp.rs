//! Reserved service points: one endpoint waits for one peer.

use std::sync::Arc;

use dat_abi::*;

use crate::connection::{Ep, EpState, Evd, Reservation, Route};
use crate::error::{Result, check};
use crate::handle::{Handle, SpId};

/// A reserved service point, which accepts one request for its endpoint. Dropping the service point
/// releases the endpoint.
pub struct Rsp {
    handle: Handle,
    evd: Evd,
    reservation: Arc<Reservation>,
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
        let reservation = Arc::new(Reservation::new(ep, SpId::of(handle), evd, None));
        let handle = Handle(handle);
        let route = Route::Reservation(Arc::downgrade(&reservation));
        routes.insert(handle.key(), route);
        drop(routes);
        Ok(Self {
            handle,
            evd: evd.clone(),
            reservation,
        })
    }

    /// The identity that [`Cr::service_point`](crate::Cr::service_point) returns.
    #[must_use]
    pub fn id(&self) -> SpId {
        SpId::of(self.handle.0)
    }

    /// The endpoint of the service point.
    #[must_use]
    pub fn ep(&self) -> &Ep {
        self.reservation.ep()
    }
}

impl Drop for Rsp {
    fn drop(&mut self) {
        // The lock keeps a request from being read between the free and the check of the endpoint.
        let mut routes = self.evd.routes();
        routes.remove(&self.handle.key());
        // SAFETY: the handle is live and used for the last time.
        let code = unsafe { (self.evd.ia().library().dat_rsp_free)(self.handle.0) };
        if let Err(error) = check("dat_rsp_free", code) {
            tracing::warn!(%error, "a reserved service point was not freed");
            std::mem::forget((self.ep().clone(), self.evd.clone()));
            return;
        }
        if self.reservation.is_request_read() {
            return;
        }
        match self.ep().state() {
            Ok(EpState::PassiveConnectionPending) => {
                let ep = Arc::downgrade(&self.ep().inner);
                routes.insert(self.handle.key(), Route::Orphan { socket: None, ep });
            }
            _ => self.ep().inner.on_released(),
        }
    }
}

opaque_debug!(Rsp, |it| [ep: *it.ep()]);
