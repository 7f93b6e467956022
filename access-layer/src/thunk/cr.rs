//! Connection request.

use std::ffi::c_void;

use dat_abi::*;

use super::guard::{Out, pin, pin_or_null, private_data};
use crate::cr::Cr;
use crate::ep::Ep;
use crate::error::DatResult;
use crate::handle::Pinned;
use crate::rnic::Rnic;
use crate::sp::Psp;

fn pin_cr<R: Rnic>(cr: DatCrHandle) -> DatResult<Pinned<Cr<R>>> {
    pin(cr, DAT_INVALID_HANDLE_CR)
}

pub(crate) unsafe fn cr_query<R: Rnic>(
    cr: DatCrHandle,
    _mask: DatCrParamMask,
    param: *mut DatCrParam,
) -> DatResult {
    // The mask is ignored, because OFA's tools pass that of another object.
    let cr = pin_cr::<R>(cr)?;
    Out::required(param, 3)?.write(cr.query());
    Ok(())
}

pub(crate) unsafe fn cr_accept<R: Rnic>(
    cr: DatCrHandle,
    ep: DatEpHandle,
    private_data_size: DatCount,
    private_data_ptr: *const c_void,
) -> DatResult {
    let cr = pin_cr::<R>(cr)?;
    let ep = pin_or_null::<Ep<R>>(ep, DAT_INVALID_HANDLE_EP)?;
    // SAFETY: by the contract of all thunks; the bytes are not used after the call.
    let private_data = unsafe { private_data(private_data_size, private_data_ptr, 3) }?;
    Cr::accept(&cr, ep, private_data)
}

pub(crate) unsafe fn cr_reject<R: Rnic>(
    cr: DatCrHandle,
    private_data_size: DatCount,
    private_data_ptr: *const c_void,
) -> DatResult {
    let cr = pin_cr::<R>(cr)?;
    // SAFETY: by the contract of all thunks; the bytes are not used after the call.
    let private_data = unsafe { private_data(private_data_size, private_data_ptr, 2) }?;
    Cr::reject(&cr, private_data)
}

pub(crate) unsafe fn cr_handoff<R: Rnic>(cr: DatCrHandle, handoff: DatConnQual) -> DatResult {
    Psp::handoff(&pin_cr::<R>(cr)?, handoff)
}
