//! The names that a registry library has announced, each with its table of entry points.
//!
//! One table is created for each name. Tables stay for the rest of the process, because registry
//! libraries read them through handles that are already freed.

use std::any::TypeId;
use std::ffi::{CString, c_char};
use std::sync::MutexGuard;

use dat_abi::{DAT_FALSE, DatProvider, DatProviderInfo};
use host::forks::HeldLock;

use crate::handle::ProviderRef;
use crate::rnic::{Rnic, RnicConfig};

/// Creates the table of an RNIC type under a device name.
pub(crate) type MakeTable = fn(*const c_char) -> DatProvider;

/// An announced name, and its table.
#[derive(Debug, Clone)]
pub(crate) struct Announced {
    rnic: TypeId,
    config: RnicConfig,
    provider: ProviderRef,
    /// The registry's entries for this name that are in use.
    entries: Vec<Entry>,
}

/// The DAT version and thread safety of a `dat.conf` entry. Entries of one name may differ in these
/// values, for which `dat_ia_open` has no argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(u32, u32, bool);

impl Entry {
    pub(crate) fn of(info: &DatProviderInfo) -> Self {
        Self(
            info.dapl_version_major,
            info.dapl_version_minor,
            info.is_thread_safe != DAT_FALSE,
        )
    }
}

pub(crate) static ANNOUNCED: HeldLock<Vec<Announced>> = HeldLock::new(Vec::new());

/// Stores a name with its parameters and returns its table; returns the existing table if the name
/// is announced again.
pub(crate) fn announce<R: Rnic>(config: RnicConfig, table: MakeTable) -> ProviderRef {
    announce_in::<R>(&mut lock(), config, table).provider
}

/// Calls [`announce`] for an entry of the registry. Returns `None` if another [`Entry`] of the same
/// name is in use with other parameters. If both were in use, an open by name could use the
/// settings of either entry.
pub(crate) fn enter<R: Rnic>(
    config: RnicConfig,
    entry: Entry,
    table: MakeTable,
) -> Option<ProviderRef> {
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
    let known = announce_in::<R>(&mut announced, config, table);
    if !known.entries.contains(&entry) {
        known.entries.push(entry);
    }
    Some(known.provider)
}

/// Removes an entry that the registry no longer uses. Returns `None` if the entry was not in use.
pub(crate) fn leave<R: Rnic>(ia_name: &str, entry: Entry) -> Option<ProviderRef> {
    let mut announced = lock();
    let known = announced.iter_mut().find(|known| known.is::<R>(ia_name))?;
    let index = known.entries.iter().position(|other| *other == entry)?;
    known.entries.remove(index);
    Some(known.provider)
}

fn announce_in<R: Rnic>(
    announced: &mut Vec<Announced>,
    config: RnicConfig,
    table: MakeTable,
) -> &mut Announced {
    let index = announced
        .iter()
        .position(|known| known.is::<R>(&config.ia_name));
    if let Some(index) = index {
        announced[index].config = config;
        return &mut announced[index];
    }
    // A name from a NUL-terminated field contains no zero byte.
    let name = CString::new(config.ia_name.clone()).unwrap_or_default();
    // Name and table are leaked on purpose, once per name; see the module documentation.
    let provider = ProviderRef::new(Box::leak(Box::new(table(name.into_raw()))));
    announced.push_mut(Announced {
        rnic: TypeId::of::<R>(),
        config,
        provider,
        entries: Vec::new(),
    })
}

/// Returns the table and parameters of a name that was announced for this RNIC type.
pub(crate) fn find<R: Rnic>(ia_name: &str) -> Option<(ProviderRef, RnicConfig)> {
    let announced = lock();
    let known = announced.iter().find(|known| known.is::<R>(ia_name))?;
    Some((known.provider, known.config.clone()))
}

impl Announced {
    fn is<R: Rnic>(&self, ia_name: &str) -> bool {
        self.rnic == TypeId::of::<R>() && self.config.ia_name == ia_name
    }
}

fn lock() -> MutexGuard<'static, Vec<Announced>> {
    ANNOUNCED.lock()
}
