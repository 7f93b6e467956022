//! Public service point: any number of connection requests (DAT 2.0 `dat_psp_*`).

use std::sync::{Arc, OnceLock};

use dat_abi::*;

use super::listening::Listening;
use super::{hold_cr_evd, log_refusal, post_request, start_listening};
use crate::addr::port_of;
use crate::cr::{Cr, NewCr, Pending};
use crate::ep::Ep;
use crate::ep::state::CrId;
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::rnic::{RequestInfo, Rnic};

/// A public service point.
pub struct Psp<R: Rnic> {
    handle: Handle,
    /// The connection qualifier. It is set after the creation if the RNIC chooses it.
    conn_qual: OnceLock<u64>,
    flags: DatPspFlags,
    listening: Listening<R>,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Psp<R> {
    handle,
    conn_qual,
    flags
});

impl<R: Rnic> Object for Psp<R> {
    const KIND: Kind = Kind::Psp;
}

impl<R: Rnic> Psp<R> {
    /// Implements `dat_psp_create`.
    pub fn create(
        ia: &Arc<Ia<R>>,
        conn_qual: DatConnQual,
        evd: Arc<Evd<R>>,
        flags: DatPspFlags,
    ) -> DatResult<Handle> {
        // For the RNIC, port 0 means "any". A peer could not connect to this qualifier.
        if port_of(conn_qual) == 0 {
            return Err(DatError::invalid_arg(2));
        }
        let psp = Self::install(ia, Some(conn_qual), evd, flags)?;
        psp.listen(port_of(conn_qual))?;
        ia.counters().bump(DCNT_IA_PSP_CREATE);
        Ok(psp.handle)
    }

    /// Implements `dat_psp_create_any`: the RNIC chooses the qualifier.
    pub fn create_any(
        ia: &Arc<Ia<R>>,
        evd: Arc<Evd<R>>,
        flags: DatPspFlags,
    ) -> DatResult<(Handle, DatConnQual)> {
        let psp = Self::install(ia, None, evd, flags)?;
        let port = psp.listen(0).map_err(|error| {
            if error.code().is(DAT_CONN_QUAL_IN_USE) {
                DatError::of(DAT_CONN_QUAL_UNAVAILABLE)
            } else {
                error
            }
        })?;
        ia.counters().bump(DCNT_IA_PSP_CREATE_ANY);
        let conn_qual = *psp.conn_qual.get_or_init(|| u64::from(port));
        Ok((psp.handle, conn_qual))
    }

    /// Publishes the object before it listens, because requests refer to the object by its handle.
    fn install(
        ia: &Arc<Ia<R>>,
        conn_qual: Option<u64>,
        evd: Arc<Evd<R>>,
        flags: DatPspFlags,
    ) -> DatResult<Pinned<Self>> {
        let evd = hold_cr_evd(ia, evd)?;
        if flags != DAT_PSP_CONSUMER_FLAG && flags != DAT_PSP_PROVIDER_FLAG {
            return Err(DatError::invalid_arg(4));
        }
        let reservation = ia.reserve()?;
        let psp = Arc::new(Self {
            handle: reservation.handle(),
            conn_qual: conn_qual.map_or_else(OnceLock::new, OnceLock::from),
            flags,
            listening: Listening::new(evd),
            ia: ia.clone(),
        });
        let handle = ia.install(reservation, psp)?;
        handle::pin_handle(handle).ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_IA))
    }

    /// Implements `dat_psp_query`.
    pub fn query(&self) -> DatPspParam {
        DatPspParam {
            ia_handle: self.ia.consumer_handle(),
            conn_qual: self.conn_qual.get().copied().unwrap_or(0),
            evd_handle: self.listening.evd_handle(),
            psp_flags: self.flags,
        }
    }

    /// Implements `dat_psp_free`. Requests that were delivered stay valid.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        let ended = Self::abandon(this).then_some(());
        ended.ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_PSP))
    }

    /// Called when a peer requests a connection.
    pub(crate) fn on_request(&self, request: R::ConnReq, info: &RequestInfo<'_>) {
        let pending = Pending {
            request,
            socket: None,
        };
        if let Err(error) = self.take_over(pending, info) {
            log_refusal(self.handle, error);
        }
    }

    /// Delivers a request of a peer, or a request that another service point hands off. On failure
    /// the peer is refused.
    fn take_over(&self, pending: Pending<R>, info: &RequestInfo<'_>) -> DatResult {
        let freed = DatError::invalid_handle(DAT_INVALID_HANDLE_PSP);
        let evd = self.listening.evd().ok_or(freed)?;
        // The RNIC may report its chosen qualifier here before `create_any` has stored it.
        let conn_qual = *self.conn_qual.get_or_init(|| u64::from(info.local.port()));
        let cr = self.make_cr(pending, info)?;
        // A refusal needs no action: the EVD may have room for a later request.
        let _ = post_request(&self.ia, &evd, &cr, self.handle, conn_qual, info);
        Ok(())
    }

    /// Implements `dat_cr_handoff`: hands the request to the public service point of `conn_qual` on
    /// the same IA, or else to the process that listens for this qualifier.
    pub(crate) fn handoff(cr: &Pinned<Cr<R>>, conn_qual: DatConnQual) -> DatResult {
        match cr.ia().find_child(|psp: &Self| psp.serves(conn_qual)) {
            Some(target) => Cr::hand_over(cr, |pending, info| target.take_over(pending, info)),
            None => Cr::hand_to_process(cr, port_of(conn_qual)),
        }
    }

    /// Returns true if the service point has this qualifier.
    fn serves(&self, conn_qual: DatConnQual) -> bool {
        self.conn_qual.get() == Some(&conn_qual)
    }

    fn make_cr(&self, pending: Pending<R>, info: &RequestInfo<'_>) -> DatResult<Arc<Cr<R>>> {
        let reservation = self.ia.reserve()?;
        let ep = if self.flags == DAT_PSP_PROVIDER_FLAG {
            let cr = CrId(reservation.handle().as_token());
            Some(Ep::create_tentative(&self.ia, cr)?)
        } else {
            None
        };
        Cr::install(&self.ia, reservation, NewCr { pending, ep }, info)
            .inspect_err(|_| abandon_ep::<R>(ep))
    }
}

fn abandon_ep<R: Rnic>(ep: Option<Handle>) {
    if let Some(ep) = ep.and_then(handle::pin_handle::<Ep<R>>) {
        Ep::abandon(&ep);
    }
}

impl<R: Rnic> Pinned<Psp<R>> {
    /// Starts listening, or ends the service point on failure.
    fn listen(&self, port: u16) -> DatResult<u16> {
        let (listener, port) = start_listening(self, &self.ia, port)?;
        self.listening.store(listener);
        Ok(port)
    }
}

impl<R: Rnic> Child for Psp<R> {
    fn on_retired(this: &Pinned<Self>) {
        this.listening.end();
        this.ia.disown(Kind::Psp, this.handle);
    }
}
