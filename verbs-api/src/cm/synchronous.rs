//! Identifiers without an event channel of the program: their calls wait for their events.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::fault::{self, Fault};

use super::events::{rdma_ack_cm_event, rdma_get_cm_event};
use super::id::IdObject;

/// Acknowledges the event that the program may read in its structure.
///
/// # Safety
/// `id` is a live identifier of this library.
pub(super) unsafe fn forget_event(id: *mut rdma_cm_id) {
    // SAFETY: the caller guarantees the identifier, whose event was received and not acknowledged.
    unsafe {
        let event = std::mem::replace(&mut (*id).event, std::ptr::null_mut());
        if !event.is_null() {
            rdma_ack_cm_event(event);
        }
    }
}

/// Returns the result of a call. If the call has succeeded and the identifier is a synchronous
/// one, waits for its event, which the program may read in its structure, and returns the result
/// of that event.
///
/// # Safety
/// As for [`forget_event`].
pub(super) unsafe fn finish(id: *mut rdma_cm_id, called: Result<(), Fault>) -> c_int {
    // SAFETY: as for the caller.
    let own = unsafe { IdObject::own(id) };
    if called.is_err() || !own.is_synchronous.load(Ordering::Relaxed) {
        return fault::minus_one(called);
    }
    // SAFETY: as for the caller; the channel of a live identifier is alive.
    let (code, event) = unsafe {
        forget_event(id);
        let code = rdma_get_cm_event((*id).channel, &raw mut (*id).event);
        (code, (*id).event)
    };
    if code != 0 {
        return code;
    }
    // SAFETY: the event was just received.
    fault::minus_one(result_of(unsafe { &*event }))
}

/// Returns the failure that an event reports, if it reports one.
pub(super) fn result_of(event: &rdma_cm_event) -> Result<(), Fault> {
    match event.status {
        0 => Ok(()),
        _ if event.event == RDMA_CM_EVENT_REJECTED => Err(Errno::CONNREFUSED),
        status => Err(Errno::from_raw_os_error(status.abs())),
    }
}
