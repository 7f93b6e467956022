//! Calls for handles of any kind. They need no `R`: the handle's slot contains context and kind.

use dat_abi::*;

use super::guard::{Out, guard};
use crate::error::DatError;
use crate::handle;

const BAD_HANDLE: DatError = DatError::invalid_handle(DAT_INVALID_HANDLE1);

pub(crate) unsafe extern "C" fn set_context(handle: DatHandle, context: DatContext) -> DatReturn {
    guard("set_consumer_context", || {
        handle::set_context(handle, context.to_u64()).ok_or(BAD_HANDLE)
    })
}

pub(crate) unsafe extern "C" fn get_context(
    handle: DatHandle,
    context: *mut DatContext,
) -> DatReturn {
    guard("get_consumer_context", || {
        let value = handle::context(handle).ok_or(BAD_HANDLE)?;
        Out::required(context, 2)?.write(DatContext::from_u64(value));
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn get_handle_type(
    handle: DatHandle,
    handle_type: *mut DatHandleType,
) -> DatReturn {
    guard("get_handle_type", || {
        let kind = handle::kind_of(handle).ok_or(BAD_HANDLE)?;
        Out::required(handle_type, 2)?.write(kind.as_dat());
        Ok(())
    })
}
