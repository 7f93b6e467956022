//! The interface adapters of the registry, which `dat.conf` lists.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::ptr;

use dat_abi::*;
use libloading::os::unix::{Library as Dl, RTLD_NOW};

use crate::attr::text_of;
use crate::error::{Error, Result, check};
use crate::library::{Library, LoadError};

/// A registered interface adapter (`DAT_PROVIDER_INFO`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// The name for [`Ia::open`](crate::Ia::open).
    pub ia_name: String,
    /// Major version of the DAT interface that the adapter offers.
    pub version_major: u32,
    /// Minor version of the DAT interface that the adapter offers.
    pub version_minor: u32,
    /// True if the adapter is registered as thread safe.
    pub is_thread_safe: bool,
}

/// Lists the registered interface adapters in the order of `dat.conf`.
pub fn list_providers() -> Result<Vec<ProviderInfo>> {
    let library = Library::get()?;
    let mut room = available(library).max(1);
    loop {
        let mut entries = vec![DatProviderInfo::zeroed(); room];
        let base = entries.as_mut_ptr();
        // SAFETY: `i` is below the length of `entries`, so the address is within it.
        let mut slots: Vec<_> = (0..room).map(|i| unsafe { base.add(i) }).collect();
        let mut returned: DatCount = 0;
        // SAFETY: `slots` holds `room` pointers to distinct writable entries, and `returned` is
        // writable.
        let code = unsafe {
            (library.dat_registry_list_providers)(
                DatCount::try_from(room).unwrap_or(DatCount::MAX),
                &mut returned,
                slots.as_mut_ptr(),
            )
        };
        check("dat_registry_list_providers", code)?;
        let returned = usize::try_from(returned).unwrap_or(0).min(room);
        // If the array is full, more adapters may have been registered meanwhile, so the call is
        // repeated with a longer array.
        if returned < room || room >= available(library) {
            return Ok(entries[..returned]
                .iter()
                .map(ProviderInfo::from_raw)
                .collect());
        }
        room *= 2;
    }
}

/// Registers an interface adapter in this process that `dat.conf` does not list. Loads the provider
/// `library`, which registers itself as `ia_name` with the instance data `params`. The call does
/// not report a provider that did not register; [`Ia::open`](crate::Ia::open) fails in that case.
///
/// # Errors
/// An error when there is no registry library, or when `library` is not a provider.
pub fn register_provider(library: &Path, ia_name: &str, params: &str) -> Result<()> {
    // The provider registers itself with the registry library that is in the global scope.
    Library::get()?;
    let malformed = Error::Unrepresentable {
        what: "the name of an interface adapter or its parameters",
    };
    let params = CString::new(params).map_err(|_| malformed.clone())?;
    let mut info = DatProviderInfo::zeroed();
    if ia_name.len() >= info.ia_name.len() || ia_name.contains('\0') {
        return Err(malformed);
    }
    for (to, byte) in info.ia_name.iter_mut().zip(ia_name.bytes()) {
        *to = c_char::from_ne_bytes([byte]);
    }
    (info.dapl_version_major, info.dapl_version_minor) = (2, 0);
    info.is_thread_safe = DAT_FALSE;
    let refused = |error: libloading::Error| LoadError::Open {
        path: library.into(),
        reason: error.to_string(),
    };
    // SAFETY: loading runs the library's constructors; the caller names a provider, which is as
    // trusted as a provider that dat.conf names.
    let provider = unsafe { Dl::open(Some(library), RTLD_NOW) }.map_err(refused)?;
    // SAFETY: the symbol of this name has this type in every provider.
    let init =
        unsafe { provider.get::<DatProviderInitFunc>(DAT_PROVIDER_INIT_NAME.to_bytes_with_nul()) };
    let init = *init.map_err(refused)?;
    // The provider stays loaded: from now on the registry holds pointers to its functions.
    std::mem::forget(provider);
    // SAFETY: both arguments are valid for the call.
    unsafe { init(&raw const info, params.as_ptr()) };
    Ok(())
}

/// Returns the number of registered adapters. With `max` 0 the call reports the number and, by
/// design, returns a failure.
fn available(library: &Library) -> usize {
    let mut returned: DatCount = 0;
    // SAFETY: with `max` 0 no entry is written; `returned` is writable.
    let _ = unsafe { (library.dat_registry_list_providers)(0, &mut returned, ptr::null_mut()) };
    usize::try_from(returned).unwrap_or(0)
}

impl ProviderInfo {
    fn from_raw(raw: &DatProviderInfo) -> Self {
        Self {
            ia_name: text_of(&raw.ia_name),
            version_major: raw.dapl_version_major,
            version_minor: raw.dapl_version_minor,
            is_thread_safe: raw.is_thread_safe != DAT_FALSE,
        }
    }
}
