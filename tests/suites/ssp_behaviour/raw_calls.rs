//! The calls of the extension as a C program makes them, for arguments that the safe interface
//! cannot express.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::ptr;

use anyhow::{Result, ensure};
use dat_api::abi::*;
use dat_api::{Ep, Evd, Ia, Library};

use super::bench::DEADLINE;

fn library() -> &'static Library {
    Library::get().expect("a test opens an adapter first, which loads the library")
}

fn outcome<T>(code: DatReturn, value: T) -> Result<T, DatReturn> {
    if code.is_success() {
        Ok(value)
    } else {
        Err(code)
    }
}

pub(crate) fn ssp_create(
    ia: DatIaHandle,
    socket: RawFd,
    ep: DatEpHandle,
    evd: DatEvdHandle,
) -> Result<DatIwSspHandle, DatReturn> {
    let mut ssp = DAT_HANDLE_NULL;
    // SAFETY: the variadic arguments are those of the operation: int socket, EP, EVD, message, int
    // length, writable out-pointer. The library refuses handles that are not live.
    let code = unsafe {
        (library().dat_extension_op)(
            ia,
            DAT_IW_SSP_CREATE_OP,
            socket,
            ep,
            evd,
            ptr::null_mut::<c_void>(),
            0 as DatCount,
            &raw mut ssp,
        )
    };
    outcome(code, ssp)
}

pub(crate) fn ssp_free(ssp: DatIwSspHandle) -> DatReturn {
    // SAFETY: the operation has no further arguments; a handle that is not alive is refused.
    unsafe { (library().dat_extension_op)(ssp, DAT_IW_SSP_FREE_OP) }
}

pub(crate) fn ssp_query(
    ssp: DatIwSspHandle,
    mask: DatIwSspParamMask,
) -> Result<DatIwSspParam, DatReturn> {
    let mut param = DatIwSspParam::zeroed();
    let code = ssp_query_into(ssp, mask, &raw mut param);
    outcome(code, param)
}

pub(crate) fn ssp_query_into(
    ssp: DatIwSspHandle,
    mask: DatIwSspParamMask,
    param: *mut DatIwSspParam,
) -> DatReturn {
    // SAFETY: the variadic arguments are those of the operation: int-sized mask, and a structure
    // that is writable or null, which is refused.
    unsafe { (library().dat_extension_op)(ssp, DAT_IW_SSP_QUERY_OP, mask, param) }
}

/// `size` may differ from the length of the data where the call must refuse it.
pub(crate) fn socket_connect(
    ep: DatEpHandle,
    socket: RawFd,
    timeout_us: DatTimeout,
    size: DatCount,
    private_data: Option<&[u8]>,
) -> DatReturn {
    let data = private_data.map_or(ptr::null(), |data| data.as_ptr().cast::<c_void>());
    // SAFETY: the variadic arguments are those of the operation: int socket, u32 microseconds, int
    // length, data that is readable for that length or a length that is refused.
    unsafe {
        (library().dat_extension_op)(ep, DAT_IW_SOCKET_CONNECT_OP, socket, timeout_us, size, data)
    }
}

pub(crate) fn ep_param(ep: DatEpHandle) -> Result<DatEpParam, DatReturn> {
    let mut param = DatEpParam::zeroed();
    // SAFETY: the out-pointer is writable; a handle that is not alive is refused.
    let code = unsafe { (library().dat_ep_query)(ep, DAT_EP_FIELD_ALL, &mut param) };
    outcome(code, param)
}

pub(crate) fn ep_modify(ep: DatEpHandle, mask: DatEpParamMask, param: &DatEpParam) -> DatReturn {
    // SAFETY: the parameters are readable.
    unsafe { (library().dat_ep_modify)(ep, mask, param) }
}

/// Creates an endpoint with some handles missing.
pub(crate) fn ep_create(
    ia: DatIaHandle,
    pz: DatPzHandle,
    [recv, request, connect]: [DatEvdHandle; 3],
) -> Result<DatEpHandle, DatReturn> {
    let mut ep = DAT_HANDLE_NULL;
    // SAFETY: the handles are live or null, and the out-pointer is writable.
    let code =
        unsafe { (library().dat_ep_create)(ia, pz, recv, request, connect, ptr::null(), &mut ep) };
    outcome(code, ep)
}

pub(crate) fn ep_free(ep: DatEpHandle) -> DatReturn {
    // SAFETY: a handle that is not alive is refused.
    unsafe { (library().dat_ep_free)(ep) }
}

pub(crate) fn cr_accept(cr: DatCrHandle) -> DatReturn {
    // SAFETY: a handle that is not alive is refused, and there is no private data.
    unsafe { (library().dat_cr_accept)(cr, DAT_HANDLE_NULL, 0, ptr::null()) }
}

pub(crate) fn cr_param(cr: DatCrHandle) -> Result<DatCrParam, DatReturn> {
    let mut param = DatCrParam::zeroed();
    // SAFETY: the out-pointer is writable; a handle that is not alive is refused.
    let code = unsafe { (library().dat_cr_query)(cr, DAT_CR_FIELD_ALL, &mut param) };
    outcome(code, param)
}

/// The next event of an EVD, which must have this number. No safe call may read from the EVD.
pub(crate) fn next_event(evd: &Evd, number: DatEventNumber) -> Result<DatEvent> {
    let mut event = DatEvent::zeroed();
    let mut more = 0;
    let timeout = DatTimeout::try_from(DEADLINE.as_micros())?;
    // SAFETY: the EVD is alive and both out-pointers are writable.
    let code = unsafe { (library().dat_evd_wait)(evd.as_raw(), timeout, 1, &mut event, &mut more) };
    ensure!(code.is_success(), "dat_evd_wait: {code:?}");
    ensure!(event.event_number == number, "{:#x}", event.event_number);
    Ok(event)
}

/// The next event, which must concern a service point.
pub(crate) fn next_arrival(evd: &Evd, number: DatEventNumber) -> Result<DatCrArrivalEventData> {
    let event = next_event(evd, number)?;
    // SAFETY: connection requests and SOCKET_DOWN fill this member.
    Ok(unsafe { event.event_data.cr_arrival_event_data })
}

/// Parameters of an endpoint that is alive.
pub(crate) fn param_of(ep: &Ep) -> Result<DatEpParam> {
    ep_param(ep.as_raw()).map_err(|code| anyhow::anyhow!("dat_ep_query: {code:?}"))
}

/// Closes an adapter with all that is open on it. The caller must not use those objects any more.
pub(crate) fn ia_close(ia: &Ia) -> DatReturn {
    // SAFETY: the IA is open.
    unsafe { (library().dat_ia_close)(ia.as_raw(), DAT_CLOSE_ABRUPT_FLAG) }
}
