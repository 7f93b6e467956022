//! Events that the library takes itself, on a thread of DAT: asynchronous events, which it sorts
//! into the affiliated and the unaffiliated stream, and requests on sockets that are converted,
//! which it accepts.
//!
//! One CNO of an adapter has both EVDs, and an agent. It exists from the first SEVD for
//! asynchronous events or the first socket on, so that programs without them have no such thread.

use std::sync::{Arc, MutexGuard};

use dat_abi::*;
use host::locks::lock;

use crate::abi::*;
use crate::handle::{self, Kind};
use crate::ia::{Conversion, Ia, Internal};
use crate::queue::{self, Made};
use crate::status::*;

/// The room for requests on sockets, which are accepted at once.
const REQUESTS_LEN: DatCount = 256;

fn pointer(number: usize) -> DatHandle {
    std::ptr::with_exposed_provenance_mut(number)
}

fn agent_of(ia: Handle) -> DatOsWaitProxyAgent {
    DatOsWaitProxyAgent {
        instance_data: std::ptr::without_provenance_mut(ia.0 as usize),
        proxy_agent_func: Some(agent),
    }
}

/// Called by DAT when one of the EVDs has an event. The data is the adapter's handle, which is
/// looked up and never dereferenced.
unsafe extern "C" fn agent(ia: DatPvoid, _evd: DatEvdHandle) {
    let ia = Handle(ia.addr() as u64);
    let _ = answer(|| {
        let (_, object) = handle::find::<Ia>(ia)?;
        let cno = lock(&object.internal).cno.ok_or(FAULT)?;
        // Set again before the queues are read: an event after that makes another call due.
        call!(dat_cno_modify_agent(pointer(cno), agent_of(ia)))?;
        take_triggers(pointer(cno));
        drain(ia, &object);
        Ok(())
    });
}

/// Takes all triggers of a CNO.
pub(crate) fn take_triggers(cno: DatCnoHandle) {
    let mut evd = DAT_HANDLE_NULL;
    while call!(dat_cno_wait(cno, 0, &raw mut evd)) == Ok(()) {}
}

/// Makes the CNO, unless it exists.
fn start<'a>(ia: Handle, object: &'a Arc<Ia>) -> Outcome<MutexGuard<'a, Internal>> {
    let slot = handle::slot::<Ia>(ia)?;
    let mut internal = lock(&object.internal);
    if internal.cno.is_none() {
        let mut cno = DAT_HANDLE_NULL;
        call!(dat_cno_create(slot.dat(), agent_of(ia), &raw mut cno))?;
        call!(dat_evd_modify_cno(pointer(object.async_evd), cno)).inspect_err(|_| {
            let _ = call!(dat_cno_free(cno));
        })?;
        internal.cno = Some(cno.expose_provenance());
    }
    Ok(internal)
}

/// Makes `evd` the SEVD of an asynchronous stream. An adapter has one for each.
pub(crate) fn attach(ia: Handle, stream: EventNumber, evd: Handle) -> Outcome {
    let (_, object) = handle::find::<Ia>(ia)?;
    let mut internal = start(ia, &object)?;
    let (place, exists) = match stream {
        AFF_STREAM => (&mut internal.affiliated, ASYNC_AFF_EVD_EXISTS),
        _ => (&mut internal.unaffiliated, ASYNC_UNAFF_EVD_EXISTS),
    };
    if !place.is_null() {
        return Err(exists);
    }
    *place = evd;
    Ok(())
}

/// Ends [`attach`].
pub(crate) fn detach(ia: Handle, evd: Handle) {
    if let Ok((_, object)) = handle::find::<Ia>(ia) {
        let mut guard = lock(&object.internal);
        let internal = &mut *guard;
        for place in [&mut internal.affiliated, &mut internal.unaffiliated] {
            if *place == evd {
                *place = Handle::NULL;
            }
        }
    }
}

/// Prepares for requests on sockets. Returns the EVD that receives them.
pub(crate) fn requests(ia: Handle) -> Outcome<DatEvdHandle> {
    let (slot, object) = handle::find::<Ia>(ia)?;
    let mut internal = start(ia, &object)?;
    if internal.requests.is_none() {
        let cno = internal.cno.map_or(DAT_HANDLE_NULL, pointer);
        let mut evd = DAT_HANDLE_NULL;
        let flags = DAT_EVD_CR_FLAG;
        call!(dat_evd_create(
            slot.dat(),
            REQUESTS_LEN,
            cno,
            flags,
            &raw mut evd
        ))?;
        internal.requests = Some(evd.expose_provenance());
    }
    Ok(internal.requests.map_or(DAT_HANDLE_NULL, pointer))
}

/// Makes a service point and records the socket, before the agent can see the peer's request.
pub(crate) fn convert(
    ia: Handle,
    ep: Handle,
    connect_sevd: Handle,
    make: impl FnOnce() -> Outcome<DatHandle>,
) -> Outcome {
    let (_, object) = handle::find::<Ia>(ia)?;
    let mut internal = lock(&object.internal);
    let ssp = make()?;
    internal.conversions.push(Conversion {
        ssp: ssp.expose_provenance(),
        ep,
        connect_sevd,
    });
    Ok(())
}

/// Ends the wait for the peer's request, if the endpoint has one. The socket belongs to the
/// program again. Returns true if there was one.
pub(crate) fn abandon(ia: Handle, ep: Handle) -> bool {
    let Ok((_, object)) = handle::find::<Ia>(ia) else {
        return false;
    };
    let mut internal = lock(&object.internal);
    let found = internal
        .conversions
        .iter()
        .position(|waiting| waiting.ep == ep);
    found.is_some_and(|index| {
        free_ssp(internal.conversions.swap_remove(index).ssp);
        true
    })
}

