//! Reserved service point: one connection request for one endpoint (DAT 2.0 `dat_rsp_*`).

use std::sync::{Arc, Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use super::{
    check_ep, hold_cr_evd, log_refusal, make_reserved_cr, post_only_request, start_listening,
};
use crate::addr::port_of;
use crate::cr::{Cr, Pending};
use crate::ep::state::SpId;
use crate::ep::{Ep, Held};
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::rnic::{RequestInfo, Rnic};

/// A reserved service point.
pub struct Rsp<R: Rnic> {
    handle: Handle,
    conn_qual: u64,
    ep: Handle,
    inner: Mutex<Inner<R>>,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Rsp<R> {
    handle,
    conn_qual,
    ep
});

struct Inner<R: Rnic> {
    service: Service<R::Listener>,
    /// `None` once freed.
    evd: Option<Held<Evd<R>>>,
}

/// State of the one request; `L` is the listener. The `on_*` methods are the only writers.
#[derive(Debug, PartialEq, Eq)]
enum Service<L> {
    /// The RNIC is being asked to listen, and may already report the request.
    Opening,
    /// The request has not been received.
    Open(L),
    /// The request was received, or the service point was freed.
    Closed,
}

impl<L> Service<L> {
    /// Called when the RNIC listens. Returns the listener if it is no longer needed.
    fn on_listening(&mut self, listener: L) -> Option<L> {
        match self {
            Self::Opening => {
                *self = Self::Open(listener);
                None
            }
            Self::Open(_) | Self::Closed => Some(listener),
        }
    }

    /// Called for a request. Returns `true` for the first request, and the listener, which the
    /// caller drops.
    fn on_request(&mut self) -> (bool, Option<L>) {
        let is_first = !matches!(self, Self::Closed);
        (is_first, self.on_end())
    }

    /// Called when the service point is freed.
    fn on_end(&mut self) -> Option<L> {
        match std::mem::replace(self, Self::Closed) {
            Self::Open(listener) => Some(listener),
            Self::Opening | Self::Closed => None,
        }
    }
}

impl<R: Rnic> Object for Rsp<R> {
    const KIND: Kind = Kind::Rsp;
}

impl<R: Rnic> Rsp<R> {
    /// Implements `dat_rsp_create`: reserves `ep` and listens.
    pub fn create(
        ia: &Arc<Ia<R>>,
        conn_qual: DatConnQual,
        ep: &Pinned<Ep<R>>,
        evd: Arc<Evd<R>>,
    ) -> DatResult<Handle> {
        if port_of(conn_qual) == 0 {
            return Err(DatError::invalid_arg(2));
        }
        check_ep(ia, ep)?;
        let evd = hold_cr_evd(ia, evd)?;
        let reservation = ia.reserve()?;
        let sp = SpId(reservation.handle().as_token());
        ep.reserve(sp)?;
        let rsp = Arc::new(Self {
            handle: reservation.handle(),
            conn_qual,
            ep: ep.handle(),
            inner: Mutex::new(Inner {
                service: Service::Opening,
                evd: Some(evd),
            }),
            ia: ia.clone(),
        });
        let rsp = ia
            .install(reservation, rsp)
            .inspect_err(|_| Ep::release(ep, sp))
            .map(handle::pin_handle::<Self>)?
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_IA))?;
        rsp.listen(port_of(conn_qual))?;
        Ok(rsp.handle)
    }

    /// Implements `dat_rsp_query`.
    pub fn query(&self) -> DatRspParam {
        let inner = self.lock();
        DatRspParam {
            ia_handle: self.ia.consumer_handle(),
            conn_qual: self.conn_qual,
            evd_handle: inner
                .evd
                .as_ref()
                .map_or(DAT_HANDLE_NULL, |evd| evd.object().handle().as_dat()),
            ep_handle: self.ep.as_dat(),
        }
    }

    /// Implements `dat_rsp_free`, before, during or after the arrival of the request. An endpoint
    /// that is still reserved returns to the consumer.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        let ended = Self::abandon(this).then_some(());
        ended.ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_RSP))
    }

    /// Called when a peer requests a connection. The first request is delivered; all others are
    /// refused.
    pub(crate) fn on_request(&self, request: R::ConnReq, info: &RequestInfo<'_>) {
        let ((is_first, listener), evd) = {
            let mut inner = self.lock();
            let Some(evd) = inner.evd.as_ref().map(|evd| evd.object().clone()) else {
                return;
            };
            (inner.service.on_request(), evd)
        };
        drop(listener);
        if !is_first {
            return;
        }
        match self.make_cr(request, info) {
            Ok(cr) => post_only_request(&self.ia, &evd, &cr, self.handle, self.conn_qual, info),
            Err(error) => log_refusal(self.handle, error),
        }
    }

    fn make_cr(&self, request: R::ConnReq, info: &RequestInfo<'_>) -> DatResult<Arc<Cr<R>>> {
        let pending = Pending {
            request,
            socket: None,
        };
        make_reserved_cr(&self.ia, self.handle, self.ep, pending, info)
    }

    fn lock(&self) -> MutexGuard<'_, Inner<R>> {
        self.inner.lock().ignore_poison()
    }
}

impl<R: Rnic> Pinned<Rsp<R>> {
    /// Starts listening, or ends the service point on failure.
    fn listen(&self, port: u16) -> DatResult {
        let (listener, _) = start_listening(self, &self.ia, port)?;
        // If the request was received already, the listener is dropped at once.
        let late = self.lock().service.on_listening(listener);
        drop(late);
        Ok(())
    }
}

impl<R: Rnic> Child for Rsp<R> {
    fn on_retired(this: &Pinned<Self>) {
        let ended = {
            let mut inner = this.lock();
            (inner.service.on_end(), inner.evd.take())
        };
        drop(ended);
        if let Some(ep) = handle::pin_handle::<Ep<R>>(this.ep) {
            Ep::release(&ep, SpId(this.handle.as_token()));
        }
        this.ia.disown(Kind::Rsp, this.handle);
    }
}

#[cfg(test)]
mod tests {
    use super::Service::{Closed, Open, Opening};
    use super::*;

    type Make = fn() -> Service<u32>;

    #[test]
    fn every_event_in_every_state() {
        let rows: [(Make, _, _, _); 3] = [
            // (state, state after listening and result, results of a request and of the end)
            (|| Opening, (None, Open(2)), (true, None), None),
            (|| Open(1), (Some(2), Open(1)), (true, Some(1)), Some(1)),
            (|| Closed, (Some(2), Closed), (false, None), None),
        ];
        for (state, listening, request, end) in rows {
            let mut service = state();
            let after = (service.on_listening(2), service);
            assert_eq!(after, listening, "{:?}", state());
            let mut service = state();
            let after = (service.on_request(), service);
            assert_eq!(after, (request, Closed), "{:?}", state());
            let mut service = state();
            assert_eq!((service.on_end(), service), (end, Closed), "{:?}", state());
        }
    }
}
