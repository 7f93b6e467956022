//! Queue pairs.
//!
//! | File | What |
//! |---|---|
//! | `lifecycle` | the states of its connection |

mod lifecycle;

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use access_layer::rnic::{QpAttr, QpToken, Resource, RnicError};
use verbs_dl::types::*;

use crate::cm::Connection;
use crate::cq::Cq;
use crate::device::{Transport, checked};
use crate::memory::{Pd, of, refused};
use crate::rnic::Shared;
use crate::srq::Srq;

pub(crate) use lifecycle::Lifecycle;

/// What a queue pair is made of.
#[derive(Debug)]
pub(crate) struct QpParts {
    pub(crate) pd: Arc<Pd>,
    pub(crate) send_cq: Arc<Cq>,
    pub(crate) recv_cq: Arc<Cq>,
    pub(crate) srq: Option<Arc<Srq>>,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) shared: Arc<Shared>,
    pub(crate) token: QpToken,
    pub(crate) attr: QpAttr,
    /// The connection manager's part, from an attempt to its end.
    pub(crate) connection: Mutex<Option<Arc<Connection>>>,
    parts: QpParts,
    /// The device's queue pair; null when it was destroyed. Replaced by a reset.
    hw: Mutex<Hw>,
    stage: Mutex<Lifecycle>,
    stage_changed: Condvar,
    /// What `stage` holds, for readers without the lock.
    stage_seen: AtomicU8,
}

#[derive(Debug)]
struct Hw(*mut ibv_qp);

// SAFETY: verbs objects may be used by any thread (ibv_create_qp(3)).
unsafe impl Send for Hw {}

impl Qp {
    /// Makes a queue pair that takes receives.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        parts: QpParts,
        attr: QpAttr,
        token: QpToken,
    ) -> Result<Arc<Self>, RnicError> {
        let hw = create(shared, &parts, &attr)?;
        Ok(Arc::new(Self {
            shared: shared.clone(),
            token,
            attr,
            connection: Mutex::new(None),
            parts,
            hw: Mutex::new(Hw(hw)),
            stage: Mutex::new(Lifecycle::Idle),
            stage_changed: Condvar::new(),
            stage_seen: AtomicU8::new(Lifecycle::Idle as u8),
        }))
    }

    /// Where it stands now.
    pub(crate) fn lifecycle(&self) -> Lifecycle {
        Lifecycle::from_u8(self.stage_seen.load(Ordering::Acquire))
    }

    /// The number by which the connection manager and the peer know it; another one after a reset.
    pub(crate) fn num(&self) -> u32 {
        let hw = lock(&self.hw);
        // SAFETY: null, or alive while the lock is held.
        unsafe { hw.0.as_ref() }.map_or(0, |qp| qp.qp_num)
    }

    /// Whether it takes its receives from a shared receive queue.
    pub(crate) fn has_srq(&self) -> bool {
        self.parts.srq.is_some()
    }

    /// `ibv_modify_qp`.
    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> io::Result<()> {
        let hw = lock(&self.hw);
        modify(&self.shared, hw.0, attr, mask)
    }

    /// Whether the device has put it into the error state: its connection broke and was not ended
    /// in good order.
    pub(crate) fn is_in_error(&self) -> bool {
        let hw = lock(&self.hw);
        if hw.0.is_null() {
            return true;
        }
        // SAFETY: structures of numbers and pointers, for which zero is a value.
        let (mut attr, mut init): (ibv_qp_attr, ibv_qp_init_attr) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let (state, verbs) = (IBV_QP_STATE as i32, &self.shared.device.libraries.verbs);
        // SAFETY: alive while the lock is held, and places of this frame.
        let code = unsafe { verbs.ibv_query_qp(hw.0, &raw mut attr, state, &raw mut init) };
        code != 0 || attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE
    }

    /// Idle to connecting: `connect` and `accept` begin with it.
    pub(crate) fn begin_attempt(&self) -> Result<(), RnicError> {
        let busy = RnicError::InvalidState("the queue pair is not idle");
        self.advance(Lifecycle::on_attempt)
            .then_some(())
            .ok_or(busy)
    }

    /// Back to idle: the call that began the attempt fails, and nothing has changed.
    pub(crate) fn abandon_attempt(&self) {
        self.advance(Lifecycle::on_abandon);
    }

    /// Connecting to connected. To be called before `Established` is told; `false`: the attempt was
    /// ended meanwhile, and nothing is to be told.
    pub(crate) fn establish(&self) -> bool {
        self.advance(Lifecycle::on_establish)
    }

    /// Ends the connection or the attempt: takes back from the device what is posted. When it
    /// returns, everything has completed, and the ending may be told.
    ///
    /// `false`: there was nothing to end, or another thread ends it; then it has ended when this
    /// returns. Who gets `true` tells the ending.
    pub(crate) fn finish(&self) -> bool {
        if !self.advance(Lifecycle::on_end) {
            let mut stage = lock(&self.stage);
            while *stage == Lifecycle::Ending {
                stage = self
                    .stage_changed
                    .wait(stage)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            return false;
        }
        self.drain();
        self.advance(Lifecycle::on_drained)
    }

    /// Takes what the device has completed into the queues of its CQs, and tells how many requests
    /// have not completed. For a graceful ending, which waits for 0.
    pub(crate) fn requests_left(&self) -> u32 {
        0
    }

    /// Disconnected to idle, or idle as it is.
    pub(crate) fn reset(&self) -> Result<(), RnicError> {
        match self.lifecycle() {
            Lifecycle::Idle => return Ok(()),
            Lifecycle::Disconnected => {}
            _ => return Err(RnicError::InvalidState("the queue pair is in use")),
        }
        // A new one, not the old one reset: its number is new as well, so that a peer's connection
        // manager does not take the next connection for a stale copy of the last, and iWARP devices
        // cannot leave the error state at all.
        let new = create(&self.shared, &self.parts, &self.attr)?;
        let old = std::mem::replace(&mut *lock(&self.hw), Hw(new));
        destroy(&self.shared, old.0);
        self.advance(Lifecycle::on_reset);
        Ok(())
    }

    /// Destroys the device's queue pair: nobody will use it any more.
    pub(crate) fn retire(&self) {
        self.finish();
        let old = std::mem::replace(&mut *lock(&self.hw), Hw(ptr::null_mut()));
        destroy(&self.shared, old.0);
    }

    fn drain(&self) {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = IBV_QPS_ERR;
        if let Err(why) = self.modify(&mut attr, IBV_QP_STATE) {
            tracing::debug!(qp = self.token.0, %why, "no error state entered");
        }
    }

    fn advance(&self, event: impl Fn(Lifecycle) -> Option<Lifecycle>) -> bool {
        let mut stage = lock(&self.stage);
        let Some(next) = event(*stage) else {
            return false;
        };
        *stage = next;
        self.stage_seen.store(next as u8, Ordering::Release);
        self.stage_changed.notify_all();
        true
    }
}

