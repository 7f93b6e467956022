//! The set of registered provider tables, read without locks on every call.

use dat_abi::DatProvider;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A provider table that is registered, or is about to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderRef(NonNull<DatProvider>);

// SAFETY: provider tables are immutable once published and shared by all threads of the process.
unsafe impl Send for ProviderRef {}
// SAFETY: as for `Send`.
unsafe impl Sync for ProviderRef {}

impl ProviderRef {
    /// Wraps the pointer of a provider; `None` if it is null.
    #[must_use]
    pub fn new(provider: *const DatProvider) -> Option<Self> {
        NonNull::new(provider.cast_mut()).map(Self)
    }

    /// Returns the address, which is the first word of each of the provider's objects.
    #[must_use]
    pub fn address(self) -> usize {
        self.0.as_ptr().addr()
    }
}

impl Deref for ProviderRef {
    type Target = DatProvider;

    fn deref(&self) -> &DatProvider {
        // SAFETY: a provider keeps its table valid and unchanged from `dat_registry_add_provider`
        // to `dat_registry_remove_provider`. A `ProviderRef` is held during one call, or during an
        // open IA, which keeps the provider registered.
        unsafe { self.0.as_ref() }
    }
}

const CHUNK_LEN: usize = 64;

/// A table of slots with a link to the next table. Chunks are never freed and slots are reused, so
/// memory is bounded by the largest number of providers registered at once.
struct Chunk {
    places: [AtomicPtr<DatProvider>; CHUNK_LEN],
    next: OnceLock<Box<Chunk>>,
}

impl Chunk {
    const fn new() -> Self {
        Self {
            places: [const { AtomicPtr::new(ptr::null_mut()) }; CHUNK_LEN],
            next: OnceLock::new(),
        }
    }

    /// Returns the slots, starting with the preferred slot of the address.
    fn places_for(&self, address: usize) -> impl Iterator<Item = &AtomicPtr<DatProvider>> {
        let start = place_of(address);
        self.places[start..].iter().chain(&self.places[..start])
    }
}

static FIRST: Chunk = Chunk::new();

/// Adds a provider. A provider that was added twice is found until it is removed twice.
pub fn add_provider(provider: ProviderRef) {
    let mut chunk = &FIRST;
    loop {
        for place in chunk.places_for(provider.address()) {
            let taken = place.compare_exchange(
                ptr::null_mut(),
                provider.0.as_ptr(),
                Ordering::Release,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return;
            }
        }
        chunk = chunk.next.get_or_init(|| Box::new(Chunk::new()));
    }
}

/// Removes a provider once. Handles of a provider that is not in the set are not resolved.
pub fn remove_provider(provider: ProviderRef) {
    for chunk in chunks() {
        for place in chunk.places_for(provider.address()) {
            let removed = place.compare_exchange(
                provider.0.as_ptr(),
                ptr::null_mut(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if removed.is_ok() {
                return;
            }
        }
    }
}

#[inline]
pub(super) fn find(address: usize) -> Option<ProviderRef> {
    let likely = FIRST.places[place_of(address)].load(Ordering::Acquire);
    if likely.addr() == address {
        ProviderRef::new(likely)
    } else {
        find_elsewhere(address)
    }
}

#[cold]
fn find_elsewhere(address: usize) -> Option<ProviderRef> {
    chunks()
        .flat_map(|chunk| chunk.places_for(address))
        .map(|place| place.load(Ordering::Acquire))
        .find(|provider| provider.addr() == address)
        .and_then(|provider| ProviderRef::new(provider))
}

/// Returns the index of the preferred slot of an address. Tables are at least 16 bytes apart.
fn place_of(address: usize) -> usize {
    (address >> 4) % CHUNK_LEN
}

fn chunks() -> impl Iterator<Item = &'static Chunk> {
    std::iter::successors(Some(&FIRST), |chunk| chunk.next.get().map(|next| &**next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_known(provider: ProviderRef) -> bool {
        find(provider.address()) == Some(provider)
    }

    #[test]
    fn more_providers_than_fit_into_one_chunk_are_found() {
        let tables: Vec<_> = (0..CHUNK_LEN * 3)
            .map(|_| Box::new(DatProvider::zeroed()))
            .collect();
        let refs: Vec<_> = tables
            .iter()
            .filter_map(|table| ProviderRef::new(&raw const **table))
            .collect();
        assert_eq!(refs.len(), tables.len());
        for &provider in &refs {
            assert!(!is_known(provider));
            add_provider(provider);
        }
        assert!(refs.iter().all(|&provider| is_known(provider)));
        for &provider in &refs {
            remove_provider(provider);
            assert!(!is_known(provider));
        }
    }

    #[test]
    fn a_provider_added_twice_stays_until_removed_twice() {
        let table = Box::new(DatProvider::zeroed());
        let provider = ProviderRef::new(&raw const *table).expect("a box is not null");
        add_provider(provider);
        add_provider(provider);
        remove_provider(provider);
        assert!(is_known(provider));
        remove_provider(provider);
        assert!(!is_known(provider));
    }
}
