//! `dat_extension_op`: the variadic entry for all operations beyond DAT 2.0.
//!
//! The exported symbol is a C function (`csrc/extension_op.c`), because stable Rust cannot define a
//! variadic function. The C function converts its arguments to a `va_list` and calls
//! [`dat2_extension_op_va`].

use super::NO_SUCH_SLOT;
use super::guard::guard;
use crate::handle::{resolve_any, resolve_object};
use crate::key::Key;
use crate::log;
use crate::registry::open::{self, ProviderLease};
use crate::registry::{NOT_REGISTERED, queries};
use dat_abi::*;
use std::ffi::{CStr, c_char};

unsafe extern "C" {
    /// Defined in `csrc/extension_op.c`.
    fn dat_extension_op(handle: DatHandle, op: DatExtendedOp, ...) -> DatReturn;
}

/// Adds the C object that defines the exported symbol to every link that uses this module.
#[used]
static KEEP_EXTENSION_OP: unsafe extern "C" fn(DatHandle, DatExtendedOp, ...) -> DatReturn =
    dat_extension_op;

/// Body of `dat_extension_op`. For an operation with the open bit, `name` is the first variadic
/// argument and `args` begins after it.
///
/// # Safety
/// `args` is a valid `va_list` with the arguments of the operation; `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat2_extension_op_va(
    handle: DatHandle,
    op: DatExtendedOp,
    name: *const c_char,
    args: DatVaList,
) -> DatReturn {
    log::init();
    guard("dat_extension_op", || {
        if !handle.is_null() && !open::extensions_are_enabled() {
            return Err(DatReturn::error(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE));
        }
        if op & DAT_OPEN_EXTENSION_BASE != 0 {
            // SAFETY: the caller guarantees the contract of `open_query`, which is the same.
            unsafe { open_query(op, name, args) }
        } else if op & DAT_CLOSE_EXTENSION_BASE != 0 {
            // SAFETY: the caller guarantees the contract of `close_query`.
            unsafe { close_query(handle, op, args) }
        } else {
            let target = resolve_any(handle)?;
            let slot = target.provider.handle_extendedop.ok_or(NO_SUCH_SLOT)?;
            // SAFETY: the slot belongs to the provider of the object; the caller guarantees the
            // list.
            Ok(unsafe { slot(target.handle, op, args) })
        }
    })
}

/// Loads a provider by name, and calls its operation with the name in place of a handle.
///
/// # Safety
/// `name` is null or a C string; `args` as for [`dat2_extension_op_va`].
unsafe fn open_query(
    op: DatExtendedOp,
    name: *const c_char,
    args: DatVaList,
) -> Result<DatReturn, DatReturn> {
    if name.is_null() {
        return Err(DatReturn::error(DAT_INVALID_HANDLE, DAT_INVALID_ARG3));
    }
    // SAFETY: the pointer is not null, so the caller guarantees a C string.
    let key = unsafe { Key::from_c(name, DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_FALSE) }
        .ok_or(DatReturn::error(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1))?;
    let lease = ProviderLease::acquire(&key)?;
    open::enable_extensions();
    let slot = lease.provider().handle_extendedop.ok_or(NO_SUCH_SLOT)?;
    // SAFETY: the lease keeps the provider registered; open operations take the name as their
    // handle.
    let status = unsafe { slot(name.cast_mut().cast(), op, args) };
    if status.is_success() {
        queries::opened(key, lease.holds_library());
        lease.keep();
    }
    Ok(status)
}

/// Calls the operation with the handle that the open operation returned, then releases the
/// provider.
///
/// # Safety
/// As for [`dat2_extension_op_va`].
unsafe fn close_query(
    handle: DatHandle,
    op: DatExtendedOp,
    args: DatVaList,
) -> Result<DatReturn, DatReturn> {
    let target = resolve_object(handle, DAT_INVALID_HANDLE_IA)?;
    let slot = target.provider.handle_extendedop.ok_or(NO_SUCH_SLOT)?;
    if target.provider.device_name.is_null() {
        return Err(NOT_REGISTERED);
    }
    // SAFETY: the device name of a registered provider is a C string; it is copied before the
    // provider can be unloaded.
    let name = unsafe { CStr::from_ptr(target.provider.device_name) }.to_owned();
    // SAFETY: the slot belongs to the provider of the object; the caller guarantees the list.
    let status = unsafe { slot(target.handle, op, args) };
    if status.is_success() {
        queries::closed(&name);
    }
    Ok(status)
}
