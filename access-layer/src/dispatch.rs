//! Dispatch of the RNIC's upcalls to the objects that they concern.
//!
//! Tokens are handles. A token that is not the handle of a live object of the right kind belongs to
//! a freed object. Its late event has no effect, and its request is dropped, which refuses the
//! peer.

use std::sync::Arc;

use dat_abi::{
    DAT_ASYNC_ERROR_EP_BROKEN, DAT_EP_TRANSFER_TO_ERROR, DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT,
    DCNT_IA_CM_REQ_RX,
};

use crate::ep::Ep;
use crate::evd::Evd;
use crate::handle::{self, Handle, Kind, Object, Pinned};
use crate::ia::Ia;
use crate::rnic::{
    AsyncEvent, ConnectionEvent, CqToken, EventUpcall, ListenToken, QpToken, RequestInfo, Rnic,
    Upcall,
};
use crate::sp::{Csp, Psp, Rsp, Ssp};
use crate::srq::Srq;

/// Receiver of the upcalls of one IA's RNIC.
#[derive(Debug)]
pub struct Dispatch<R> {
    ia: Handle,
    rnic: std::marker::PhantomData<fn() -> R>,
}

impl<R: Rnic> Dispatch<R> {
    /// Creates the receiver for the IA with the handle `ia`. Events before the IA is published are
    /// dropped.
    #[expect(clippy::new_ret_no_self, reason = "the RNIC receives a trait object")]
    pub(crate) fn new(ia: Handle) -> Arc<dyn Upcall<R>> {
        Arc::new(Self {
            ia,
            rnic: std::marker::PhantomData,
        })
    }
}

fn pinned<T: Object>(token: u64) -> Option<Pinned<T>> {
    Handle::from_token(token).and_then(handle::pin_handle::<T>)
}

impl<R: Rnic> EventUpcall for Dispatch<R> {
    fn cq_ready(&self, cq: CqToken) {
        if let Some(evd) = pinned::<Evd<R>>(cq.0) {
            evd.on_cq_ready();
        }
    }

    fn connection(&self, qp: QpToken, event: &ConnectionEvent) {
        if let Some(ep) = pinned::<Ep<R>>(qp.0) {
            ep.on_connection(event);
        }
    }

    fn socket_down(&self, armed: ListenToken) {
        if let Some(ssp) = pinned::<Ssp<R>>(armed.0) {
            ssp.on_socket_down();
        }
    }

    fn async_event(&self, event: AsyncEvent) {
        match event {
            AsyncEvent::CqOverflow(cq) => {
                if let Some(evd) = pinned::<Evd<R>>(cq.0) {
                    evd.on_cq_overflow();
                }
            }
            AsyncEvent::LastWqeReached(qp) => {
                // OFA's providers use this event number, and dtestsrq waits for it.
                if let Some(ep) = pinned::<Ep<R>>(qp.0) {
                    ep.ia().post_async(
                        DAT_ASYNC_ERROR_EP_BROKEN,
                        ep.handle().as_dat(),
                        DAT_EP_TRANSFER_TO_ERROR,
                    );
                }
            }
            AsyncEvent::RecvWatermark(qp) => {
                // There is no separate event number: the reason distinguishes this event from a
                // broken endpoint.
                if let Some(ep) = pinned::<Ep<R>>(qp.0) {
                    ep.ia().post_async(
                        DAT_ASYNC_ERROR_EP_BROKEN,
                        ep.handle().as_dat(),
                        DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT,
                    );
                }
            }
            AsyncEvent::SrqLimit(srq) => {
                if let Some(srq) = pinned::<Srq<R>>(srq.0) {
                    srq.on_limit();
                }
            }
            AsyncEvent::SrqFailed(srq) => {
                if let Some(srq) = pinned::<Srq<R>>(srq.0) {
                    srq.on_failed();
                }
            }
            // The event of the connection reports the end.
            AsyncEvent::AccessViolation(_) | AsyncEvent::InvalidRequest(_) => {}
            AsyncEvent::DeviceFatal => {
                if let Some(ia) = handle::pin_handle::<Ia<R>>(self.ia) {
                    ia.on_device_fatal();
                }
            }
        }
    }
}

impl<R: Rnic> Upcall<R> for Dispatch<R> {
    fn connection_request(
        &self,
        listener: ListenToken,
        request: R::ConnReq,
        info: &RequestInfo<'_>,
    ) {
        if let Some(ia) = handle::pin_handle::<Ia<R>>(self.ia) {
            ia.counters().bump(DCNT_IA_CM_REQ_RX);
        }
        let kind = Handle::from_token(listener.0).and_then(|sp| handle::kind_of(sp.as_dat()));
        match kind {
            Some(Kind::Psp) => {
                if let Some(psp) = pinned::<Psp<R>>(listener.0) {
                    psp.on_request(request, info);
                }
            }
            Some(Kind::Csp) => {
                if let Some(csp) = pinned::<Csp<R>>(listener.0) {
                    csp.on_request(request, info);
                }
            }
            Some(Kind::Rsp) => {
                if let Some(rsp) = pinned::<Rsp<R>>(listener.0) {
                    rsp.on_request(request, info);
                }
            }
            Some(Kind::Ssp) => {
                if let Some(ssp) = pinned::<Ssp<R>>(listener.0) {
                    ssp.on_request(request, info);
                }
            }
            _ => tracing::debug!(?listener, "request for a service point that was freed"),
        }
    }
}
