//! Reserved service point.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia};
use crate::ep::Ep;
use crate::error::DatResult;
use crate::evd::Evd;
use crate::rnic::Rnic;
use crate::sp::Rsp;

pub(crate) unsafe fn rsp_create<R: Rnic>(
    ia: DatIaHandle,
    conn_qual: DatConnQual,
    ep: DatEpHandle,
    evd: DatEvdHandle,
    rsp: *mut DatRspHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let ep = pin::<Ep<R>>(ep, DAT_INVALID_HANDLE_EP)?;
    let evd = pin::<Evd<R>>(evd, DAT_INVALID_HANDLE_EVD_CR)?;
    let out = Out::required(rsp, 5)?;
    out.write(Rsp::create(&ia.to_arc(), conn_qual, &ep, evd.to_arc())?.as_dat());
    Ok(())
}

pub(crate) unsafe fn rsp_query<R: Rnic>(
    rsp: DatRspHandle,
    mask: DatRspParamMask,
    param: *mut DatRspParam,
) -> DatResult {
    let rsp = pin::<Rsp<R>>(rsp, DAT_INVALID_HANDLE_RSP)?;
    known_bits(mask, DAT_RSP_FIELD_ALL, 2)?;
    Out::required(param, 3)?.write(rsp.query());
    Ok(())
}

pub(crate) unsafe fn rsp_free<R: Rnic>(rsp: DatRspHandle) -> DatResult {
    Rsp::free(&pin::<Rsp<R>>(rsp, DAT_INVALID_HANDLE_RSP)?)
}
