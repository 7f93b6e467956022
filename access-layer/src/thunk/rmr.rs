//! Remote memory region.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_or_null, read};
use crate::ep::Ep;
use crate::error::DatResult;
use crate::lmr::Lmr;
use crate::pz::Pz;
use crate::rmr::{BindArgs, Rmr};
use crate::rnic::Rnic;

pub(crate) unsafe fn rmr_create<R: Rnic>(pz: DatPzHandle, rmr: *mut DatRmrHandle) -> DatResult {
    let pz = pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?;
    let out = Out::required(rmr, 2)?;
    out.write(Rmr::create(&pz)?.as_dat());
    Ok(())
}

pub(crate) unsafe fn rmr_create_for_ep<R: Rnic>(
    pz: DatPzHandle,
    rmr: *mut DatRmrHandle,
) -> DatResult {
    let pz = pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?;
    let out = Out::required(rmr, 2)?;
    out.write(Rmr::create_for_ep(&pz)?.as_dat());
    Ok(())
}

pub(crate) unsafe fn rmr_query<R: Rnic>(
    rmr: DatRmrHandle,
    mask: DatRmrParamMask,
    param: *mut DatRmrParam,
) -> DatResult {
    let rmr = pin::<Rmr<R>>(rmr, DAT_INVALID_HANDLE_RMR)?;
    known_bits(mask, DAT_RMR_FIELD_ALL, 2)?;
    let out = Out::required(param, 3)?;
    out.write(rmr.query(mask)?);
    Ok(())
}

pub(crate) unsafe fn rmr_bind<R: Rnic>(
    rmr: DatRmrHandle,
    lmr: DatLmrHandle,
    lmr_triplet: *const DatLmrTriplet,
    privileges: DatMemPrivFlags,
    va_type: DatVaType,
    ep: DatEpHandle,
    cookie: DatRmrCookie,
    flags: DatCompletionFlags,
    rmr_context: *mut DatRmrContext,
) -> DatResult {
    let rmr = pin::<Rmr<R>>(rmr, DAT_INVALID_HANDLE_RMR)?;
    let ep = pin::<Ep<R>>(ep, DAT_INVALID_HANDLE_EP)?;
    // SAFETY: by the contract of all thunks.
    let triplet = unsafe { read(lmr_triplet, 3) }?;
    let unbind = triplet.segment_length == 0;
    // An unbind ignores the region, and may have a null pointer for the context.
    let lmr = if unbind {
        None
    } else {
        pin_or_null::<Lmr<R>>(lmr, DAT_INVALID_HANDLE_LMR)?
    };
    let out = if unbind {
        Out::optional(rmr_context)
    } else {
        Out::required(rmr_context, 9)?
    };
    let cookie = cookie.to_u64();
    let args = BindArgs {
        triplet,
        privileges,
        va_type,
        cookie,
        flags,
    };
    out.write(rmr.bind(lmr.as_ref(), &ep, &args)?);
    Ok(())
}

pub(crate) unsafe fn rmr_free<R: Rnic>(rmr: DatRmrHandle) -> DatResult {
    Rmr::free(pin::<Rmr<R>>(rmr, DAT_INVALID_HANDLE_RMR)?)
}
