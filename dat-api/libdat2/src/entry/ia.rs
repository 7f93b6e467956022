//! Interface adapters.

use super::guard::guard;
use crate::handle;
use crate::ia_table;
use crate::key::Key;
use crate::log;
use crate::registry::open;
use dat_abi::*;
use std::ffi::CStr;

/// `dat_ia_openv` of DAT 2.0: opens an IA by name, and loads its provider if necessary. The C macro
/// `dat_ia_open` is this call with version 2.0 and no thread safety.
///
/// # Safety
/// `name` is a C string, `async_evd` and `ia` are valid for reads and writes; each may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ia_openv(
    name: DatNamePtr,
    async_evd_qlen: DatCount,
    async_evd: *mut DatEvdHandle,
    ia: *mut DatIaHandle,
    major: DatUint32,
    minor: DatUint32,
    thread_safety: DatBoolean,
) -> DatReturn {
    log::init();
    guard("dat_ia_openv", || {
        let bad_name = DatReturn::error(DAT_INVALID_PARAMETER, DAT_INVALID_ARG1);
        if name.is_null() {
            return Err(bad_name);
        }
        // SAFETY: the caller guarantees a C string, of which at most 256 bytes are read.
        let key = unsafe { Key::from_c(name, major, minor, thread_safety) }.ok_or(bad_name)?;
        if ia.is_null() {
            return Err(DatReturn::error(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA));
        }
        // SAFETY: the existence of the key proves that the name ends within 256 bytes.
        let name = unsafe { CStr::from_ptr(name) };
        // SAFETY: `ia` is not null; the caller guarantees the rest.
        unsafe { open::open(&key, name, async_evd_qlen, async_evd, ia) }?;
        Ok(DatReturn::SUCCESS)
    })
}

/// `dat_ia_close` of DAT 2.0: closes an IA. Closing the last IA of a provider releases the
/// provider.
#[unsafe(no_mangle)]
pub extern "C" fn dat_ia_close(ia: DatIaHandle, flags: DatCloseFlags) -> DatReturn {
    guard("dat_ia_close", || {
        open::close(ia, flags).map(|()| DatReturn::SUCCESS)
    })
}

/// `dats_get_ia_handle`: translates between the small integers of consumers and the pointers of
/// providers, in the direction that the argument requires. Providers call it to fill `ia_handle`
/// members.
///
/// # Safety
/// `result` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dats_get_ia_handle(
    ia: DatIaHandle,
    result: *mut DatIaHandle,
) -> DatReturn {
    guard("dats_get_ia_handle", || {
        let invalid = DatReturn::error(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA);
        let table = ia_table::global();
        let translated = if handle::may_be_pointer(ia) {
            table.find(ia)
        } else {
            table.get(ia)
        };
        let translated = translated.ok_or(invalid)?;
        if result.is_null() {
            return Err(DatReturn::error(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
        }
        // SAFETY: the pointer is not null, so the caller guarantees that it is valid for writes.
        unsafe { result.write(translated) };
        Ok(DatReturn::SUCCESS)
    })
}
