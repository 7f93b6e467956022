//! A cache of services that no protocol offers.
//!
//! Checking whether a service is offered takes some ten system calls. For a program that makes many
//! connections to one service on TCP, this cache saves all of them. TCP is correct for every
//! connection, so the worst effect of an old entry is that a connection within [`TIME`] of the
//! service's first offer by another process uses TCP.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The time for which a service counts as not offered.
const TIME: Duration = Duration::from_millis(100);
/// The number of cached services.
const ENTRIES: usize = 8;

/// The latest entries; a new entry replaces the oldest.
#[derive(Debug)]
struct Entries {
    all: [Option<(SocketAddr, Instant)>; ENTRIES],
    oldest: usize,
}

/// The cache of this process. A parent's entries are valid for the child of a fork. If the lock is
/// held at the fork, it stays held in the child, and the child's cache has no effect.
static RECENT: Mutex<Entries> = Mutex::new(Entries {
    all: [None; ENTRIES],
    oldest: 0,
});

/// Caches a service that no protocol offers.
pub(crate) fn remember(service: SocketAddr) {
    // The lock is only tried, because a signal handler that interrupted its holder may connect too.
    if let Ok(mut entries) = RECENT.try_lock() {
        entries.add(service, Instant::now());
    }
}

/// Forgets the services of a port, because this process offers one of them now.
pub(crate) fn forget(port: u16) {
    if let Ok(mut entries) = RECENT.try_lock() {
        entries.remove(port);
    }
}

/// Returns true for a service that no protocol offered a moment ago.
pub(crate) fn is_recent(service: SocketAddr) -> bool {
    let entries = RECENT.try_lock();
    entries.is_ok_and(|entries| entries.has(service, Instant::now()))
}

impl Entries {
    fn add(&mut self, service: SocketAddr, now: Instant) {
        self.all[self.oldest] = Some((service, now));
        self.oldest = (self.oldest + 1) % ENTRIES;
    }

    fn remove(&mut self, port: u16) {
        for entry in &mut self.all {
            *entry = entry.filter(|(service, _)| service.port() != port);
        }
    }

    fn has(&self, service: SocketAddr, now: Instant) -> bool {
        let is_it = |(of, at): &(SocketAddr, Instant)| {
            *of == service && now.saturating_duration_since(*at) < TIME
        };
        self.all.iter().flatten().any(is_it)
    }
}
