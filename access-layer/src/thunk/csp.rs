//! Common service point.

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia, read, socket_address};
use crate::error::DatResult;
use crate::evd::Evd;
use crate::rnic::Rnic;
use crate::sp::Csp;

pub(crate) unsafe fn csp_create<R: Rnic>(
    ia: DatIaHandle,
    comm: *mut DatComm,
    address: DatIaAddressPtr,
    evd: DatEvdHandle,
    csp: *mut DatCspHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    // SAFETY: by the contract of all thunks.
    let (comm, address) = unsafe { (read(comm, 2)?, socket_address(address, 3)?) };
    let evd = pin::<Evd<R>>(evd, DAT_INVALID_HANDLE_EVD_CR)?;
    let out = Out::required(csp, 5)?;
    out.write(Csp::create(&ia.to_arc(), comm, address, evd.to_arc())?.as_dat());
    Ok(())
}

pub(crate) unsafe fn csp_query<R: Rnic>(
    csp: DatCspHandle,
    mask: DatCspParamMask,
    param: *mut DatCspParam,
) -> DatResult {
    let csp = pin::<Csp<R>>(csp, DAT_INVALID_HANDLE_CSP)?;
    known_bits(mask, DAT_CSP_FIELD_ALL, 2)?;
    Out::required(param, 3)?.write(csp.query());
    Ok(())
}

pub(crate) unsafe fn csp_free<R: Rnic>(csp: DatCspHandle) -> DatResult {
    Csp::free(&pin::<Csp<R>>(csp, DAT_INVALID_HANDLE_CSP)?)
}
