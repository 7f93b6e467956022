//! Calls for handles of any kind. They need no `R`: the handle's slot contains context and kind.

#![expect(
    clippy::extra_unused_type_parameters,
    reason = "every slot has this parameter"
)]

use dat_abi::*;

use super::guard::Out;
use crate::error::{DatError, DatResult};
use crate::handle;
use crate::rnic::Rnic;

const BAD_HANDLE: DatError = DatError::invalid_handle(DAT_INVALID_HANDLE1);

pub(crate) unsafe fn set_consumer_context<R: Rnic>(
    handle: DatHandle,
    context: DatContext,
) -> DatResult {
    handle::set_context(handle, context.to_u64()).ok_or(BAD_HANDLE)
}

pub(crate) unsafe fn get_consumer_context<R: Rnic>(
    handle: DatHandle,
    context: *mut DatContext,
) -> DatResult {
    let value = handle::context(handle).ok_or(BAD_HANDLE)?;
    Out::required(context, 2)?.write(DatContext::from_u64(value));
    Ok(())
}

pub(crate) unsafe fn get_handle_type<R: Rnic>(
    handle: DatHandle,
    handle_type: *mut DatHandleType,
) -> DatResult {
    let kind = handle::kind_of(handle).ok_or(BAD_HANDLE)?;
    Out::required(handle_type, 2)?.write(kind.as_dat());
    Ok(())
}
