//! Interface adapter.

use std::ffi::CStr;

use dat_abi::*;

use super::guard::{Out, known_bits, pin, pin_ia};
use crate::announced;
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{Handle, ProviderRef};
use crate::ia::Ia;
use crate::lifecycle::AsyncEvd;
use crate::open_error;
use crate::rnic::Rnic;

pub(crate) unsafe fn ia_open<R: Rnic>(
    name: DatNamePtr,
    async_evd_qlen: DatCount,
    async_evd: *mut DatEvdHandle,
    ia: *mut DatIaHandle,
) -> DatResult {
    open_error::clear();
    if name.is_null() {
        return Err(DatError::invalid_arg(1));
    }
    // SAFETY: the pointer is not null, so a C string by the contract of all thunks.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let (provider, config) = announced::find::<R>(&name).ok_or(DatError::invalid_arg(1))?;
    let evd_out = Out::required(async_evd, 3)?;
    let ia_out = Out::required(ia, 4)?;
    // SAFETY: the pointer is not null, so it points at a handle; no alignment is assumed.
    let given = unsafe { async_evd.read_unaligned() };
    let choice = async_evd_of::<R>(given, async_evd_qlen, provider)?;
    let (ia, evd) = Ia::<R>::open(provider, &config, choice)?;
    evd_out.write(evd.map_or(DAT_EVD_OUT_OF_SCOPE, Handle::as_dat));
    ia_out.write(ia.as_dat());
    Ok(())
}

fn async_evd_of<R: Rnic>(
    given: DatEvdHandle,
    qlen: DatCount,
    provider: ProviderRef,
) -> DatResult<AsyncEvd<R>> {
    if given.is_null() {
        return if qlen > 0 {
            Ok(AsyncEvd::New(qlen))
        } else {
            Err(DatError::invalid_arg(2))
        };
    }
    if given == DAT_EVD_ASYNC_EXISTS {
        return Ok(AsyncEvd::Elsewhere);
    }
    let evd = pin::<Evd<R>>(given, DAT_INVALID_HANDLE_EVD_ASYNC)?;
    if !evd.has(DAT_EVD_ASYNC_FLAG) || evd.ia().provider() != provider {
        return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_EVD_ASYNC));
    }
    Ok(AsyncEvd::Given(evd.to_arc()))
}

pub(crate) unsafe fn ia_query<R: Rnic>(
    ia: DatIaHandle,
    async_evd: *mut DatEvdHandle,
    ia_mask: DatIaAttrMask,
    ia_attr: *mut DatIaAttr,
    provider_mask: DatProviderAttrMask,
    provider_attr: *mut DatProviderAttr,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    known_bits(ia_mask, DAT_IA_FIELD_ALL, 3)?;
    known_bits(provider_mask, DAT_PROVIDER_FIELD_ALL, 5)?;
    let ia_out = (ia_mask != 0)
        .then(|| Out::required(ia_attr, 4))
        .transpose()?;
    let provider_out = (provider_mask != 0)
        .then(|| Out::required(provider_attr, 6))
        .transpose()?;
    Out::optional(async_evd).write(ia.async_evd());
    if let Some(out) = ia_out {
        out.write(*ia.ia_attr());
    }
    if let Some(out) = provider_out {
        out.write(*ia.provider_attr());
    }
    Ok(())
}

pub(crate) unsafe fn ia_close<R: Rnic>(ia: DatIaHandle, flags: DatCloseFlags) -> DatResult {
    Ia::close(pin_ia::<R>(ia)?, flags)
}

pub(crate) unsafe fn ia_ha_related<R: Rnic>(
    ia: DatIaHandle,
    provider: DatNamePtr,
    answer: *mut DatBoolean,
) -> DatResult {
    pin_ia::<R>(ia)?;
    if provider.is_null() {
        return Err(DatError::invalid_arg(2));
    }
    // No adapter can replace another one, as `ha_supported` reports for all of them.
    Out::required(answer, 3)?.write(DAT_FALSE);
    Ok(())
}
