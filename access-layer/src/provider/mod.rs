//! The provider: its table of entry points, its life as a shared library, its registration.
//!
//! The tables stay for the rest of the process (see `announced`). For the same reason a provider is
//! linked with `-z nodelete`; otherwise a registry would unload it after the last close.

mod table;

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use dat_abi::*;

use crate::announced::{self, Entry};
use crate::extension::handle_extendedop;
use crate::handle::ProviderRef;
use crate::registry;
use crate::rnic::{Rnic, RnicConfig};
use crate::thunk::guard::{guard, guard_unit};

pub use self::table::table;
pub use crate::open_error::last as open_error;

/// Implements `dat_rs_fork`: a step of a thread that forks.
#[cfg(not(miri))]
#[must_use]
pub fn around_fork(step: c_int) -> c_int {
    match step {
        DatRsForkStep::HOLD => crate::hold_locks(),
        DatRsForkStep::RELEASE => crate::release_locks(),
        _ => {}
    }
    crate::handle::Locks.are_held().into()
}

/// Implements `dat_provider_init`: registers the provider under the name in `info`, even if the
/// device is absent, because a name that init does not register is never tried again.
///
/// # Safety
/// `info` is null or points at a `DAT_PROVIDER_INFO`, `instance_data` is null or a C string; both
/// come from a registry library.
pub unsafe fn init<R: Rnic>(info: *const DatProviderInfo, instance_data: *const c_char) {
    guard_unit("dat_provider_init", || {
        crate::logging::init_logging();
        // SAFETY: by the contract of this function.
        let (Some(info), params) = (unsafe { info.as_ref() }, unsafe { text(instance_data) })
        else {
            return;
        };
        let Some(ia_name) = name_of(info) else { return };
        let config = RnicConfig {
            ia_name: ia_name.clone(),
            ia_params: params,
        };
        let Some(provider) = announced::enter::<R>(config, Entry::of(info), table::<R>) else {
            tracing::error!(
                %ia_name,
                "dat.conf has another entry of this name in use, with other settings; this entry \
                 is ignored"
            );
            return;
        };
        let code = registry::add_provider(provider, info);
        tracing::debug!(%ia_name, ?code, "registered");
    });
}

/// Implements `dat_provider_fini`: unregisters the provider.
///
/// # Safety
/// As for [`init`].
pub unsafe fn fini<R: Rnic>(info: *const DatProviderInfo) {
    guard_unit("dat_provider_fini", || {
        // SAFETY: by the contract of this function.
        let Some(info) = (unsafe { info.as_ref() }) else {
            return;
        };
        let Some(ia_name) = name_of(info) else { return };
        if let Some(provider) = announced::leave::<R>(&ia_name, Entry::of(info)) {
            let code = registry::remove_provider(provider, info);
            tracing::debug!(%ia_name, ?code, "removed from the registry");
        }
    });
}

/// Implements `dapl_extensions`.
///
/// # Safety
/// `args` is the `va_list` that belongs to operation `op`; `handle` may be any word, except that
/// the operations that open an IA take a C string or null.
pub unsafe fn extension<R: Rnic>(
    handle: DatHandle,
    op: DatExtendedOp,
    args: DatVaList,
) -> DatReturn {
    // SAFETY: the contracts are the same.
    guard("dapl_extensions", || unsafe {
        handle_extendedop::<R>(handle, op, args)
    })
}

/// Stores a name with its parameters and returns its table; returns the existing table if the name
/// is announced again.
pub fn announce<R: Rnic>(config: RnicConfig) -> ProviderRef {
    announced::announce::<R>(config, table::<R>)
}

/// Returns the name field up to its zero; `None` without a zero, and for text that is not UTF-8. A
/// registry library closes an IA by the name in the provider's table, so the bytes must be the
/// same.
fn name_of(info: &DatProviderInfo) -> Option<String> {
    let bytes: Vec<u8> = info
        .ia_name
        .iter()
        .map(|byte| byte.to_ne_bytes()[0])
        .collect();
    let name = CStr::from_bytes_until_nul(&bytes).ok()?;
    match name.to_str() {
        Ok(name) => Some(name.to_owned()),
        Err(_) => {
            tracing::error!(?name, "the name of an IA has to be UTF-8");
            None
        }
    }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if ptr::eq(text, ptr::null()) {
        return String::new();
    }
    // SAFETY: the pointer is not null, so a C string by the contract.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests;
