//! Common service point: no provider has them.

use dat_abi::*;

use super::guard::{guard, pin_ia};
use crate::error::DatError;
use crate::rnic::Rnic;

const NO_CSP: DatError = DatError::invalid_handle(DAT_INVALID_HANDLE_CSP);

pub(crate) unsafe extern "C" fn create<R: Rnic>(
    ia: DatIaHandle,
    _comm: *mut DatComm,
    _address: DatIaAddressPtr,
    _evd: DatEvdHandle,
    _csp: *mut DatCspHandle,
) -> DatReturn {
    guard("csp_create", || {
        pin_ia::<R>(ia)?;
        Err(DatError::not_supported())
    })
}

pub(crate) unsafe extern "C" fn query(
    csp: DatCspHandle,
    _mask: DatCspParamMask,
    _param: *mut DatCspParam,
) -> DatReturn {
    guard("csp_query", || Err(refusal(csp)))
}

pub(crate) unsafe extern "C" fn free(csp: DatCspHandle) -> DatReturn {
    guard("csp_free", || Err(refusal(csp)))
}

/// What OFA says of any handle, and of none.
fn refusal(csp: DatCspHandle) -> DatError {
    if csp.is_null() {
        NO_CSP
    } else {
        DatError::not_supported()
    }
}
