//! Work requests that are posted to the device.
//!
//! | File | Contents |
//! |---|---|
//! | `ring` | the requests of one queue, in order |
//! | `receives` | the receives of a shared receive queue, in slots |
//! | `ticket` | the `wr_id` that a work request carries through the device |
//!
//! A failed completion of the device has a valid `wr_id` and status only. DAT also needs the
//! operation, the length, and whether the consumer wants a completion. So each queue keeps its
//! posted requests, and the device carries a [`Ticket`] that identifies one of them.

mod receives;
mod ring;
mod ticket;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rnic::{Completion, Notify, QpToken, WcOpcode, WcStatus};

pub(crate) use receives::Receives;
pub(crate) use ring::{At, Posted, Ring, Taken};
pub(crate) use ticket::{EPOCHS, Kind, PLACES, SHARED_QUEUES, Ticket};

use host::locks::lock;

/// The work of one queue pair, for its completion queues.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) token: QpToken,
    /// The send queue. Posting needs the queue pair's send lock; taking needs the send CQ's lock.
    pub(crate) sends: Ring,
    /// The receive queue. Posting needs the receive lock; taking needs the receive CQ's lock.
    pub(crate) recvs: Ring,
    /// The shared receive queue, if the queue pair takes its receives from one.
    pub(crate) srq: Option<Arc<Receives>>,
    /// The number of device queue pairs that this queue pair has had: a reset creates a new one.
    epoch: AtomicU32,
    failed: AtomicBool,
    /// Numbers of the binds of this epoch that the device has not executed.
    undone_binds: Mutex<Vec<u32>>,
}

impl Work {
    /// Creates empty queues; `None` if there is no memory for them.
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
        })
    }

    /// The epoch of the device's queue pair to which new requests are posted.
    pub(crate) fn epoch(&self) -> u16 {
        (self.epoch.load(Ordering::Relaxed) % u32::from(EPOCHS)) as u16
    }

    /// Called when the device's queue pair is replaced. Completions of the former one are ignored
    /// from then on.
    pub(crate) fn begin_epoch(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
        lock(&self.undone_binds).clear();
    }

    /// Records the outcome of a request of the send queue. A bind that failed has left its window
    /// unchanged.
    pub(crate) fn note_outcome(&self, sequence: u32, posted: &Posted, status: WcStatus) {
        if posted.opcode == WcOpcode::BindMw && status != WcStatus::Success {
            lock(&self.undone_binds).push(sequence);
        }
    }

    /// True if the device has executed the bind of this number, as far as it has reported.
    pub(crate) fn has_bound(&self, sequence: u32) -> bool {
        !self.sends.has(sequence) && !lock(&self.undone_binds).contains(&sequence)
    }

    /// Records that a request failed by itself, not by a flush. Returns the queue pair to report,
    /// the first time only.
    pub(crate) fn note_failure(&self) -> Option<QpToken> {
        let first = !self.failed.swap(true, Ordering::Relaxed);
        first.then_some(self.token)
    }

    /// True if a request failed by itself, not by a flush, since the last reset.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// The completion of a request, without the fields that are valid on success only.
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

    /// The completion of a request of the send queue; `None` if the consumer wants none.
    pub(crate) fn sent(&self, posted: &Posted, status: WcStatus) -> Option<Completion> {
        let failed = status != WcStatus::Success;
        (posted.at != At::Marker && (posted.wants_completion || failed))
            .then(|| self.completion(posted, status))
    }

    /// The completion of a request that will not be executed.
    pub(crate) fn flushed(&self, posted: &Posted) -> Completion {
        self.completion(posted, WcStatus::Flushed)
    }
}
