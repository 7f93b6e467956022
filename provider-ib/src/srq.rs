//! Shared receive queues.
//!
//! The receives of a shared queue complete in any order, so each has a slot instead of an index in
//! a ring.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use access_layer::rnic::{RecvWr, Resource, RnicError, SrqToken, WcOpcode};
use host::locks::lock;
use verbs_dl::types::*;

use crate::device::checked;
use crate::memory::{Pd, of, refused};
use crate::segments::Segments;
use crate::work::{At, Posted, SHARED_QUEUES, Ticket};

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    hw: NonNull<ibv_srq>,
    pub(crate) pd: Arc<Pd>,
    sge_max: u32,
    depth: AtomicU32,
    receives: Arc<Receives>,
}

// SAFETY: verbs objects may be used by any thread (ibv_create_srq(3)).
unsafe impl Send for Srq {}
// SAFETY: verbs objects may be used by any thread (ibv_create_srq(3)).
unsafe impl Sync for Srq {}

/// The posted receives, for the completion queues.
#[derive(Debug)]
pub(crate) struct Receives {
    number: u32,
    slots: Mutex<Slots>,
}

/// The consumer's identifiers of the posted receives.
#[derive(Debug, Default)]
struct Slots {
    wr_ids: Vec<Option<u64>>,
    free: Vec<u32>,
}

/// The number of the next queue. A number is used again after 2^30 queues.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl Srq {
    /// Creates a queue for `depth` receives.
    pub(crate) fn new(
        pd: &Arc<Pd>,
        depth: u32,
        sge_max: u32,
        token: SrqToken,
    ) -> Result<Arc<Self>, RnicError> {
        let mut init = ibv_srq_init_attr {
            srq_context: ptr::without_provenance_mut(token.0 as usize),
            attr: ibv_srq_attr {
                max_wr: depth,
                max_sge: sge_max,
                srq_limit: 0,
            },
        };
        let verbs = &pd.shared.device.libraries.verbs;
        // SAFETY: the domain is alive, `init` is on the stack of this call, and the library only
        // stores the context.
        let hw = unsafe { verbs.ibv_create_srq(pd.hw(), &raw mut init) };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::SharedReceiveQueue))?;
        Ok(Arc::new(Self {
            hw,
            pd: pd.clone(),
            sge_max,
            depth: AtomicU32::new(depth),
            receives: Arc::default(),
        }))
    }

    /// The posted receives, for the completion queues of the queue pairs.
    pub(crate) fn receives(&self) -> &Arc<Receives> {
        &self.receives
    }

    pub(crate) fn hw(&self) -> *mut ibv_srq {
        self.hw.as_ptr()
    }

    /// Posts one receive.
    pub(crate) fn post(&self, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        let needs_one = !self.pd.shared.device.quirks().receives_without_segments;
        let mut segments = Segments::of_receive(wr.sgl, self.sge_max, needs_one)?;
        let mut slots = self.receives.lock();
        let slot = slots.take_slot(wr.wr_id, self.depth.load(Ordering::Relaxed))?;
        let mut request = ibv_recv_wr {
            wr_id: Ticket::of_shared(self.receives.number, slot).encode(),
            next: ptr::null_mut(),
            sg_list: segments.as_mut_ptr(),
            num_sge: segments.count(),
        };
        // SAFETY: the queue is alive; the request and its segments are on the stack of this call.
        let posted = unsafe { verbs_dl::post_srq_recv(self.hw(), &raw mut request) };
        posted.map_err(|why| {
            slots.empty(slot);
            of(why, Resource::WorkRequest)
        })
    }

    /// Changes the number of receives that the queue can hold.
    pub(crate) fn resize(&self, depth: u32) -> Result<(), RnicError> {
        if self.available() > depth {
            return Err(RnicError::InvalidState("more receives than the new depth"));
        }
        self.modify(depth, 0, IBV_SRQ_MAX_WR)?;
        self.depth.store(depth, Ordering::Relaxed);
        Ok(())
    }

    /// Requests one event when fewer than `limit` receives are left.
    pub(crate) fn arm(&self, limit: u32) -> Result<(), RnicError> {
        self.modify(0, limit, IBV_SRQ_LIMIT)
    }

    fn modify(
        &self,
        max_wr: u32,
        srq_limit: u32,
        mask: ibv_srq_attr_mask,
    ) -> Result<(), RnicError> {
        let mut attr = ibv_srq_attr {
            max_wr,
            max_sge: self.sge_max,
            srq_limit,
        };
        let verbs = &self.pd.shared.device.libraries.verbs;
        // SAFETY: the queue is alive and `attr` is on the stack of this call.
        let code = unsafe { verbs.ibv_modify_srq(self.hw(), &raw mut attr, mask as i32) };
        checked(code).map_err(|why| of(why, Resource::SharedReceiveQueue))
    }

    /// The number of posted receives that no message has completed.
    pub(crate) fn available(&self) -> u32 {
        self.receives.left()
    }
}

