//! Calls that the Rust API makes only when they are right, for the cases in which they are not.

use std::ptr;

use anyhow::Result;
use dat_api::abi::*;
use dat_api::{CallError, Error, Library};

fn library() -> Result<&'static Library> {
    Ok(Library::get()?)
}

fn check(call: &'static str, code: DatReturn) -> Result<()> {
    if code.is_success() {
        return Ok(());
    }
    Err(Error::from(CallError { call, code }).into())
}

/// Closes an adapter. After a success its handle, and after an abrupt one those of all its objects,
/// must not be used.
pub(crate) fn ia_close(ia: DatIaHandle, flags: DatCloseFlags) -> Result<()> {
    // SAFETY: the registry checks an adapter's handle whatever it is.
    check("dat_ia_close", unsafe {
        (library()?.dat_ia_close)(ia, flags)
    })
}

/// Kind of a live handle.
pub(crate) fn handle_type(handle: DatHandle) -> Result<DatHandleType> {
    let mut ty = DatHandleType::MAX;
    // SAFETY: callers give live handles; the out-pointer is writable.
    let code = unsafe { (library()?.dat_get_handle_type)(handle, &mut ty) };
    check("dat_get_handle_type", code)?;
    Ok(ty)
}

/// A live object's context, as a number.
pub(crate) fn context(handle: DatHandle) -> Result<u64> {
    let mut context = DatContext::from_u64(u64::MAX);
    // SAFETY: callers give live handles; the out-pointer is writable.
    let code = unsafe { (library()?.dat_get_consumer_context)(handle, &mut context) };
    check("dat_get_consumer_context", code)?;
    Ok(context.to_u64())
}

pub(crate) fn set_context(handle: DatHandle, context: u64) -> Result<()> {
    // SAFETY: callers give live handles.
    let code =
        unsafe { (library()?.dat_set_consumer_context)(handle, DatContext::from_u64(context)) };
    check("dat_set_consumer_context", code)
}

/// Creates a dispatcher that must be refused.
pub(crate) fn evd_create(ia: DatIaHandle, min_qlen: DatCount, flags: DatEvdFlags) -> Result<()> {
    let mut evd = DAT_HANDLE_NULL;
    // SAFETY: callers give a live adapter; the out-pointer is writable.
    let code =
        unsafe { (library()?.dat_evd_create)(ia, min_qlen, DAT_HANDLE_NULL, flags, &mut evd) };
    check("dat_evd_create", code)
}

/// Frees a dispatcher, which must be refused.
pub(crate) fn evd_free(evd: DatEvdHandle) -> Result<()> {
    // SAFETY: callers give a live handle that is in use, and do not use it if it is freed.
    check("dat_evd_free", unsafe { (library()?.dat_evd_free)(evd) })
}

/// Waits on a live dispatcher without a place for the event.
pub(crate) fn evd_wait_nowhere(evd: DatEvdHandle) -> Result<()> {
    let mut nmore = 0;
    // SAFETY: callers give a live handle; a null event must be refused.
    let code = unsafe { (library()?.dat_evd_wait)(evd, 0, 1, ptr::null_mut(), &mut nmore) };
    check("dat_evd_wait", code)
}
