//! The engine's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use host::threads::{Thread, catch_panic, spawn_quiet};
use rnic::{Resource, RnicError};
use rustix::io::Errno;

use super::Engine;
use super::poller::{Poller, Ready, readiness};

/// The time for which an engine that ends waits for the peers of connections that have ended:
/// closing a socket with unread data would turn a graceful close into a reset.
const LAST_MOMENT: Duration = Duration::from_millis(250);

/// Starts the thread, which receives none of the consumer's signals.
pub(super) fn spawn(engine: Arc<Engine>) -> Result<Thread, RnicError> {
    let thread = spawn_quiet("iwarp-engine", move || Worker::new(engine).run());
    thread.map_err(|_| RnicError::NoResources(Resource::Memory))
}

struct Worker {
    engine: Arc<Engine>,
    stop_at: Option<Instant>,
}

impl Worker {
    fn new(engine: Arc<Engine>) -> Self {
        Self {
            engine,
            stop_at: None,
        }
    }

    fn run(mut self) {
        super::slice::request_short_slices();
        let mut ready = Poller::room();
        while !self.is_over() {
            ready.clear();
            if let Err(error) = self.sleep(&mut ready) {
                tracing::error!(%error, "the engine's poller failed; connections are not served");
                return;
            }
            for (key, readable, writable) in ready.iter().filter_map(readiness) {
                let source = self.engine.lock().sources.get(&key).cloned();
                if let Some(source) = source {
                    catch_panic(|| source.on_ready(key, readable, writable));
                }
            }
            self.expire();
        }
    }

    /// True if the thread must end and no ended connection needs more time for its peer to close.
    fn is_over(&mut self) -> bool {
        if !self.engine.stop.load(Ordering::Acquire) {
            return false;
        }
        let now = Instant::now();
        let until = *self.stop_at.get_or_insert(now + LAST_MOMENT);
        now >= until || self.engine.lingering.load(Ordering::Acquire) == 0
    }

    fn sleep(&mut self, ready: &mut Ready) -> Result<(), Errno> {
        let mut table = self.engine.lock();
        let until = match (table.timers.next(), self.stop_at) {
            (Some(until), Some(stop)) => Some(until.min(stop)),
            (until, stop) => until.or(stop),
        };
        table.is_asleep = true;
        table.sleeps_until = until;
        drop(table);
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let result = self.engine.poller.wait(ready, timeout);
        self.engine.lock().is_asleep = false;
        result
    }

    fn expire(&self) {
        let now = Instant::now();
        loop {
            let mut table = self.engine.lock();
            let Some(key) = table.timers.pop_expired(now) else {
                return;
            };
            let source = table.sources.get(&key).cloned();
            drop(table);
            if let Some(source) = source {
                catch_panic(|| source.on_deadline(key));
            }
        }
    }
}
