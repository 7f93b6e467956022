//! Reserved service point.

use dat_abi::*;

use super::guard::{Out, guard, pin, pin_ia};
use crate::ep::Ep;
use crate::error::DatError;
use crate::evd::Evd;
use crate::rnic::Rnic;
use crate::sp::Rsp;

pub(crate) unsafe extern "C" fn create<R: Rnic>(
    ia: DatIaHandle,
    conn_qual: DatConnQual,
    ep: DatEpHandle,
    evd: DatEvdHandle,
    rsp: *mut DatRspHandle,
) -> DatReturn {
    guard("rsp_create", || {
        let ia = pin_ia::<R>(ia)?;
        let ep = pin::<Ep<R>>(ep, DAT_INVALID_HANDLE_EP)?;
        let evd = pin::<Evd<R>>(evd, DAT_INVALID_HANDLE_EVD_CR)?;
        let out = Out::required(rsp, 5)?;
        out.write(Rsp::create(&ia.to_arc(), conn_qual, &ep, evd.to_arc())?.as_dat());
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn query<R: Rnic>(
    rsp: DatRspHandle,
    mask: DatRspParamMask,
    param: *mut DatRspParam,
) -> DatReturn {
    guard("rsp_query", || {
        let rsp = pin::<Rsp<R>>(rsp, DAT_INVALID_HANDLE_RSP)?;
        if mask & !DAT_RSP_FIELD_ALL != 0 {
            return Err(DatError::invalid_arg(2));
        }
        Out::required(param, 3)?.write(rsp.query());
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn free<R: Rnic>(rsp: DatRspHandle) -> DatReturn {
    guard("rsp_free", || {
        Rsp::free(&pin::<Rsp<R>>(rsp, DAT_INVALID_HANDLE_RSP)?)
    })
}
