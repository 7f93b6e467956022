//! Moves a queue pair through the states that a connection needs.

use std::io;

use verbs_dl::types::*;

use super::id::{Depth, Id};
use crate::qp::Qp;

/// The attributes that verbs define. The kernel's answer may have additional bits of its own, which
/// drivers refuse.
const VERBS_MASK: u32 = (IBV_QP_DEST_QPN << 1) - 1;
/// The time that a peer must wait while this end has no receive posted: 0.64 ms (InfiniBand
/// specification, table "RNR NAK timer"). Zero, which is the kernel's answer, means 655 ms.
const RNR_TIMER: u8 = 12;

/// Moves the queue pair to the state in which the connection manager may send a request or reply.
/// On InfiniBand it gets the port and partition of the path; on iWARP it does not change.
pub(super) fn to_connect(qp: &Qp, id: &Id) -> io::Result<()> {
    if qp.shared.device.transport.kernel_confirms() {
        return Ok(());
    }
    let (mut attr, mask) = id.qp_attr(IBV_QPS_INIT)?;
    // The access rights stay as they were set when the queue pair was created.
    qp.modify(&mut attr, mask & VERBS_MASK & !IBV_QP_ACCESS_FLAGS)
}

/// Moves the queue pair to full operation, with the values that both ends have agreed on. `depth`
/// is given at the accepting end; the other end finds it in the reply.
pub(super) fn to_run(qp: &Qp, id: &Id, depth: Option<Depth>) -> io::Result<()> {
    let (mut attr, mask) = id.qp_attr(IBV_QPS_RTR)?;
    attr.min_rnr_timer = RNR_TIMER;
    if let Some(depth) = depth {
        attr.max_dest_rd_atomic = depth.inbound;
    }
    qp.modify(&mut attr, (mask & VERBS_MASK) | IBV_QP_MIN_RNR_TIMER)?;
    let (mut attr, mask) = id.qp_attr(IBV_QPS_RTS)?;
    if let Some(depth) = depth {
        attr.max_rd_atomic = depth.outbound;
    }
    qp.modify(&mut attr, mask & VERBS_MASK)
}
