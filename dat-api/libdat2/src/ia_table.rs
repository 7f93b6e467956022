//! The small integers that consumers use as handles of IAs.
//!
//! Index 0 is never assigned. The lowest free index is assigned next, as in OFA's library, because
//! some tools print handles.
//!
//! Reading takes no lock, because every call on an IA reads the table, from any thread, and because
//! a reader's lock that is held during a fork would block writers in the child.

use std::ptr;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use dat_abi::*;
use host::forks::HeldLock;

use crate::key::Key;

/// An open IA.
#[derive(Clone, Debug)]
pub struct OpenIa {
    /// Address of the provider's IA object.
    pub provider_ia: usize,
    /// Key under which the IA was opened.
    pub key: Key,
    /// True if the open took a reference to a library of the static registry.
    pub holds_library: bool,
}

/// Maps small integers to open IAs.
#[derive(Debug, Default)]
pub struct IaTable {
    /// Entry `n` belongs to the handle `n + 1`.
    places: ArcSwap<Places>,
}

/// Held while a table is made or replaced.
pub(crate) static WRITING: HeldLock<()> = HeldLock::new(());

type Places = Vec<Option<OpenIa>>;

/// The table of this process.
pub fn global() -> &'static IaTable {
    static GLOBAL: OnceLock<IaTable> = OnceLock::new();
    if let Some(table) = GLOBAL.get() {
        return table;
    }
    let _writing = WRITING.lock();
    GLOBAL.get_or_init(IaTable::default)
}

impl IaTable {
    /// Inserts an IA and returns its handle.
    pub fn insert(&self, ia: OpenIa) -> DatIaHandle {
        self.change(|places| {
            let free = places.iter().position(Option::is_none);
            let index = free.unwrap_or(places.len());
            if free.is_none() {
                places.push(None);
            }
            places[index] = Some(ia);
            handle_of(index)
        })
    }

    /// Returns the provider's IA handle behind a small integer.
    pub fn get(&self, handle: DatIaHandle) -> Option<DatIaHandle> {
        self.with(handle, |ia| {
            ptr::with_exposed_provenance_mut(ia.provider_ia)
        })
    }

    /// Returns the entry of the IA behind a small integer.
    pub fn entry(&self, handle: DatIaHandle) -> Option<OpenIa> {
        self.with(handle, OpenIa::clone)
    }

    /// Removes an IA, if the handle still refers to this object. If two threads close the same
    /// handle, one of them gets the entry.
    pub fn remove(&self, handle: DatIaHandle, provider_ia: usize) -> Option<OpenIa> {
        let index = index_of(handle)?;
        self.change(|places| {
            places
                .get_mut(index)?
                .take_if(|ia| ia.provider_ia == provider_ia)
        })
    }

    /// Returns the small integer of a provider's IA handle.
    pub fn find(&self, provider_ia: DatIaHandle) -> Option<DatIaHandle> {
        let places = self.places.load();
        let matches = |place: &Option<OpenIa>| {
            place
                .as_ref()
                .is_some_and(|ia| ia.provider_ia == provider_ia.addr())
        };
        places.iter().position(matches).map(handle_of)
    }

    fn with<T>(&self, handle: DatIaHandle, read: impl FnOnce(&OpenIa) -> T) -> Option<T> {
        let index = index_of(handle)?;
        self.places.load().get(index)?.as_ref().map(read)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Places) -> T) -> T {
        // Readers see either the old or the new table, so a panic of a writer cannot leave an
        // incomplete change.
        let _writing = WRITING.lock();
        let mut places = Places::clone(&self.places.load());
        let result = change(&mut places);
        self.places.store(Arc::new(places));
        result
    }
}

fn handle_of(index: usize) -> DatIaHandle {
    ptr::without_provenance_mut(index + 1)
}

fn index_of(handle: DatIaHandle) -> Option<usize> {
    handle.addr().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ia(address: usize) -> OpenIa {
        let key = Key::new(c"ia-table-test", 2, 0, DAT_FALSE).expect("short name");
        OpenIa {
            provider_ia: address,
            key,
            holds_library: false,
        }
    }

    #[test]
    fn the_lowest_free_integer_is_assigned() {
        let table = IaTable::default();
        let handles: Vec<usize> = (1..=130)
            .map(|n| table.insert(ia(n * 0x1000)).addr())
            .collect();
        assert_eq!(handles, (1..=130).collect::<Vec<_>>());
        for handle in [2usize, 70] {
            let handle = ptr::without_provenance_mut(handle);
            assert!(table.remove(handle, handle.addr() * 0x1000).is_some());
        }
        assert_eq!(table.insert(ia(0xA000_0000)).addr(), 2);
        assert_eq!(table.insert(ia(0xB000_0000)).addr(), 70);
        assert_eq!(table.insert(ia(0xC000_0000)).addr(), 131);
    }

    #[test]
    fn integers_and_pointers_translate_both_ways() {
        let table = IaTable::default();
        let handle = table.insert(ia(0x5000));
        let pointer = table.get(handle).expect("just inserted");
        assert_eq!(pointer.addr(), 0x5000);
        assert_eq!(table.find(pointer), Some(handle));
        assert_eq!(table.find(ptr::without_provenance_mut(0x6000)), None);
    }

    #[test]
    fn a_handle_that_is_not_open_is_not_found() {
        let table = IaTable::default();
        let handle = table.insert(ia(0x5000));
        for other in [0, 2, 64, 65, usize::MAX, 0x5000] {
            assert_eq!(
                table.get(ptr::without_provenance_mut(other)),
                None,
                "{other:#x}"
            );
        }
        assert!(table.remove(handle, 0x6000).is_none());
        assert!(table.remove(handle, 0x5000).is_some());
        assert!(table.remove(handle, 0x5000).is_none());
        assert_eq!(table.get(handle), None);
    }
}
