//! The inbound connections of one service that have not sent their request.
//!
//! Their number is bounded. A peer sends its request as soon as it is connected, so one that has
//! been silent for longest is the least likely to mean it: its place goes to a new one. But only
//! after a while, because a program that connects many endpoints in a row may be slower to ask on
//! the first than to connect the last. Until then new ones wait in the kernel, and the first place
//! that becomes free is theirs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::engine::Key;

use super::listen::Inbound;

#[derive(Default)]
pub(super) struct HalfOpen {
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// Keys are given in ascending order, so the first is the oldest.
    taken: BTreeMap<Key, Place>,
    /// The service accepts nobody until a place is free.
    is_awaited: bool,
}

struct Place {
    inbound: Weak<Inbound>,
    since: Instant,
}

/// Where one more connection would go.
pub(super) enum Room {
    Free,
    /// Into the place of this one, which has been silent for long.
    InsteadOf(Arc<Inbound>),
    /// Nowhere until then, or until somebody leaves.
    At(Instant),
}

impl HalfOpen {
    /// Room for one more beside at most `max`, each of which is left in peace for `grace`.
    pub(super) fn room(&self, max: usize, grace: Duration) -> Room {
        let mut places = self.lock();
        places.is_awaited = false;
        if places.taken.len() < max {
            return Room::Free;
        }
        let Some(oldest) = places.taken.first_entry() else {
            return Room::Free;
        };
        match oldest.get().since.checked_add(grace) {
            Some(at) if at > Instant::now() => {
                places.is_awaited = true;
                Room::At(at)
            }
            _ => match oldest.get().inbound.upgrade() {
                Some(inbound) => Room::InsteadOf(inbound),
                None => {
                    oldest.remove();
                    Room::Free
                }
            },
        }
    }

    /// One more, for which there was room.
    pub(super) fn enter(&self, key: Key, inbound: &Arc<Inbound>) {
        let place = Place {
            inbound: Arc::downgrade(inbound),
            since: Instant::now(),
        };
        self.lock().taken.insert(key, place);
    }

    /// One has sent its request, or has gone. Whether the service waits for that.
    #[must_use]
    pub(super) fn leave(&self, key: Key) -> bool {
        let mut places = self.lock();
        let is_free = places.taken.remove(&key).is_some();
        is_free && std::mem::take(&mut places.is_awaited)
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
