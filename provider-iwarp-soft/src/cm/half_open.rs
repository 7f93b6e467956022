//! The inbound connections of one service that have not sent their request.
//!
//! Their number is bounded, and a new one is never kept waiting for it: a peer sends its request as
//! soon as it is connected, so one that has been silent for longest is the least likely to mean it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::engine::Key;

use super::listen::Inbound;

/// Keys are given in ascending order, so the first is the oldest.
#[derive(Default)]
pub(super) struct HalfOpen {
    waiting: Mutex<BTreeMap<Key, Weak<Inbound>>>,
}

impl HalfOpen {
    /// One more. What is more than `max` is returned, to be closed.
    pub(super) fn enter(
        &self,
        key: Key,
        inbound: &Arc<Inbound>,
        max: usize,
    ) -> Option<Arc<Inbound>> {
        let mut waiting = self.lock();
        waiting.insert(key, Arc::downgrade(inbound));
        if waiting.len() <= max {
            return None;
        }
        waiting.pop_first()?.1.upgrade()
    }

    /// One has sent its request, or has gone.
    pub(super) fn leave(&self, key: Key) {
        self.lock().remove(&key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Weak<Inbound>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
