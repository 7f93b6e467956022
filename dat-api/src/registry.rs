//! What the registry knows: the interface adapters that `dat.conf` lists.

use std::ptr;

use dat_abi::*;

use crate::attr::text_of;
use crate::error::{Result, check};
use crate::library::Library;

/// One registered interface adapter (`DAT_PROVIDER_INFO`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// The name for [`Ia::open`](crate::Ia::open).
    pub ia_name: String,
    /// Major version of the DAT interface it offers.
    pub version_major: u32,
    /// Minor version of the DAT interface it offers.
    pub version_minor: u32,
    /// Whether it is registered as thread safe.
    pub is_thread_safe: bool,
}

/// Lists the registered interface adapters in the order of `dat.conf`.
pub fn list_providers() -> Result<Vec<ProviderInfo>> {
    let library = Library::get()?;
    let mut room = available(library).max(1);
    loop {
        let mut entries = vec![DatProviderInfo::zeroed(); room];
        let base = entries.as_mut_ptr();
        // SAFETY: `i` is below the length of `entries`, so the address stays within it.
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
        // A full array may mean that more were registered meanwhile: ask again with more room.
        if returned < room || room >= available(library) {
            return Ok(entries[..returned]
                .iter()
                .map(ProviderInfo::from_raw)
                .collect());
        }
        room *= 2;
    }
}

/// How many are registered. With `max` 0 the call reports the number and, by design, a failure.
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
