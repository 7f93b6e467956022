//! The inbound connections of one listener that have not sent their first message: the request of a
//! connection to a service, or the hello of a process of this host.
//!
//! The number of these connections is bounded, also by the limit of the process's descriptors. A
//! peer sends its message as soon as it is connected. So the connection that has been silent for
//! longest is the least likely to be used, and a new connection replaces it. A connection is
//! replaced only after a grace period, because a program that connects many endpoints in a row may
//! send the first request after it has connected the last endpoint. Until then, new connections
//! wait in the kernel's backlog for the first free place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;

use crate::engine::Key;

/// The part of the limit of descriptors that the connections of one listener may use.
const LIMIT_SHARE: usize = 8;

/// The inbound connections, each a `T`.
pub(crate) struct HalfOpen<T> {
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
pub(crate) enum Room<T> {
    /// A place is free.
    Free,
    /// The place of this connection, which has been silent for a long time.
    InsteadOf(Arc<T>),
    /// No place until this time, or until a connection is removed.
    At(Instant),
}

impl<T> HalfOpen<T> {
    pub(crate) fn new() -> Self {
        let places = Places {
            taken: BTreeMap::new(),
            is_awaited: false,
        };
        Self {
            places: Mutex::new(places),
        }
    }

    /// Returns the room for one more connection. There are at most `max` connections, and at most a
    /// number in proportion to the limit of descriptors. Each keeps its place for `grace`.
    pub(crate) fn room(&self, max: usize, grace: Duration) -> Room<T> {
        let mut places = self.lock();
        places.is_awaited = false;
        if places.taken.len() < max.min(host::descriptors::limit() / LIMIT_SHARE).max(1) {
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

    /// Returns the place of the oldest connection, for a new connection that the process has no
    /// descriptor for. It keeps its place for `grace`.
    pub(crate) fn oldest(&self, grace: Duration) -> Option<Room<T>> {
        let is_empty = self.lock().taken.is_empty();
        (!is_empty).then(|| self.room(1, grace))
    }

    /// Adds a connection for which there was room.
    pub(crate) fn add(&self, key: Key, inbound: &Arc<T>) {
        let place = Place {
            inbound: Arc::downgrade(inbound),
            since: Instant::now(),
        };
        self.lock().taken.insert(key, place);
    }

    /// Removes a connection that has sent its request or is closed. Returns true if the service
    /// waits for a free place.
    #[must_use]
    pub(crate) fn remove(&self, key: Key) -> bool {
        let mut places = self.lock();
        let is_free = places.taken.remove(&key).is_some();
        is_free && std::mem::take(&mut places.is_awaited)
    }

    fn lock(&self) -> MutexGuard<'_, Places<T>> {
        self.places.lock().ignore_poison()
    }
}
