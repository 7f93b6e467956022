//! Protection zone.

use dat_abi::*;

use super::guard::{Out, guard, pin, pin_ia};
use crate::error::DatError;
use crate::pz::Pz;
use crate::rnic::Rnic;

pub(crate) unsafe extern "C" fn create<R: Rnic>(
    ia: DatIaHandle,
    pz: *mut DatPzHandle,
) -> DatReturn {
    guard("pz_create", || {
        let ia = pin_ia::<R>(ia)?;
        let out = Out::required(pz, 2)?;
        out.write(Pz::create(&ia.to_arc())?.as_dat());
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query<R: Rnic>(
    pz: DatPzHandle,
    mask: DatPzParamMask,
    param: *mut DatPzParam,
) -> DatReturn {
    guard("pz_query", || {
        let pz = pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?;
        if mask & !DAT_PZ_FIELD_ALL != 0 {
            return Err(DatError::invalid_arg(2));
        }
        Out::required(param, 3)?.write(pz.query());
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn free<R: Rnic>(pz: DatPzHandle) -> DatReturn {
    guard("pz_free", || {
        Pz::free(&pin::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?)
    })
}
