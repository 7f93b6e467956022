//! Public service point.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia};
use crate::error::DatResult;
use crate::evd::Evd;
use crate::rnic::Rnic;
use crate::sp::Psp;

pub(crate) unsafe fn psp_create<R: Rnic>(
    ia: DatIaHandle,
    conn_qual: DatConnQual,
    evd: DatEvdHandle,
    flags: DatPspFlags,
    psp: *mut DatPspHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let evd = pin::<Evd<R>>(evd, DAT_INVALID_HANDLE_EVD_CR)?;
    let out = Out::required(psp, 5)?;
    out.write(Psp::create(&ia.to_arc(), conn_qual, evd.to_arc(), flags)?.as_dat());
    Ok(())
}

pub(crate) unsafe fn psp_create_any<R: Rnic>(
    ia: DatIaHandle,
    conn_qual: *mut DatConnQual,
    evd: DatEvdHandle,
    flags: DatPspFlags,
    psp: *mut DatPspHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let conn_qual_out = Out::required(conn_qual, 2)?;
    let evd = pin::<Evd<R>>(evd, DAT_INVALID_HANDLE_EVD_CR)?;
    let out = Out::required(psp, 5)?;
    let (psp, conn_qual) = Psp::create_any(&ia.to_arc(), evd.to_arc(), flags)?;
    out.write(psp.as_dat());
    conn_qual_out.write(conn_qual);
    Ok(())
}

pub(crate) unsafe fn psp_query<R: Rnic>(
    psp: DatPspHandle,
    mask: DatPspParamMask,
    param: *mut DatPspParam,
) -> DatResult {
    let psp = pin::<Psp<R>>(psp, DAT_INVALID_HANDLE_PSP)?;
    known_bits(mask, DAT_PSP_FIELD_ALL, 2)?;
    Out::required(param, 3)?.write(psp.query());
    Ok(())
}

pub(crate) unsafe fn psp_free<R: Rnic>(psp: DatPspHandle) -> DatResult {
    Psp::free(&pin::<Psp<R>>(psp, DAT_INVALID_HANDLE_PSP)?)
}
