//! Translation of `DAT_EVENT` to [`Event`]. Only this module reads the union of an event.

use dat_abi::*;

use super::{Cr, Ep, Evd, Event, Route};
use crate::event::{
    AsyncError, AsyncKind, BindCompletion, ConnectionEvent, ConnectionKind, DtoCompletion,
};
use crate::handle::{EpId, ObjectId, SpId};
use crate::lock::lock;
use crate::private_data::copy_private_data;

/// Translates an event and notifies the objects concerned.
///
/// # Safety
///
/// `raw` was filled by the provider for the dispatcher `evd`, and is translated once.
pub(super) unsafe fn decode(evd: &Evd, raw: &DatEvent) -> Event {
    let number = raw.event_number;
    let data = &raw.event_data;
    if number == DAT_DTO_COMPLETION_EVENT {
        // SAFETY: the event number selects the member of the union that the provider filled.
        return Event::Dto(DtoCompletion::from_raw(unsafe {
            &data.dto_completion_event_data
        }));
    }
    if number == DAT_IB_DTO_EVENT {
        // SAFETY: the event number selects the member.
        let dto = unsafe { &data.dto_completion_event_data };
        return Event::Dto(DtoCompletion::from_extension(
            dto,
            &raw.event_extension_data,
        ));
    }
    if let Some(kind) = ConnectionKind::from_raw(number) {
        // SAFETY: the event number selects the member.
        return unsafe { decode_connection(evd, kind, &data.connect_event_data) };
    }
    if let Some(kind) = AsyncKind::from_raw(number) {
        // SAFETY: the event number selects the member.
        let error = unsafe { &data.asynch_error_event_data };
        let object = ObjectId::of(error.dat_handle);
        return Event::Async(AsyncError {
            kind,
            object,
            reason: error.reason,
        });
    }
    match number {
        DAT_RMR_BIND_COMPLETION_EVENT => {
            // SAFETY: the event number selects the member.
            Event::Bind(decode_bind(evd, unsafe { &data.rmr_completion_event_data }))
        }
        // SAFETY: the event number selects the member. The request in it is new, because an event
        // is translated once.
        DAT_CONNECTION_REQUEST_EVENT => unsafe {
            Event::ConnectionRequest(decode_request(evd, &data.cr_arrival_event_data))
        },
        DAT_CONNECTION_EVENT_SOCKET_DOWN => {
            // SAFETY: the event number selects the member.
            decode_socket_down(evd, unsafe { &data.cr_arrival_event_data })
        }
        DAT_SOFTWARE_EVENT => {
            // SAFETY: the event number selects the member.
            Event::Software(unsafe { data.software_event_data.pointer }.addr())
        }
        _ => Event::Other {
            number,
            data: raw.event_extension_data,
        },
    }
}

fn decode_bind(evd: &Evd, raw: &DatRmrBindCompletionEventData) -> BindCompletion {
    let bind = BindCompletion::from_raw(raw);
    let bindings = match evd.routes().get(&raw.rmr_handle.addr()) {
        Some(Route::Bindings(weak)) => weak.upgrade(),
        _ => None,
    };
    if let Some(bindings) = bindings {
        lock(&bindings).on_completion(bind.status.is_success());
    }
    bind
}

/// # Safety
///
/// `raw` was filled by the provider and its private data is null or readable for its size.
unsafe fn decode_connection(
    evd: &Evd,
    kind: ConnectionKind,
    raw: &DatConnectionEventData,
) -> Event {
    let ep = EpId::of(raw.ep_handle);
    // SAFETY: the caller guarantees that the private data is null or readable for its size.
    let private_data = unsafe { copy_private_data(raw.private_data, raw.private_data_size) };
    let route = match evd.routes().get(&raw.ep_handle.addr()) {
        Some(Route::Ep(weak)) => weak.upgrade(),
        _ => None,
    };
    if let Some(inner) = route {
        inner.on_connection_event(kind);
    }
    Event::Connection(ConnectionEvent {
        ep,
        kind,
        private_data,
    })
}

/// # Safety
///
/// `raw` was filled by the provider and its request has not been wrapped before.
unsafe fn decode_request(evd: &Evd, raw: &DatCrArrivalEventData) -> Cr {
    let key = raw.sp_handle.as_handle().addr();
    // The lock is held until the reservation has changed, because the service point checks under
    // the lock whether the request was read. The service point holds the reservation meanwhile.
    let mut routes = evd.routes();
    let (reserved, orphan) = match routes.get(&key) {
        Some(Route::Reservation(weak)) => (
            weak.upgrade().map(|reservation| reservation.on_request()),
            None,
        ),
        Some(Route::Orphan { .. }) => (None, routes.remove(&key)),
        _ => (None, None),
    };
    drop(routes);
    let (ep, socket) = match (reserved, orphan) {
        (Some((ep, socket)), _) => (Some(ep), socket),
        (_, Some(Route::Orphan { socket, ep })) => (Ep::from_weak(&ep), socket),
        _ => (None, None),
    };
    // SAFETY: the request is live, and the caller guarantees that it is wrapped here for the first
    // time.
    unsafe { Cr::arrived(evd.ia().clone(), raw, ep, socket) }
}

fn decode_socket_down(evd: &Evd, raw: &DatCrArrivalEventData) -> Event {
    let sp = SpId::of(raw.sp_handle.as_handle());
    let reservation = match evd.routes().get(&raw.sp_handle.as_handle().addr()) {
        Some(Route::Reservation(weak)) => weak.upgrade(),
        _ => None,
    };
    if let Some(reservation) = reservation {
        reservation.on_socket_down();
    }
    Event::SocketDown(sp)
}
