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
    /// The registry's entries for it that are in use.
    entries: Vec<Entry>,
}

/// What tells entries of one name apart in `dat.conf`: version and thread safety. `dat_ia_open` is
/// not told which of them is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry(u32, u32, bool);

impl Entry {
    fn of(info: &DatProviderInfo) -> Self {
        Self(
            info.dapl_version_major,
            info.dapl_version_minor,
            info.is_thread_safe != DAT_FALSE,
        )
    }
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
        let config = RnicConfig {
            ia_name: ia_name.clone(),
            ia_params: params,
        };
        let Some(provider) = enter::<R>(config, Entry::of(info)) else {
            tracing::error!(
                %ia_name,
                "dat.conf has an entry of this name with other settings, which is in use; this one \
                 is left out"
            );
            return;
        };
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
        let Some(ia_name) = name_of(info) else { return };
        if let Some(provider) = leave::<R>(&ia_name, Entry::of(info)) {
            let code = registry::remove_provider(provider, info);
            tracing::debug!(%ia_name, ?code, "removed from the registry");
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
    announce_in::<R>(&mut lock(), config).provider
}

/// [`announce`] for an entry of the registry. `None`: an entry of the same name is in use and says
/// something else, and what is opened by name would get the settings of either.
fn enter<R: Rnic>(config: RnicConfig, entry: Entry) -> Option<ProviderRef> {
    let mut announced = lock();
    let known = announced
        .iter()
        .find(|known| known.is::<R>(&config.ia_name));
    if let Some(known) = known
        && known.config.ia_params != config.ia_params
        && known.entries.iter().any(|other| *other != entry)
    {
        return None;
    }
    let known = announce_in::<R>(&mut announced, config);
    if !known.entries.contains(&entry) {
        known.entries.push(entry);
    }
    Some(known.provider)
}

/// The registry gives an entry up. `None`: it was not in use.
fn leave<R: Rnic>(ia_name: &str, entry: Entry) -> Option<ProviderRef> {
    let mut announced = lock();
    let known = announced.iter_mut().find(|known| known.is::<R>(ia_name))?;
    let place = known.entries.iter().position(|other| *other == entry)?;
    known.entries.remove(place);
    Some(known.provider)
}

fn announce_in<R: Rnic>(announced: &mut Vec<Announced>, config: RnicConfig) -> &mut Announced {
    let place = announced
        .iter()
        .position(|known| known.is::<R>(&config.ia_name));
    if let Some(place) = place {
        announced[place].config = config;
        return &mut announced[place];
    }
    // A name from a NUL-terminated field holds no zero byte.
    let name = CString::new(config.ia_name.clone()).unwrap_or_default();
    // Both are leaked on purpose, see the module documentation; there is one of each per name.
    let provider = ProviderRef::new(Box::leak(Box::new(table::<R>(name.into_raw()))));
    announced.push_mut(Announced {
        rnic: TypeId::of::<R>(),
        config,
        provider,
        entries: Vec::new(),
    })
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

/// The name field up to its zero; `None` without one, and for what is no UTF-8: a registry library
/// takes the name from the provider's table when it closes an IA, so it has to be the same bytes.
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
    // SAFETY: not null, so a C string by the contract.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests;
