//! The inbound connections of one service that have not sent their request.
//!
//! The number of these connections is bounded. A peer sends its request as soon as it is connected.
//! So the connection that has been silent for longest is the least likely to be used, and a new
//! connection replaces it. A connection is replaced only after a grace period, because a program
//! that connects many endpoints in a row may send the first request after it has connected the last
//! endpoint. Until then, new connections wait in the kernel's backlog for the first free place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;

use crate::engine::Key;

/// The inbound connections, each a `T`.
pub(super) struct HalfOpen<T> {
    places: Mutex<Places<T>>,
}

struct Places<T> {
    /// Keys ascend, so the first is the oldest.
    taken: BTreeMap<Key, Place<T>>,
    /// True if the service accepts no connection until a place is free.
    is_awaited: bool,
}

struct Place<T> {
    inbound: Weak<T>,
    since: Instant,
}

/// The room for one more connection.
pub(super) enum Room<T> {
    /// A place is free.
    Free,
    /// The place of this connection, which has been silent for a long time.
    InsteadOf(Arc<T>),
    /// No place until this time, or until a connection is removed.
    At(Instant),
}

impl<T> HalfOpen<T> {
    pub(super) fn new() -> Self {
        let places = Places {
            taken: BTreeMap::new(),
            is_awaited: false,
        };
        Self {
            places: Mutex::new(places),
        }
    }

    /// Returns the room for one more connection. There are at most `max` connections, and each
    /// keeps its place for `grace`.
    pub(super) fn room(&self, max: usize, grace: Duration) -> Room<T> {
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

    /// Adds a connection for which there was room.
    pub(super) fn add(&self, key: Key, inbound: &Arc<T>) {
        let place = Place {
            inbound: Arc::downgrade(inbound),
            since: Instant::now(),
        };
        self.lock().taken.insert(key, place);
    }

    /// Removes a connection that has sent its request or is closed. Returns true if the service
    /// waits for a free place.
    #[must_use]
    pub(super) fn remove(&self, key: Key) -> bool {
        let mut places = self.lock();
        let is_free = places.taken.remove(&key).is_some();
        is_free && std::mem::take(&mut places.is_awaited)
    }

    fn lock(&self) -> MutexGuard<'_, Places<T>> {
        self.places.lock().ignore_poison()
    }
}
