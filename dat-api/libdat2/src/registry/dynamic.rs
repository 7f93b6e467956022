//! Providers that registered themselves with `dat_registry_add_provider`.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use dat_abi::*;
use host::forks::HeldLock;

use super::NOT_REGISTERED;
use crate::handle::{self, ProviderRef};
use crate::key::Key;

/// A registered provider.
#[derive(Debug)]
pub(crate) struct Registration {
    provider: ProviderRef,
    /// Open IAs, and open extension queries.
    references: usize,
}

/// The dynamic registry.
#[derive(Debug)]
pub struct DynamicRegistry {
    pub(crate) registrations: HeldLock<BTreeMap<Key, Registration>>,
}

static GLOBAL: DynamicRegistry = DynamicRegistry::new();

/// The dynamic registry of this process.
pub fn global() -> &'static DynamicRegistry {
    &GLOBAL
}

impl DynamicRegistry {
    const fn new() -> Self {
        Self {
            registrations: HeldLock::new(BTreeMap::new()),
        }
    }

    /// Registers a provider under a key.
    ///
    /// # Errors
    /// `DAT_PROVIDER_ALREADY_REGISTERED` if the key is registered already.
    pub fn add(&self, key: Key, provider: ProviderRef) -> Result<(), DatReturn> {
        use std::collections::btree_map::Entry;
        match self.lock().entry(key) {
            Entry::Occupied(_) => Err(DatReturn::error(
                DAT_PROVIDER_ALREADY_REGISTERED,
                DAT_NO_SUBTYPE,
            )),
            Entry::Vacant(place) => {
                place.insert(Registration {
                    provider,
                    references: 0,
                });
                handle::add_provider(provider);
                Ok(())
            }
        }
    }

    /// Removes the registration of a provider. A library unregisters when it is unloaded, even if
    /// its key was taken when it registered; the registration of the other provider stays.
    ///
    /// # Errors
    /// [`NOT_REGISTERED`] for an unknown key and for the key of another provider,
    /// `DAT_PROVIDER_IN_USE` while IAs are open.
    pub fn remove(&self, key: &Key, provider: ProviderRef) -> Result<(), DatReturn> {
        let mut registrations = self.lock();
        let registration = registrations.get(key).ok_or(NOT_REGISTERED)?;
        if registration.provider != provider {
            return Err(NOT_REGISTERED);
        }
        if registration.references > 0 {
            return Err(DatReturn::error(DAT_PROVIDER_IN_USE, DAT_NO_SUBTYPE));
        }
        handle::remove_provider(registration.provider);
        registrations.remove(key);
        drop(registrations);
        handle::forget_pages();
        Ok(())
    }

    /// Finds a provider and takes a reference to it.
    ///
    /// # Errors
    /// [`NOT_REGISTERED`] for an unknown key.
    pub fn acquire(&self, key: &Key) -> Result<ProviderRef, DatReturn> {
        let mut registrations = self.lock();
        let registration = registrations.get_mut(key).ok_or(NOT_REGISTERED)?;
        registration.references += 1;
        Ok(registration.provider)
    }

    /// Releases a reference.
    pub fn release(&self, key: &Key) {
        if let Some(registration) = self.lock().get_mut(key) {
            registration.references = registration.references.saturating_sub(1);
        }
    }

    /// Returns true if a key is registered.
    pub fn contains(&self, key: &Key) -> bool {
        self.lock().contains_key(key)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Registration>> {
        // Every change under this lock is a single insertion, removal or count, so a panic cannot
        // leave an incomplete change.
        self.registrations.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture() -> (DynamicRegistry, Key, Box<DatProvider>) {
        let key = Key::new(c"dynamic-test", 2, 0, DAT_FALSE).expect("short name");
        (DynamicRegistry::new(), key, Box::new(DatProvider::zeroed()))
    }

    #[test]
    fn a_key_is_registered_once() {
        let (registry, key, table) = fixture();
        let provider = ProviderRef::new(&raw const *table).expect("a box is not null");
        assert_eq!(registry.add(key.clone(), provider), Ok(()));
        assert_eq!(
            registry.add(key.clone(), provider),
            Err(DatReturn(0x8010_0000))
        );
        assert_eq!(registry.remove(&key, provider), Ok(()));
        assert_eq!(registry.remove(&key, provider), Err(DatReturn(0x800A_0064)));
    }

    #[test]
    fn a_provider_that_was_refused_does_not_remove_the_registered_one() {
        let (registry, key, table) = fixture();
        let (own, refused) = (ProviderRef::new(&raw const *table), DatProvider::zeroed());
        let own = own.expect("a box is not null");
        let refused = ProviderRef::new(&raw const refused).expect("a local");
        assert_eq!(registry.add(key.clone(), own), Ok(()));
        assert!(registry.add(key.clone(), refused).is_err());
        assert_eq!(registry.remove(&key, refused), Err(NOT_REGISTERED));
        assert_eq!(registry.acquire(&key), Ok(own));
        registry.release(&key);
        assert_eq!(registry.remove(&key, own), Ok(()));
    }

    #[test]
    fn a_provider_in_use_is_not_removed() {
        let (registry, key, table) = fixture();
        let provider = ProviderRef::new(&raw const *table).expect("a box is not null");
        assert_eq!(registry.acquire(&key), Err(NOT_REGISTERED));
        assert_eq!(registry.add(key.clone(), provider), Ok(()));
        assert_eq!(registry.acquire(&key), Ok(provider));
        assert_eq!(registry.remove(&key, provider), Err(DatReturn(0x8011_0000)));
        registry.release(&key);
        assert_eq!(registry.remove(&key, provider), Ok(()));
    }

    #[test]
    fn version_and_thread_safety_belong_to_the_key() {
        let (registry, key, table) = fixture();
        let provider = ProviderRef::new(&raw const *table).expect("a box is not null");
        assert_eq!(registry.add(key.clone(), provider), Ok(()));
        for other in [
            Key::new(c"dynamic-test", 1, 0, DAT_FALSE),
            Key::new(c"dynamic-test", 2, 1, DAT_FALSE),
            Key::new(c"dynamic-test", 2, 0, DAT_TRUE),
            Key::new(c"dynamic", 2, 0, DAT_FALSE),
        ] {
            assert_eq!(
                registry.acquire(&other.expect("short name")),
                Err(NOT_REGISTERED)
            );
        }
        assert_eq!(registry.remove(&key, provider), Ok(()));
    }
}
