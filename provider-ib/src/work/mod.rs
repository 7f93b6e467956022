//! Work requests that the device has.
//!
//! | File | What |
//! |---|---|
//! | `ring` | the requests of one queue, in order |
//! | `ticket` | what a work request carries through the device |
//!
//! A failed completion of the device is good for its `wr_id` and its status only, and DAT wants to
//! know of it what it was, how long, and whether the consumer is to hear of it. So each queue keeps
//! what was posted, and the device carries a [`Ticket`] that finds it again.

mod ring;
mod ticket;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use access_layer::rnic::{Completion, Notify, QpToken, WcOpcode, WcStatus};

pub(crate) use ring::{At, Posted, Ring, Taken};
pub(crate) use ticket::{EPOCHS, Kind, PLACES, SHARED_QUEUES, Ticket};

use crate::lock::lock;
use crate::qp::Qp;
use crate::srq::Receives;

/// The work of one queue pair, as its completion queues see it.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) token: QpToken,
    /// The send queue. Posting needs the queue pair's send lock, taking the send CQ's.
    pub(crate) sends: Ring,
    /// The receive queue, likewise.
    pub(crate) recvs: Ring,
    /// The shared receive queue from which its receives come instead.
    pub(crate) srq: Option<Arc<Receives>>,
    /// Counts the device's queue pairs that this one has had: a reset makes a new one.
    epoch: AtomicU32,
    failed: AtomicBool,
    /// Binds that the device has not done, of this epoch, by their numbers in the send queue.
    undone_binds: Mutex<Vec<u32>>,
    owner: OnceLock<Weak<Qp>>,
}

impl Work {
    /// Empty queues; `None` when there is no memory for them.
    pub(crate) fn new(
        token: QpToken,
        sends: u32,
        recvs: u32,
        srq: Option<Arc<Receives>>,
    ) -> Option<Self> {
        Some(Self {
            token,
            sends: Ring::new(sends)?,
            recvs: Ring::new(recvs)?,
            srq,
            epoch: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            undone_binds: Mutex::default(),
            owner: OnceLock::new(),
        })
    }

    /// Says whose work it is; once.
    pub(crate) fn belongs_to(&self, owner: Weak<Qp>) {
        let _ = self.owner.set(owner);
    }

    /// Which of the device's queue pairs new requests go to.
    pub(crate) fn epoch(&self) -> u16 {
        (self.epoch.load(Ordering::Relaxed) % u32::from(EPOCHS)) as u16
    }

    /// The device's queue pair is replaced: completions of the former one mean nothing any more.
    pub(crate) fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
        lock(&self.undone_binds).clear();
    }

    /// A request of the send queue has this outcome. A bind that failed has left its window as it
    /// was.
    pub(crate) fn note_outcome(&self, sequence: u32, posted: &Posted, status: WcStatus) {
        if posted.opcode == WcOpcode::BindMw && status != WcStatus::Success {
            lock(&self.undone_binds).push(sequence);
        }
    }

    /// Whether the device has done the bind of this number, as far as it has said.
    pub(crate) fn has_bound(&self, sequence: u32) -> bool {
        !self.sends.has(sequence) && !lock(&self.undone_binds).contains(&sequence)
    }

    /// A request failed by itself. The queue pair to report, the first time.
    pub(crate) fn note_failure(&self) -> Option<Weak<Qp>> {
        let first = !self.failed.swap(true, Ordering::Relaxed);
        first.then(|| self.owner.get().cloned()).flatten()
    }

    /// Whether a request failed by itself since the last reset.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The completion of a request without what only a success says.
    pub(crate) fn completion(&self, posted: &Posted, status: WcStatus) -> Completion {
        let is_receive = posted.opcode == WcOpcode::Recv;
        Completion {
            wr_id: posted.wr_id,
            qp: self.token,
            opcode: posted.opcode,
            status,
            byte_len: if is_receive { 0 } else { posted.len },
            notify: if posted.signalled {
                Notify::Always
            } else {
                Notify::Never
            },
            ..Completion::EMPTY
        }
    }

    /// The completion of a request of the send queue; `None`: nobody wants to hear of it.
    pub(crate) fn sent(&self, posted: &Posted, status: WcStatus) -> Option<Completion> {
        let failed = status != WcStatus::Success;
        (posted.at != At::Marker && (posted.told || failed))
            .then(|| self.completion(posted, status))
    }

    /// The completion of a request that will not be done.
    pub(crate) fn flushed(&self, posted: &Posted) -> Completion {
        self.completion(posted, WcStatus::Flushed)
    }
}
