//! The order in which news of different connections are told.
//!
//! A peer that makes several connections and then ends the first has caused the last `Established`
//! before the first ending. The sockets do not keep that order: one may bring the frame that
//! establishes its connection and its end in the same read, while another thread has accepted the
//! last connection a moment ago and not let go of it. A consumer that counts events, as OFA's
//! `dtestcm` does, would take the ending for one of the beginnings.
//!
//! So an ending that the peer caused is [`put_off`] until each connection that had been accepted by
//! then and was not yet told has been looked at once more. What is found is told first; a
//! connection that brought nothing keeps nobody waiting. Where nothing is being accepted, which is
//! the rule, an ending costs one atomic load for this.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Key, Source};
use crate::lock::lock;
use crate::qp::Qp;

/// When a connection that another thread holds is looked at again.
const RETRY: Duration = Duration::from_micros(100);
/// How long an ending is put off at most: as long as a Reply may take to be sent.
const PUT_OFF_MAX: Duration = Duration::from_secs(1);

/// The connections of an adapter that are accepted and have not been told.
#[derive(Debug, Default)]
pub(crate) struct Order {
    count: AtomicUsize,
    beginnings: Mutex<Vec<Arc<Beginning>>>,
}

/// A connection from the moment before its Reply leaves until its first news is told.
#[derive(Debug)]
struct Beginning {
    qp: Weak<Qp>,
    is_told: AtomicBool,
    /// When the last look began that found nothing.
    quiet_at: Mutex<Option<Instant>>,
}

/// What a look at a connection that is beginning has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// Its first frame is not there.
    Quiet,
    /// Another thread holds it, or its news is being told.
    Busy,
}

impl Order {
    /// A Reply is about to be sent for this queue pair.
    pub(crate) fn enter(&self, qp: &Arc<Qp>) {
        let beginning = Beginning {
            qp: Arc::downgrade(qp),
            is_told: AtomicBool::new(false),
            quiet_at: Mutex::default(),
        };
        let mut beginnings = self.lock();
        beginnings.push(Arc::new(beginning));
        self.count.store(beginnings.len(), Ordering::SeqCst);
    }

    /// News of this queue pair has been told, or nobody wants it any more.
    pub(crate) fn leave(&self, qp: &Qp) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut beginnings = self.lock();
        beginnings.retain(|beginning| {
            let stays = !beginning.is_of(qp);
            beginning.is_told.fetch_or(!stays, Ordering::AcqRel);
            stays
        });
        self.count.store(beginnings.len(), Ordering::SeqCst);
    }

    /// Those that came before an ending of `qp`.
    fn before_an_end_of(&self, qp: &Qp) -> Vec<Arc<Beginning>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let beginnings = self.lock();
        let others = beginnings.iter().filter(|beginning| !beginning.is_of(qp));
        others.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Beginning>>> {
        lock(&self.beginnings)
    }
}

impl Beginning {
    fn is_of(&self, qp: &Qp) -> bool {
        std::ptr::eq(self.qp.as_ptr(), qp)
    }

    /// Looks, unless that has been done since `since`. Whether nothing more is to be waited for.
    fn is_over(&self, since: Instant) -> bool {
        if self.is_told.load(Ordering::Acquire) {
            return true;
        }
        if lock(&self.quiet_at).is_some_and(|at| at >= since) {
            return true;
        }
        let now = Instant::now();
        let Some(qp) = self.qp.upgrade() else {
            return true;
        };
        match qp.look_for_first_frame() {
            Look::Quiet => {
                *lock(&self.quiet_at) = Some(now);
                true
            }
            Look::Busy => self.is_told.load(Ordering::Acquire),
        }
    }
}

/// Puts the telling of an ending off until what came before it is told. `false`: nothing did, or
/// the engine has ended; the caller tells it.
pub(crate) fn put_off(qp: &Arc<Qp>) -> bool {
    let before = qp.shared.order.before_an_end_of(qp);
    if before.is_empty() {
        return false;
    }
    let now = Instant::now();
    let engine = qp.shared.engine.clone();
    let key = engine.new_key();
    let ending = Arc::new(Ending {
        qp: qp.clone(),
        engine: engine.clone(),
        since: now,
        before: Mutex::new(before),
    });
    if engine.enlist(key, ending).is_err() {
        return false;
    }
    engine.set_deadline(key, Some(now));
    true
}

/// An ending that waits for its turn. The queue pair keeps what there is to tell.
struct Ending {
    qp: Arc<Qp>,
    engine: Arc<Engine>,
    since: Instant,
    before: Mutex<Vec<Arc<Beginning>>>,
}

impl Source for Ending {
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {}

    fn on_deadline(self: Arc<Self>, key: Key) {
        let is_next = {
            let mut before = lock(&self.before);
            before.retain(|beginning| !beginning.is_over(self.since));
            before.is_empty()
        };
        let now = Instant::now();
        if is_next || now >= self.since + PUT_OFF_MAX {
            self.engine.delist(key);
            self.qp.tell_put_off();
        } else {
            self.engine.set_deadline(key, Some(now + RETRY));
        }
    }
}
