//! Event dispatcher.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia, pin_or_null, read};
use crate::cno::Cno;
use crate::error::DatResult;
use crate::evd::{Evd, TimedOut, WaitError, Woken};
use crate::handle::Pinned;
use crate::rnic::Rnic;

#[inline]
fn pin_evd<R: Rnic>(evd: DatEvdHandle) -> DatResult<Pinned<Evd<R>>> {
    // The subtype that registry libraries return for a null EVD.
    pin(evd, DAT_INVALID_HANDLE_EVD_REQUEST)
}

pub(crate) unsafe fn evd_create<R: Rnic>(
    ia: DatIaHandle,
    min_qlen: DatCount,
    cno: DatCnoHandle,
    flags: DatEvdFlags,
    evd: *mut DatEvdHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let out = Out::required(evd, 5)?;
    let cno = pin_or_null::<Cno<R>>(cno, DAT_INVALID_HANDLE_CNO)?;
    let evd = Evd::create(&ia.to_arc(), min_qlen, cno.as_ref(), flags)?;
    out.write(evd.as_dat());
    Ok(())
}

pub(crate) unsafe fn evd_query<R: Rnic>(
    evd: DatEvdHandle,
    mask: DatEvdParamMask,
    param: *mut DatEvdParam,
) -> DatResult {
    let evd = pin_evd::<R>(evd)?;
    known_bits(mask, DAT_EVD_FIELD_ALL, 2)?;
    Out::required(param, 3)?.write(evd.query());
    Ok(())
}

pub(crate) unsafe fn evd_modify_cno<R: Rnic>(evd: DatEvdHandle, cno: DatCnoHandle) -> DatResult {
    let evd = pin_evd::<R>(evd)?;
    let cno = pin_or_null::<Cno<R>>(cno, DAT_INVALID_HANDLE_CNO)?;
    Evd::modify_cno(&evd, cno.as_ref())
}

pub(crate) unsafe fn evd_enable<R: Rnic>(evd: DatEvdHandle) -> DatResult {
    pin_evd::<R>(evd)?.enable();
    Ok(())
}

pub(crate) unsafe fn evd_disable<R: Rnic>(evd: DatEvdHandle) -> DatResult {
    pin_evd::<R>(evd)?.disable();
    Ok(())
}

pub(crate) unsafe fn evd_wait<R: Rnic>(
    evd: DatEvdHandle,
    timeout_us: DatTimeout,
    threshold: DatCount,
    event: *mut DatEvent,
    nmore: *mut DatCount,
) -> DatResult {
    let evd = pin_evd::<R>(evd)?;
    let event_out = Out::required(event, 4)?;
    let nmore_out = Out::required(nmore, 5)?;
    match evd.wait(timeout_us, threshold) {
        Ok(Woken { event, nmore }) => {
            event_out.write(event);
            nmore_out.write(nmore);
            Ok(())
        }
        // The number of events is written on failure too, because DAT requires it.
        Err(WaitError::TimedOut(TimedOut { nmore, error })) => {
            nmore_out.write(nmore);
            Err(error)
        }
        Err(WaitError::Refused(error)) => Err(error),
    }
}

pub(crate) unsafe fn evd_resize<R: Rnic>(evd: DatEvdHandle, min_qlen: DatCount) -> DatResult {
    pin_evd::<R>(evd)?.resize(min_qlen)
}

pub(crate) unsafe fn evd_post_se<R: Rnic>(evd: DatEvdHandle, event: *const DatEvent) -> DatResult {
    let evd = pin_evd::<R>(evd)?;
    // SAFETY: by the contract of all thunks.
    let event = unsafe { read_software_event(event) }?;
    evd.post_software(&event)
}

/// Reads the number and the pointer of the consumer's event. Only these are used, so only these
/// must be initialised.
///
/// # Safety
/// By the contract of all thunks: null, or points at a `DAT_EVENT`.
unsafe fn read_software_event(event: *const DatEvent) -> DatResult<DatEvent> {
    let mut copy = DatEvent::zeroed();
    // SAFETY: by the contract of this function; `read` refuses null.
    copy.event_number = unsafe { read(event.cast::<DatEventNumber>(), 2) }?;
    // SAFETY: `read` has checked that the pointer is not null; this is the address of a member of
    // the event.
    let data = unsafe { &raw const (*event).event_data };
    // SAFETY: this is the member for the call; other event numbers are refused afterwards.
    copy.event_data.software_event_data = unsafe { read(data.cast::<DatSoftwareEventData>(), 2) }?;
    Ok(copy)
}

pub(crate) unsafe fn evd_dequeue<R: Rnic>(evd: DatEvdHandle, event: *mut DatEvent) -> DatResult {
    let evd = pin_evd::<R>(evd)?;
    let out = Out::required(event, 2)?;
    out.write(evd.dequeue()?);
    Ok(())
}

pub(crate) unsafe fn evd_free<R: Rnic>(evd: DatEvdHandle) -> DatResult {
    Evd::free(&pin_evd::<R>(evd)?)
}

pub(crate) unsafe fn evd_set_unwaitable<R: Rnic>(evd: DatEvdHandle) -> DatResult {
    pin_evd::<R>(evd)?.set_unwaitable();
    Ok(())
}

pub(crate) unsafe fn evd_clear_unwaitable<R: Rnic>(evd: DatEvdHandle) -> DatResult {
    pin_evd::<R>(evd)?.clear_unwaitable();
    Ok(())
}

const _: () = assert!(std::mem::offset_of!(DatEvent, event_number) == 0);