fn free_ssp(ssp: usize) {
    let _ = call!(dat_extension_op(pointer(ssp), DAT_IW_SSP_FREE_OP));
}

/// Takes the events of both EVDs.
fn drain(ia: Handle, object: &Ia) {
    let mut internal = lock(&object.internal);
    let mut event = DatEvent::zeroed();
    while call!(dat_evd_dequeue(pointer(object.async_evd), &raw mut event)) == Ok(()) {
        sort(&internal, &event);
    }
    let Some(requests) = internal.requests.map(pointer) else {
        return;
    };
    while call!(dat_evd_dequeue(requests, &raw mut event)) == Ok(()) {
        // SAFETY: requests and lost sockets have this member.
        let arrival = unsafe { event.event_data.cr_arrival_event_data };
        let ssp = arrival.sp_handle.as_handle().addr();
        let found = internal
            .conversions
            .iter()
            .position(|waiting| waiting.ssp == ssp);
        let waiting = found.map(|index| internal.conversions.swap_remove(index));
        let accepted = match event.event_number {
            DAT_CONNECTION_REQUEST_EVENT => accept(ia, &arrival, waiting),
            _ => Err(ABORT),
        };
        let Some(waiting) = waiting else { continue };
        free_ssp(waiting.ssp);
        if accepted.is_err() {
            queue::post(waiting.connect_sevd, Made::NotConverted { ep: waiting.ep });
        }
    }
}

/// Accepts the request on a socket. One whose endpoint is gone is rejected.
fn accept(ia: Handle, arrival: &DatCrArrivalEventData, waiting: Option<Conversion>) -> Outcome {
    let cr = arrival.cr_handle;
    let accepted = match waiting {
        Some(_) => call!(dat_cr_accept(cr, DAT_HANDLE_NULL, 0, std::ptr::null())),
        None => Err(ABORT),
    };
    accepted.inspect_err(|status| {
        tracing::warn!(?ia, ?status, "the request on a socket was not accepted");
        let _ = call!(dat_cr_reject(cr, 0, std::ptr::null()));
    })
}

/// Posts an asynchronous event to the SEVD of its stream. Without one the event is dropped, as the
/// program has chosen.
fn sort(internal: &Internal, event: &DatEvent) {
    if event.event_number == DAT_ASYNC_ERROR_IA_CATASTROPHIC {
        let number = SPIGOT_OFFLINE;
        return queue::post(internal.unaffiliated, Made::Unaffiliated { number });
    }
    // SAFETY: asynchronous events have this member.
    let data = unsafe { event.event_data.asynch_error_event_data };
    let cause = queue::named(data.dat_handle);
    let Some((slot, kind)) = handle::any(cause) else {
        return;
    };
    let has_srq = kind == Kind::Ep as u8 && slot.key() != 0;
    if let Some(number) = affiliated(event.event_number, kind, data.reason, has_srq) {
        queue::post(internal.affiliated, Made::Affiliated { number, cause });
    }
}

/// The event of the affiliated stream for an event of DAT that concerns an object of a kind.
fn affiliated(
    number: DatEventNumber,
    kind: u8,
    reason: DatAsyncErrorReason,
    has_srq: bool,
) -> Option<EventNumber> {
    const EVD: u8 = Kind::Evd as u8;
    const EP: u8 = Kind::Ep as u8;
    const SRQ: u8 = Kind::Srq as u8;
    match (number, kind, reason) {
        (DAT_ASYNC_ERROR_EVD_OVERFLOW, EVD, _) => Some(AFF_SEVD_ENQUEUE_FAILURE),
        (DAT_ASYNC_ERROR_EP_BROKEN, EP, DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT) => {
            Some(AFF_EP_SOFT_HI_WATERMARK)
        }
        // The last receive of an endpoint with a shared queue, which IT-API does not report.
        (DAT_ASYNC_ERROR_EP_BROKEN, EP, DAT_EP_TRANSFER_TO_ERROR) if has_srq => None,
        (DAT_ASYNC_ERROR_EP_BROKEN, EP, _) => Some(AFF_EP_FAILURE),
        (DAT_ASYNC_ERROR_EP_BROKEN, SRQ, DAT_SRQ_LOW_WATERMARK_EVENT) => {
            Some(AFF_SRQ_LOW_WATERMARK)
        }
        (DAT_ASYNC_ERROR_EP_BROKEN, SRQ, _) => Some(AFF_SRQ_CATASTROPHIC),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_dat_are_sorted_by_object_and_reason() {
        let of = |kind, reason, has_srq| {
            affiliated(DAT_ASYNC_ERROR_EP_BROKEN, kind as u8, reason, has_srq)
        };
        assert_eq!(of(Kind::Srq, 2, false), Some(AFF_SRQ_LOW_WATERMARK));
        assert_eq!(of(Kind::Srq, 0, false), Some(AFF_SRQ_CATASTROPHIC));
        assert_eq!(of(Kind::Ep, 2, true), Some(AFF_EP_SOFT_HI_WATERMARK));
        assert_eq!(of(Kind::Ep, 0, true), None);
        assert_eq!(of(Kind::Ep, 0, false), Some(AFF_EP_FAILURE));
        assert_eq!(of(Kind::Pz, 0, false), None);
    }
}
