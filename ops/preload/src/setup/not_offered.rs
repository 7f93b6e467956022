//! Services that no protocol offered a moment ago.
//!
//! A program that makes many connections to a service on TCP would ask for each of them again, by
//! some fifteen system calls. What is remembered here saves all of them but one. TCP is a correct
//! choice for every connection, so the worst that an old entry does is that a connection within
//! [`TIME`] of the service's first offer is made by TCP.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a service counts as not offered.
const TIME: Duration = Duration::from_millis(100);
/// Services that are remembered.
const ENTRIES: usize = 8;

/// The latest entries, of which the oldest is replaced.
#[derive(Debug)]
struct Entries {
    all: [Option<(SocketAddr, Instant)>; ENTRIES],
    oldest: usize,
}

/// The entries, which are valid in the child of a fork as well. A lock that is held at the fork
/// stays held in the child, which then remembers nothing.
static RECENT: Mutex<Entries> = Mutex::new(Entries {
    all: [None; ENTRIES],
    oldest: 0,
});

/// Remembers a service that no protocol offers.
pub(crate) fn remember(service: SocketAddr) {
    // A signal handler may connect, so nobody waits for the lock.
    if let Ok(mut entries) = RECENT.try_lock() {
        entries.add(service, Instant::now());
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

    fn has(&self, service: SocketAddr, now: Instant) -> bool {
        let is_it = |(of, at): &(SocketAddr, Instant)| {
            *of == service && now.saturating_duration_since(*at) < TIME
        };
        self.all.iter().flatten().any(is_it)
    }
}
