//! The provider: its table of entry points, its life as a shared library, its place in the
//! registry.
//!
//! One table is made for each name that a registry library announces. Tables stay for the rest of
//! the process: registry libraries read through handles that were freed long ago. For the same
//! reason the library keeps itself loaded (`registry::keep_loaded`); OFA's libdat2 unloads a
//! provider after the last close otherwise.

mod registry;
mod table;

use std::any::TypeId;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_abi::*;

use crate::handle::{Handle, ProviderRef};
use crate::rnic::{Rnic, RnicConfig};
use crate::thunk;

pub use self::table::table;

/// A name that was announced, and the table made for it.
#[derive(Debug, Clone)]
struct Announced {
    rnic: TypeId,
    config: RnicConfig,
    provider: ProviderRef,
}

static ANNOUNCED: Mutex<Vec<Announced>> = Mutex::new(Vec::new());

/// `dat_provider_init`: makes the provider known under the name in `info`, also when the device is
/// absent, because a name that init does not register is never asked for again.
///
/// # Safety
/// `info` is null or points at a `DAT_PROVIDER_INFO`, `instance_data` is null or a C string; both
/// are what a registry library passes.
pub unsafe fn init<R: Rnic>(info: *const DatProviderInfo, instance_data: *const c_char) {
    thunk::guard_unit("dat_provider_init", || {
        crate::logging::init_logging();
        // SAFETY: by the contract of this function.
        let (Some(info), params) = (unsafe { info.as_ref() }, unsafe { text(instance_data) })
        else {
            return;
        };
        let Some(ia_name) = name_of(info) else { return };
        registry::keep_loaded();
        let provider = announce::<R>(RnicConfig {
            ia_name: ia_name.clone(),
            ia_params: params,
        });
        let code = registry::add_provider(provider, info);
        tracing::debug!(%ia_name, ?code, "registered");
    });
}

/// `dat_provider_fini`: takes the provider out of the registry.
///
/// # Safety
/// As for [`init`].
pub unsafe fn fini<R: Rnic>(info: *const DatProviderInfo) {
    thunk::guard_unit("dat_provider_fini", || {
        // SAFETY: by the contract of this function.
        let Some(info) = (unsafe { info.as_ref() }) else {
            return;
        };
        let found = name_of(info).and_then(|name| find::<R>(&name));
        if let Some((provider, config)) = found {
            let code = registry::remove_provider(provider, info);
            tracing::debug!(ia_name = %config.ia_name, ?code, "removed from the registry");
        }
    });
}

/// `dapl_extensions`.
///
/// # Safety
/// `args` is the `va_list` that belongs to operation `op`; `handle` may be any word, except that
/// the operations that open take a C string or null.
pub unsafe fn extension<R: Rnic>(
    handle: DatHandle,
    op: DatExtendedOp,
    args: DatVaList,
) -> DatReturn {
    // SAFETY: the contracts are the same.
    unsafe { thunk::extension::handle::<R>(handle, op, args) }
}

/// Remembers a name with its parameters and returns its table; the same one when it comes again.
pub fn announce<R: Rnic>(config: RnicConfig) -> ProviderRef {
    let rnic = TypeId::of::<R>();
    let mut announced = lock();
    let known = announced
        .iter_mut()
        .find(|known| known.is::<R>(&config.ia_name));
    if let Some(known) = known {
        known.config = config;
        return known.provider;
    }
    // A name from a NUL-terminated field holds no zero byte.
    let name = CString::new(config.ia_name.clone()).unwrap_or_default();
    // Both are leaked on purpose, see the module documentation; there is one of each per name.
    let provider = ProviderRef::new(Box::leak(Box::new(table::<R>(name.into_raw()))));
    announced.push(Announced {
        rnic,
        config,
        provider,
    });
    provider
}

/// The table and parameters of a name that was announced for this kind of RNIC.
pub(crate) fn find<R: Rnic>(ia_name: &str) -> Option<(ProviderRef, RnicConfig)> {
    let announced = lock();
    let known = announced.iter().find(|known| known.is::<R>(ia_name))?;
    Some((known.provider, known.config.clone()))
}

/// The consumer's small integer for an IA; the provider's own handle where no registry library
/// knows it.
pub(crate) fn consumer_ia_handle(ia: Handle) -> DatIaHandle {
    registry::consumer_ia_handle(ia.as_dat()).unwrap_or(ia.as_dat())
}

impl Announced {
    fn is<R: Rnic>(&self, ia_name: &str) -> bool {
        self.rnic == TypeId::of::<R>() && self.config.ia_name == ia_name
    }
}

fn lock() -> MutexGuard<'static, Vec<Announced>> {
    ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name field up to its zero; `None` without one.
fn name_of(info: &DatProviderInfo) -> Option<String> {
    let bytes: Vec<u8> = info
        .ia_name
        .iter()
        .map(|byte| byte.to_ne_bytes()[0])
        .collect();
    let name = CStr::from_bytes_until_nul(&bytes).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if ptr::eq(text, ptr::null()) {
        return String::new();
    }
    // SAFETY: not null, so a C string by the contract.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests;
