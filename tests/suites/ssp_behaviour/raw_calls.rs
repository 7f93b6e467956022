//! Calls as a C program makes them, for what the safe interface cannot express.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::ptr;

use dat_api::abi::*;
use dat_api::{Ia, Library};

fn library() -> &'static Library {
    Library::get().expect("a test opens an adapter first, which loads the library")
}

fn outcome<T>(code: DatReturn, value: T) -> Result<T, DatReturn> {
    if code.is_success() {
        Ok(value)
    } else {
        Err(code)
    }
}

pub(crate) fn ssp_create(
    ia: DatIaHandle,
    socket: RawFd,
    ep: DatEpHandle,
    evd: DatEvdHandle,
) -> Result<DatIwSspHandle, DatReturn> {
    let mut ssp = DAT_HANDLE_NULL;
    // SAFETY: the variadic arguments are those of the operation: int socket, EP, EVD, message, int
    // length, writable out-pointer. The library refuses handles that are not live.
    let code = unsafe {
        (library().dat_extension_op)(
            ia,
            DAT_IW_SSP_CREATE_OP,
            socket,
            ep,
            evd,
            ptr::null_mut::<c_void>(),
            0 as DatCount,
            &raw mut ssp,
        )
    };
    outcome(code, ssp)
}

pub(crate) fn ssp_free(ssp: DatIwSspHandle) -> DatReturn {
    // SAFETY: the operation has no further arguments; a handle that is not alive is refused.
    unsafe { (library().dat_extension_op)(ssp, DAT_IW_SSP_FREE_OP) }
}

pub(crate) fn ssp_query(
    ssp: DatIwSspHandle,
    mask: DatIwSspParamMask,
) -> Result<DatIwSspParam, DatReturn> {
    let mut param = DatIwSspParam::zeroed();
    // SAFETY: the variadic arguments are those of the operation: int-sized mask, and a structure
    // that is writable.
    let code =
        unsafe { (library().dat_extension_op)(ssp, DAT_IW_SSP_QUERY_OP, mask, &raw mut param) };
    outcome(code, param)
}

/// Closes an adapter with all that is open on it. The caller must not use those objects any more.
pub(crate) fn ia_close(ia: &Ia) -> DatReturn {
    // SAFETY: the IA is open.
    unsafe { (library().dat_ia_close)(ia.as_raw(), DAT_CLOSE_ABRUPT_FLAG) }
}
