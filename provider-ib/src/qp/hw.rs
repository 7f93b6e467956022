//! The device's queue pair.

use std::io;
use std::ptr;
use std::sync::Arc;

use rnic::{QpAttr, QpToken, Resource, RnicError};
use verbs_dl::types::*;

use super::QpParts;
use crate::device::{checked, of, refused};
use crate::quirks::Transport;
use crate::shared::Shared;

/// A queue pair of the device, destroyed on drop. The pointer is null once it is destroyed.
#[derive(Debug)]
pub(super) struct Hw {
    qp: *mut ibv_qp,
    inline_max: u32,
    shared: Arc<Shared>,
}

// SAFETY: verbs objects may be used by any thread (ibv_create_qp(3)).
unsafe impl Send for Hw {}

impl Hw {
    /// Creates a queue pair and moves it to the state in which receives may be posted.
    pub(super) fn create(
        shared: &Arc<Shared>,
        parts: &QpParts,
        attr: &QpAttr,
        token: QpToken,
    ) -> Result<Self, RnicError> {
        let mut init = init_attr(parts, attr, token);
        init.cap.max_inline_data = shared.config.inline_max;
        let verbs = shared.verbs();
        // SAFETY: domain and queues are alive, because `parts` holds them; `init` is on the stack
        // of this call.
        let mut qp = unsafe { verbs.ibv_create_qp(parts.pd.hw(), &raw mut init) };
        if qp.is_null() && shared.config.inline_max > 0 {
            init = init_attr(parts, attr, token);
            // SAFETY: `parts` holds domain and queues; `init` is on the stack of this call.
            qp = unsafe { verbs.ibv_create_qp(parts.pd.hw(), &raw mut init) };
        }
        if qp.is_null() {
            return Err(refused(Resource::QueuePair));
        }
        let hw = Self {
            qp,
            inline_max: init.cap.max_inline_data.min(shared.config.inline_max),
            shared: shared.clone(),
        };
        let (mut attr, mask) = initial(shared);
        let ready = hw.modify(&mut attr, mask);
        ready.map_err(|why| of(why, Resource::QueuePair))?;
        Ok(hw)
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_qp {
        self.qp
    }

    pub(super) fn inline_max(&self) -> u32 {
        self.inline_max
    }

    /// The queue pair number; 0 after the queue pair is destroyed.
    pub(super) fn num(&self) -> u32 {
        // SAFETY: the pointer is null, or was returned by `create` and is not destroyed yet.
        unsafe { self.qp.as_ref() }.map_or(0, |qp| qp.qp_num)
    }

    pub(super) fn modify(&self, attr: &mut ibv_qp_attr, mask: u32) -> io::Result<()> {
        if self.qp.is_null() {
            return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
        }
        // SAFETY: created by `create` and not destroyed; the library only reads the structure.
        checked(unsafe {
            self.shared
                .verbs()
                .ibv_modify_qp(self.qp, attr, mask as i32)
        })
    }

    /// True if the queue pair is in an error state of the device, or is destroyed.
    pub(super) fn is_in_error(&self) -> bool {
        if self.qp.is_null() {
            return true;
        }
        let (mut attr, mut init) = (ibv_qp_attr::default(), ibv_qp_init_attr::default());
        let (state, verbs) = (IBV_QP_STATE as i32, self.shared.verbs());
        // SAFETY: created by `create` and not destroyed; both structures are on the stack of this
        // call.
        let code = unsafe { verbs.ibv_query_qp(self.qp, &raw mut attr, state, &raw mut init) };
        code != 0 || attr.qp_state == IBV_QPS_ERR || attr.qp_state == IBV_QPS_SQE
    }

    /// Destroys the queue pair. Waits until the device's events about it are acknowledged.
    pub(super) fn destroy(&mut self) {
        let qp = std::mem::replace(&mut self.qp, ptr::null_mut());
        if !qp.is_null() {
            // SAFETY: created by `create`; the pointer was set to null above, so this happens once.
            unsafe { self.shared.verbs().ibv_destroy_qp(qp) };
        }
    }
}

impl Drop for Hw {
    fn drop(&mut self) {
        self.destroy();
    }
}

fn init_attr(parts: &QpParts, attr: &QpAttr, token: QpToken) -> ibv_qp_init_attr {
    let (max_recv_wr, max_recv_sge) = match parts.srq {
        Some(_) => (0, 0),
        None => (attr.recv_wr_max.max(1), attr.recv_sge_max.max(1)),
    };
    ibv_qp_init_attr {
        qp_context: ptr::without_provenance_mut(token.0 as usize),
        send_cq: parts.send_cq.hw(),
        recv_cq: parts.recv_cq.hw(),
        srq: parts.srq.as_ref().map_or(ptr::null_mut(), |srq| srq.hw()),
        qp_type: IBV_QPT_RC,
        cap: ibv_qp_cap {
            // One more than the consumer requested, for a marker.
            max_send_wr: attr.send_wr_max + 1,
            max_recv_wr,
            max_send_sge: attr.send_sge_max.max(1),
            max_recv_sge,
            max_inline_data: 0,
        },
        ..Default::default()
    }
}

/// Returns the attributes and the mask for the step from the first state to the state in which
/// receives may be posted.
fn initial(shared: &Shared) -> (ibv_qp_attr, u32) {
    let mut attr = ibv_qp_attr {
        qp_access_flags: IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
        port_num: shared.device.port,
        ..ibv_qp_attr::in_state(IBV_QPS_INIT)
    };
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
