//! Taking a queue pair through its states as a connection needs it.

use std::io;

use verbs_dl::types::*;

use super::id::{Depth, Id};
use crate::qp::Qp;

/// The attributes that verbs know. The kernel's answer may have bits of its own beyond them, which
/// drivers refuse.
const VERBS_MASK: u32 = (IBV_QP_DEST_QPN << 1) - 1;
/// How long a peer is asked to wait while we have no receive posted: 0.64 ms (InfiniBand
/// specification, table "RNR NAK timer"). Zero, which is the kernel's answer, means 655 ms.
const RNR_TIMER: u8 = 12;

/// To the state in which the connection manager may send a request or reply: on InfiniBand with the
/// port and partition of the path, on iWARP as it was made.
pub(super) fn to_connect(qp: &Qp, id: &Id) -> io::Result<()> {
    if qp.shared.device.transport.kernel_confirms() {
        return Ok(());
    }
    let (mut attr, mask) = id.qp_attr(IBV_QPS_INIT)?;
    // Rights stay as they were given when the queue pair was made.
    qp.modify(&mut attr, mask & VERBS_MASK & !IBV_QP_ACCESS_FLAGS)
}

/// To full operation, with what both sides have agreed on. `depth`: what we agree to, at the
/// accepting side; the other side finds it in the reply.
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
