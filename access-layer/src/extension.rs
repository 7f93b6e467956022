//! Extension operations. Their arguments are a `va_list` whose contents depend on the operation
//! number.
//!
//! The operations of `dat_ib_open_query` and `dat_ib_close_query` are here, because their handles
//! differ from those of other calls. [`iw_extension`] handles all other operations.

use std::ffi::CStr;

use dat_abi::*;

use crate::announced;
use crate::error::{DatError, DatResult};
use crate::ia::Ia;
use crate::iw_extension;
use crate::lifecycle::AsyncEvd;
use crate::rnic::Rnic;
use crate::thunk::guard::{Out, arguments, pin_ia};
use crate::thunk::ia_query;

pub(crate) unsafe fn handle_extendedop<R: Rnic>(
    handle: DatHandle,
    op: DatExtendedOp,
    args: DatVaList,
) -> DatResult {
    match op {
        // SAFETY: the registry library passes the name as the handle, and the va_list of this
        // operation.
        DAT_IB_OPEN_QUERY_OP => unsafe { open_query::<R>(handle.cast(), args) },
        DAT_IB_CLOSE_QUERY_OP => Ia::close(pin_ia::<R>(handle)?, DAT_CLOSE_ABRUPT_FLAG),
        op => {
            // SAFETY: by the contract of all thunks `args` is the va_list of operation `op`.
            let result = unsafe { iw_extension::handle::<R>(handle, op, args) };
            result.unwrap_or(Err(UNKNOWN_OPERATION))
        }
    }
}

/// Result of all providers for an unknown operation.
const UNKNOWN_OPERATION: DatError = DatError::bare(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);

/// Arguments of `dat_ib_open_query` after the name.
#[repr(C)]
struct OpenQueryArgs {
    ia_handle: *mut DatIaHandle,
    ia_mask: DatIaAttrMask,
    ia_attr: *mut DatIaAttr,
    provider_mask: DatProviderAttrMask,
    provider_attr: *mut DatProviderAttr,
}

unsafe extern "C" {
    fn access_read_open_query(args: DatVaList, out: *mut OpenQueryArgs);
}

/// Opens an IA without asynchronous EVD and queries it. The handle that the consumer receives is
/// the provider's own, not a small integer of the registry library.
///
/// # Safety
/// `name` is null or a C string; `args` is the `va_list` of this operation.
unsafe fn open_query<R: Rnic>(name: DatNamePtr, args: DatVaList) -> DatResult {
    if name.is_null() {
        return Err(DatError::invalid_arg(1));
    }
    // SAFETY: the caller passes the va_list of this operation.
    let read = unsafe { arguments(access_read_open_query, args) };
    // SAFETY: not null, so a C string by the contract of this function.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let out = Out::required(read.ia_handle, 2)?;
    let (provider, config) = announced::find::<R>(&name).ok_or(DatError::invalid_arg(1))?;
    let (opened, _) = Ia::<R>::open(provider, &config, AsyncEvd::Elsewhere)?;
    let opened = opened.as_dat();
    let no_evd = std::ptr::null_mut();
    let OpenQueryArgs {
        ia_mask,
        ia_attr,
        provider_mask,
        provider_attr,
        ..
    } = read;
    // SAFETY: the consumer's pointers and masks are those of a query.
    let queried = unsafe {
        ia_query::<R>(
            opened,
            no_evd,
            ia_mask,
            ia_attr,
            provider_mask,
            provider_attr,
        )
    };
    if queried.is_err() {
        Ia::close(pin_ia::<R>(opened)?, DAT_CLOSE_ABRUPT_FLAG)?;
        return queried;
    }
    out.write(opened);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;
    use crate::fake_rnic::FakeRnic;
    use crate::harness::{Dat, SUCCESS, access_call_extension, extension_entry};

    fn open(name: DatNamePtr, ia: *mut DatIaHandle, ia_mask: u64, ia_attr: *mut DatIaAttr) -> u32 {
        let (op, none) = (DAT_IB_OPEN_QUERY_OP, ptr::null_mut::<DatProviderAttr>());
        let entry = extension_entry::<FakeRnic>();
        // SAFETY: the arguments are those of the operation, in C's types.
        unsafe { access_call_extension(entry, name.cast(), op, ia, ia_mask, ia_attr, 0_u64, none) }
            .0
    }

    fn close(ia: DatIaHandle) -> u32 {
        let entry = extension_entry::<FakeRnic>();
        // SAFETY: the operation has no arguments.
        unsafe { access_call_extension(entry, ia, DAT_IB_CLOSE_QUERY_OP) }.0
    }

    #[test]
    fn an_ia_is_opened_for_a_query_and_closed() {
        let dat = Dat::open();
        let name = dat.provider.device_name.cast_mut();
        let (mut ia, mut attr) = (ptr::null_mut(), DatIaAttr::zeroed());
        let code = open(name, &raw mut ia, DAT_IA_FIELD_ALL, &raw mut attr);
        assert_eq!(code, SUCCESS);
        assert!(attr.max_eps > 0);
        assert_ne!(ia, dat.ia);
        assert_eq!(close(ia), SUCCESS);
        assert_eq!(close(ia), 0x8005_000B);
    }

    #[test]
    fn a_query_that_fails_closes_the_ia() {
        let dat = Dat::open();
        let name = dat.provider.device_name.cast_mut();
        let (mut ia, null) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(open(ptr::null_mut(), &raw mut ia, 0, null), 0x8006_0025);
        assert_eq!(
            open(c"no-such-ia".as_ptr().cast_mut(), &raw mut ia, 0, null),
            0x8006_0025
        );
        assert_eq!(open(name, ptr::null_mut(), 0, null), 0x8006_0026);
        assert_eq!(open(name, &raw mut ia, 1, null), 0x8006_0028);
        assert!(ia.is_null());
    }
}