impl Default for Receives {
    fn default() -> Self {
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed) % SHARED_QUEUES,
            slots: Mutex::default(),
        }
    }
}

impl Receives {
    /// The number of this queue in a [`Ticket`].
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Takes the receive in a slot, which a message has completed; `None` if the slot is empty.
    pub(crate) fn take(&self, slot: u32) -> Option<Posted> {
        Some(Posted {
            wr_id: self.lock().empty(slot)?,
            len: 0,
            opcode: WcOpcode::Recv,
            wants_completion: true,
            signalled: true,
            at: At::Device,
        })
    }

    /// The number of receives that no message has completed.
    pub(crate) fn left(&self) -> u32 {
        let slots = self.lock();
        (slots.wr_ids.len() - slots.free.len()) as u32
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        lock(&self.slots)
    }
}

impl Slots {
    /// Takes a slot for a receive, as long as fewer than `depth` are in use.
    fn take_slot(&mut self, wr_id: u64, depth: u32) -> Result<u32, RnicError> {
        let used = self.wr_ids.len() - self.free.len();
        if used >= depth as usize {
            return Err(RnicError::NoResources(Resource::WorkRequest));
        }
        if let Some(slot) = self.free.pop() {
            self.wr_ids[slot as usize] = Some(wr_id);
            return Ok(slot);
        }
        let full = |_| RnicError::NoResources(Resource::Memory);
        self.wr_ids.try_reserve(1).map_err(full)?;
        // Reserves room for every slot that may become free, so that `take` never allocates.
        self.free.try_reserve(self.wr_ids.len() + 1).map_err(full)?;
        self.wr_ids.push(Some(wr_id));
        Ok((self.wr_ids.len() - 1) as u32)
    }

    /// Takes the content of a slot, which becomes free.
    fn empty(&mut self, slot: u32) -> Option<u64> {
        let wr_id = self.wr_ids.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(wr_id)
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: created by `Srq::new`; queue pairs keep their shared receive queue alive, so none
        // uses it any more.
        unsafe {
            self.pd
                .shared
                .device
                .libraries
                .verbs
                .ibv_destroy_srq(self.hw())
        };
    }
}

#[cfg(test)]
impl Receives {
    /// Records a receive of a queue without a device and returns its ticket.
    pub(crate) fn record(&self, wr_id: u64) -> Ticket {
        let slot = self.lock().take_slot(wr_id, u32::MAX).unwrap();
        Ticket::of_shared(self.number, slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again_and_bounded() {
        let mut slots = Slots::default();
        assert_eq!(slots.take_slot(10, 2).unwrap(), 0);
        assert_eq!(slots.take_slot(11, 2).unwrap(), 1);
        let full = slots.take_slot(12, 2);
        assert!(matches!(
            full,
            Err(RnicError::NoResources(Resource::WorkRequest))
        ));
        assert_eq!(slots.empty(0), Some(10));
        assert_eq!(slots.empty(0), None, "a second time");
        assert_eq!(slots.empty(2), None, "never");
        assert_eq!(slots.take_slot(13, 2).unwrap(), 0);
        assert_eq!(slots.wr_ids, [Some(13), Some(11)]);
    }
}
