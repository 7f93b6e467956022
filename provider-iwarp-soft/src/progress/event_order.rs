//! The order in which events of different connections are delivered.
//!
//! A peer that opens several connections and then ends the first has caused the last `Established`
//! before the first disconnect. The sockets do not keep that order. One read may return both the
//! frame that establishes a connection and the end of this connection, while another thread has
//! just accepted the last connection and still holds it. A consumer that counts events, as OFA's
//! `dtestcm` does, would take the disconnect for one of the `Established`. Without this module
//! `dtestcm` waits for ever in about 1 of 300 runs.
//!
//! So [`EventOrder::defer_disconnect`] defers a disconnect that the peer caused. First, each
//! connection that was accepted before and whose `Established` was not delivered is checked once
//! more. An `Established` that is found is delivered before the disconnect; a connection without
//! one delays nothing. Usually no connection is being accepted; a disconnect then costs one more
//! atomic load.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use host::locks::lock;

use crate::engine::{Engine, Key, Source};

/// The pause before another check of a connection that another thread holds.
const RETRY: Duration = Duration::from_micros(100);
/// The longest time for which a disconnect is deferred: the time in which a Reply must be sent.
const DEFER_MAX: Duration = Duration::from_secs(1);

/// The calls of the event order to a queue pair.
pub(crate) trait OrderedEvents: Debug + Send + Sync {
    /// Receives a frame that may establish an accepted connection, and delivers the resulting
    /// events. Returns true if there is no frame, and false if there may be one: another thread
    /// holds the connection, or its event is being delivered.
    fn poll_for_first_frame(&self) -> bool;

    /// Delivers the disconnect that was deferred.
    fn deliver_deferred(&self);
}

/// The connections of an adapter that are accepted and whose `Established` is not delivered.
#[derive(Debug, Default)]
pub(crate) struct EventOrder {
    count: AtomicUsize,
    pending: Mutex<Vec<Arc<PendingEstablished>>>,
}

/// A connection from the moment before its Reply is sent until its first event is delivered.
#[derive(Debug)]
struct PendingEstablished {
    qp: Weak<dyn OrderedEvents>,
    is_delivered: AtomicBool,
    /// The start of the last check that found no frame.
    quiet_at: Mutex<Option<Instant>>,
}

impl EventOrder {
    /// Called when a Reply is about to be sent for this queue pair.
    pub(crate) fn on_reply(&self, qp: Weak<dyn OrderedEvents>) {
        let connection = PendingEstablished {
            qp,
            is_delivered: AtomicBool::new(false),
            quiet_at: Mutex::default(),
        };
        let mut pending = self.lock();
        pending.push(Arc::new(connection));
        self.count.store(pending.len(), Ordering::SeqCst);
    }

    /// Called when an event of this queue pair was delivered, or no event is expected any more.
    pub(crate) fn on_delivered(&self, qp: &dyn OrderedEvents) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut pending = self.lock();
        pending.retain(|connection| {
            let is_kept = !connection.is_of(qp);
            connection.is_delivered.fetch_or(!is_kept, Ordering::AcqRel);
            is_kept
        });
        self.count.store(pending.len(), Ordering::SeqCst);
    }

    /// Defers the disconnect of `qp` until the earlier events are delivered; the engine then calls
    /// [`OrderedEvents::deliver_deferred`]. Returns false if there are none or the engine has
    /// ended.
    pub(crate) fn defer_disconnect(
        &self,
        engine: &Arc<Engine>,
        qp: Arc<dyn OrderedEvents>,
    ) -> bool {
        let before = self.before_disconnect_of(&*qp);
        if before.is_empty() {
            return false;
        }
        let now = Instant::now();
        let key = engine.new_key();
        let deferred = Arc::new(DeferredDisconnect {
            qp,
            engine: engine.clone(),
            since: now,
            before: Mutex::new(before),
        });
        if engine.enlist(key, deferred).is_err() {
            return false;
        }
        engine.set_deadline(key, Some(now));
        true
    }

    /// The connections that were accepted before a disconnect of `qp`.
    fn before_disconnect_of(&self, qp: &dyn OrderedEvents) -> Vec<Arc<PendingEstablished>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let pending = self.lock();
        let others = pending.iter().filter(|connection| !connection.is_of(qp));
        others.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<PendingEstablished>>> {
        lock(&self.pending)
    }
}

impl PendingEstablished {
    fn is_of(&self, qp: &dyn OrderedEvents) -> bool {
        std::ptr::addr_eq(self.qp.as_ptr(), qp)
    }

    /// Checks the connection, unless that was done since `since`. Returns true if the disconnect
    /// need not wait for it.
    fn is_over(&self, since: Instant) -> bool {
        if self.is_delivered.load(Ordering::Acquire) {
            return true;
        }
        if lock(&self.quiet_at).is_some_and(|at| at >= since) {
            return true;
        }
        let now = Instant::now();
        let Some(qp) = self.qp.upgrade() else {
            return true;
        };
        let is_quiet = qp.poll_for_first_frame();
        if is_quiet {
            *lock(&self.quiet_at) = Some(now);
        }
        is_quiet || self.is_delivered.load(Ordering::Acquire)
    }
}

/// A disconnect that waits for earlier events. The queue pair stores the event itself.
struct DeferredDisconnect {
    qp: Arc<dyn OrderedEvents>,
    engine: Arc<Engine>,
    since: Instant,
    before: Mutex<Vec<Arc<PendingEstablished>>>,
}

impl Source for DeferredDisconnect {
    fn on_deadline(self: Arc<Self>, key: Key) {
        // The lock is not held during the check, which makes upcalls.
        let mut before = std::mem::take(&mut *lock(&self.before));
        before.retain(|connection| !connection.is_over(self.since));
        let is_next = before.is_empty();
        *lock(&self.before) = before;
        let now = Instant::now();
        if is_next || now >= self.since + DEFER_MAX {
            self.engine.delist(key);
            self.qp.deliver_deferred();
        } else {
            self.engine.set_deadline(key, Some(now + RETRY));
        }
    }
}
