//! The registered offload protocols.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use host::locks::IgnorePoison as _;

use crate::protosw::OffloadProtocol;

/// The protocols by priority, the highest first. Protocols of equal priority are in the order of
/// registration.
#[derive(Debug, Default)]
pub struct Registry {
    entries: RwLock<Vec<Entry>>,
    generation: AtomicU64,
}

#[derive(Clone)]
struct Entry {
    id: u64,
    priority: i32,
    protocol: Arc<dyn OffloadProtocol>,
}

/// A registration. Dropping it removes the protocol: no new socket uses it, and existing
/// connections are kept.
#[must_use = "dropping it ends the registration"]
#[derive(Debug)]
pub struct Registration {
    id: u64,
    registry: Arc<Registry>,
}

/// A protocol of this name is registered already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an offload protocol of the name {0} is registered already")]
pub struct NameTaken(pub String);

impl Registry {
    /// Registers a protocol.
    ///
    /// # Errors
    /// Fails if another protocol has the name.
    pub fn register(
        self: &Arc<Self>,
        protocol: Arc<dyn OffloadProtocol>,
        priority: i32,
    ) -> Result<Registration, NameTaken> {
        let mut entries = self.entries.write().ignore_poison();
        let has_name = |entry: &Entry| entry.protocol.name() == protocol.name();
        if entries.iter().any(has_name) {
            return Err(NameTaken(protocol.name().to_owned()));
        }
        let id = self.generation.fetch_add(1, Ordering::Relaxed);
        entries.push(Entry {
            id,
            priority,
            protocol,
        });
        entries.sort_by_key(|entry| -i64::from(entry.priority));
        Ok(Registration {
            id,
            registry: Arc::clone(self),
        })
    }

    /// Returns the protocols in order of preference.
    #[must_use]
    pub fn protocols(&self) -> Vec<Arc<dyn OffloadProtocol>> {
        let entries = self.entries.read().ignore_poison();
        entries
            .iter()
            .map(|entry| Arc::clone(&entry.protocol))
            .collect()
    }

    /// Calls a function with each protocol in order of preference. No protocol can be registered
    /// meanwhile.
    pub fn for_each(&self, mut call: impl FnMut(&dyn OffloadProtocol)) {
        let entries = self.entries.read().ignore_poison();
        entries.iter().for_each(|entry| call(&*entry.protocol));
    }

    /// Records a change of a protocol's devices or addresses, so that cached answers of peers are
    /// dropped.
    pub fn notify(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of registrations, removals and notifications so far.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    fn remove(&self, id: u64) {
        let mut entries = self.entries.write().ignore_poison();
        entries.retain(|entry| entry.id != id);
        self.notify();
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.remove(self.id);
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.protocol.name(), self.priority)
    }
}
