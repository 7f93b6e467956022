//! Extension operations: the arguments are a `va_list` whose shape the operation number tells.

use dat_abi::*;

use super::guard::guard_code;
use crate::error::DatError;
use crate::iw_extension;
use crate::rnic::Rnic;

pub(crate) unsafe extern "C" fn handle<R: Rnic>(
    handle: DatHandle,
    op: DatExtendedOp,
    args: DatVaList,
) -> DatReturn {
    guard_code("handle_extendedop", || {
        // SAFETY: by the contract of all thunks `args` is the va_list of operation `op`.
        let result = unsafe { iw_extension::handle::<R>(handle, op, args) };
        result.unwrap_or(UNKNOWN_OPERATION)
    })
}

/// What all providers say of an operation that they do not know.
const UNKNOWN_OPERATION: DatReturn = DatError::bare(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE).code();
