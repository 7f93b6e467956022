//! The registration of a connection within the host in an `epoll` set.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::epoll_event;

/// The registration of a descriptor, which may be stale. Its words are written one after the other,
/// so a reader checks that the descriptor is a connection and has the data.
pub(super) struct Watch {
    /// The number of the set plus one; 0 without a registration.
    set: AtomicI32,
    events: AtomicU32,
    data: AtomicU64,
}

impl Watch {
    pub(super) const fn new() -> Self {
        Self {
            set: AtomicI32::new(0),
            events: AtomicU32::new(0),
            data: AtomicU64::new(0),
        }
    }

    pub(super) fn clear(&self) {
        self.set.store(0, Ordering::Relaxed);
    }

    /// Records a registration. Returns false if another set had watched the descriptor.
    pub(super) fn record(&self, set: c_int, event: epoll_event) -> bool {
        self.data.store(event.u64, Ordering::Relaxed);
        self.events.store(event.events, Ordering::Relaxed);
        let number = set.saturating_add(1);
        let before = self.set.swap(number, Ordering::Relaxed);
        before == 0 || before == number
    }

    pub(super) fn registration(&self) -> Option<Registration> {
        let set = self.set.load(Ordering::Relaxed);
        let event = epoll_event {
            events: self.events.load(Ordering::Relaxed),
            u64: self.data.load(Ordering::Relaxed),
        };
        (set > 0).then(|| Registration {
            set: set - 1,
            event,
        })
    }
}

/// A set that watches a descriptor, with its events.
#[derive(Clone, Copy)]
pub(crate) struct Registration {
    pub(crate) set: c_int,
    pub(crate) event: epoll_event,
}
