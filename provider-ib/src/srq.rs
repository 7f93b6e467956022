//! Shared receive queues.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rnic::{RecvWr, Resource, RnicError, SrqToken};
use verbs_dl::types::*;

use crate::device::{checked, of, refused};
use crate::memory::Pd;
use crate::segments::Segments;
use crate::work::Receives;

/// A shared receive queue.
#[derive(Debug)]
pub struct Srq {
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

impl Srq {
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
        let verbs = pd.shared.verbs();
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

    pub(crate) fn post(&self, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        let needs_one = !self.pd.shared.device.quirks().receives_without_segments;
        let mut segments = Segments::of_receive(wr.sgl, self.sge_max, needs_one)?;
        let depth = self.depth.load(Ordering::Relaxed);
        self.receives.post(wr.wr_id, depth, |ticket| {
            let mut request = ibv_recv_wr {
                wr_id: ticket.encode(),
                next: ptr::null_mut(),
                sg_list: segments.as_mut_ptr(),
                num_sge: segments.count(),
            };
            // SAFETY: the queue is alive; the request and its segments are on the stack of this
            // call.
            let posted = unsafe { verbs_dl::post_srq_recv(self.hw(), &raw mut request) };
            posted.map_err(|why| of(why, Resource::WorkRequest))
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
        let verbs = self.pd.shared.verbs();
        // SAFETY: the queue is alive and `attr` is on the stack of this call.
        let code = unsafe { verbs.ibv_modify_srq(self.hw(), &raw mut attr, mask as i32) };
        checked(code).map_err(|why| of(why, Resource::SharedReceiveQueue))
    }

    /// The number of posted receives that no message has completed.
    pub(crate) fn available(&self) -> u32 {
        self.receives.left()
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: created by `Srq::new`; queue pairs keep their shared receive queue alive, so none
        // uses it any more.
        unsafe { self.pd.shared.verbs().ibv_destroy_srq(self.hw()) };
    }
}