/// Makes the device's queue pair and brings it to the state in which it takes receives.
fn create(shared: &Arc<Shared>, parts: &QpParts, attr: &QpAttr) -> Result<*mut ibv_qp, RnicError> {
    let verbs = &shared.device.libraries.verbs;
    // SAFETY: a structure of numbers and pointers, for which zero is a value.
    let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    init.send_cq = parts.send_cq.hw();
    init.recv_cq = parts.recv_cq.hw();
    init.qp_type = IBV_QPT_RC;
    init.cap = ibv_qp_cap {
        max_send_wr: attr.send_wr_max.max(1),
        max_recv_wr: attr.recv_wr_max.max(1),
        max_send_sge: attr.send_sge_max.max(1),
        max_recv_sge: attr.recv_sge_max.max(1),
        max_inline_data: 0,
    };
    // SAFETY: domain and queues are alive; the structure is of this frame.
    let qp = unsafe { verbs.ibv_create_qp(parts.pd.hw(), &raw mut init) };
    if qp.is_null() {
        return Err(refused(Resource::QueuePair));
    }
    let (mut attr, mask) = initial(shared);
    if let Err(why) = modify(shared, qp, &mut attr, mask) {
        destroy(shared, qp);
        return Err(of(why, Resource::QueuePair));
    }
    Ok(qp)
}

/// What leads from the first state to the one in which receives may be posted.
fn initial(shared: &Shared) -> (ibv_qp_attr, u32) {
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
    let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    attr.qp_state = IBV_QPS_INIT;
    attr.qp_access_flags = access;
    attr.port_num = shared.device.port;
    let mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS;
    match shared.device.transport {
        Transport::Iwarp => (attr, mask),
        Transport::InfiniBand => {
            if shared.device.attr.atomic_cap != IBV_ATOMIC_NONE {
                attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
            }
            (attr, mask | IBV_QP_PKEY_INDEX | IBV_QP_PORT)
        }
    }
}

fn modify(shared: &Shared, qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: u32) -> io::Result<()> {
    if qp.is_null() {
        return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
    }
    // SAFETY: alive (callers hold its lock or have just made it); the structure is read only.
    checked(unsafe {
        shared
            .device
            .libraries
            .verbs
            .ibv_modify_qp(qp, attr, mask as i32)
    })
}

fn destroy(shared: &Shared, qp: *mut ibv_qp) {
    if !qp.is_null() {
        // SAFETY: made by us, and nobody reaches it any more.
        unsafe { shared.device.libraries.verbs.ibv_destroy_qp(qp) };
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
