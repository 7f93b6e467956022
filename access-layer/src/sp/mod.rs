//! Service points: receivers of connection requests (DAT 2.0 section 6.5, iWARP extensions 3.1).
//!
//! | Kind | Endpoint | Requests | Ends |
//! |---|---|---|---|
//! | [`Psp`], public | passed to the accept, or created by the provider | any number | when freed |
//! | [`Csp`], common | passed to the accept | any number | when freed |
//! | [`Rsp`], reserved | set at creation | one | when freed |
//! | [`Ssp`], socket | set at creation, or created by the provider | at most one | when freed |
//!
//! A service point stores the handle of its endpoint but does not own the endpoint.

mod csp;
mod listening;
mod psp;
mod rsp;
mod ssp;

pub use csp::Csp;
pub use psp::Psp;
pub use rsp::Rsp;
pub use ssp::Ssp;
pub(crate) use ssp::SspArgs;

use std::sync::Arc;

use dat_abi::*;

use crate::cr::{Cr, NewCr, Pending};
use crate::ep::state::{CrId, SpId};
use crate::ep::{Ep, Held};
use crate::error::{DatError, DatResult};
use crate::evd::{Evd, RequestRefused};
use crate::handle::{self, Handle, Pinned};
use crate::ia::{Child, Ia};
use crate::rnic::{ListenAddress, ListenToken, RequestInfo, Rnic, RnicError};

/// Uses the EVD of a service point, which must belong to its IA and accept connection requests.
fn hold_cr_evd<R: Rnic>(ia: &Arc<Ia<R>>, evd: Arc<Evd<R>>) -> DatResult<Held<Evd<R>>> {
    if !Arc::ptr_eq(evd.ia(), ia) {
        return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_EVD_CR));
    }
    Held::evd(evd, DAT_EVD_CR_FLAG, DAT_INVALID_HANDLE_EVD_CR)
}

/// Refuses an endpoint of another IA, because another IA is another RNIC.
fn check_ep<R: Rnic>(ia: &Arc<Ia<R>>, ep: &Ep<R>) -> DatResult {
    if Arc::ptr_eq(ep.ia(), ia) {
        Ok(())
    } else {
        Err(DatError::invalid_handle(DAT_INVALID_HANDLE_EP))
    }
}

/// Makes the RNIC listen at `port` for the service point `sp`, which ends on failure. A port that
/// another program uses is a qualifier in use.
fn start_listening<R: Rnic, S: Child>(
    sp: &Pinned<S>,
    ia: &Ia<R>,
    port: u16,
) -> DatResult<(R::Listener, u16)> {
    let token = ListenToken(sp.handle().as_token());
    let listening = ia.rnic().listen(&ListenAddress { port }, token);
    listening
        .inspect(|_| ia.counters().bump(DCNT_IA_CM_LISTEN))
        .map_err(|error| {
            S::abandon(sp);
            match error {
                RnicError::Os(os) if os.kind() == std::io::ErrorKind::AddrInUse => {
                    DatError::of(DAT_CONN_QUAL_IN_USE)
                }
                other => other.into(),
            }
        })
}

/// Content of the event for a connection request.
struct Arrival {
    sp: Handle,
    conn_qual: u64,
    /// The request; `None` for an event that is not a connection request.
    cr: Option<Handle>,
    truncated: bool,
}

fn arrival_event<R: Rnic>(ia: &Ia<R>, number: DatEventNumber, arrival: &Arrival) -> DatEvent {
    let mut event = DatEvent::zeroed();
    event.event_number = number;
    event.event_data.cr_arrival_event_data = DatCrArrivalEventData {
        sp_handle: DatSpHandle::new(arrival.sp.as_dat()),
        local_ia_address_ptr: ia.local_address(),
        conn_qual: arrival.conn_qual,
        cr_handle: arrival.cr.map_or(DAT_HANDLE_NULL, Handle::as_dat),
        truncate_flag: DatBoolean::from(arrival.truncated),
    };
    event
}

/// Posts `cr` to the consumer of service point `sp`. If the EVD is full, which has been logged, the
/// peer is refused.
fn post_request<R: Rnic>(
    ia: &Ia<R>,
    evd: &Evd<R>,
    cr: &Cr<R>,
    sp: Handle,
    conn_qual: u64,
    info: &RequestInfo<'_>,
) -> Result<(), RequestRefused> {
    tracing::debug!(?sp, cr = ?cr.handle(), remote = %info.remote, "connection request");
    let arrival = Arrival {
        sp,
        conn_qual,
        cr: Some(cr.handle()),
        truncated: info.truncated,
    };
    let event = arrival_event(ia, DAT_CONNECTION_REQUEST_EVENT, &arrival);
    evd.post_request(event).inspect_err(|RequestRefused| {
        if let Some(cr) = handle::pin_handle::<Cr<R>>(cr.handle()) {
            Cr::abandon(&cr);
        }
    })
}

/// Posts the only request of a service point. If the EVD is full, no request will ever be delivered
/// for this service point, so an asynchronous event reports the reason.
fn post_only_request<R: Rnic>(
    ia: &Ia<R>,
    evd: &Evd<R>,
    cr: &Cr<R>,
    sp: Handle,
    conn_qual: u64,
    info: &RequestInfo<'_>,
) {
    if post_request(ia, evd, cr, sp, conn_qual, info) == Err(RequestRefused) {
        evd.report_full();
    }
}

/// Makes the request of a service point `sp` that has reserved its endpoint.
fn make_reserved_cr<R: Rnic>(
    ia: &Arc<Ia<R>>,
    sp: Handle,
    ep: Handle,
    pending: Pending<R>,
    info: &RequestInfo<'_>,
) -> DatResult<Arc<Cr<R>>> {
    let reservation = ia.reserve()?;
    let cr = CrId(reservation.handle().as_token());
    let reserved = handle::pin_handle::<Ep<R>>(ep);
    let reserved = reserved.ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_EP))?;
    reserved.request(SpId(sp.as_token()), cr)?;
    let ep = Some(ep);
    Cr::install(ia, reservation, NewCr { pending, ep }, info)
        .inspect_err(|_| Ep::reject(&reserved, cr))
}

/// Logs why a request was not delivered to the consumer. To the peer the service seems not to
/// exist.
fn log_refusal(sp: Handle, error: DatError) {
    tracing::warn!(?sp, %error, "connection request dropped");
}

#[cfg(test)]
mod tests;
