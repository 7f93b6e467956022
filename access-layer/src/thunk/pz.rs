//! Protection zone.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia};
use crate::error::DatResult;
use crate::pz::Pz;
use crate::rnic::Rnic;

pub(crate) unsafe fn pz_create<R: Rnic>(ia: DatIaHandle, pz: *mut DatPzHandle) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let out = Out::required(pz, 2)?;
    out.write(Pz::create(&ia.to_arc())?.as_dat());
    Ok(())
}

pub(crate) unsafe fn pz_query<R: Rnic>(
    pz: DatPzHandle,
    mask: DatPzParamMask,
    param: *mut DatPzParam,
) -> DatResult {
    let pz = pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?;
    known_bits(mask, DAT_PZ_FIELD_ALL, 2)?;
    Out::required(param, 3)?.write(pz.query());
    Ok(())
}

pub(crate) unsafe fn pz_free<R: Rnic>(pz: DatPzHandle) -> DatResult {
    Pz::free(&pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?)
}
