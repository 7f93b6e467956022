//! Moves a queue pair through the states that a connection needs.

use std::io;

use verbs_dl::types::*;

use super::id::{Depth, Id};
use crate::qp::Qp;
use crate::quirks::Transport;

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

/// The source of the read depths of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Depths {
    /// The accepting end has agreed on these values.
    Agreed(Depth),
    /// The connecting end, which requested these values, finds the values of the peer in the reply.
    Replied {
        /// The values of the request.
        requested: Depth,
    },
}

impl Depths {
    /// Returns the depths of this end. `kernels` are the values that the kernel derives from the
    /// messages, and `inbound_max` is the limit of the device.
    ///
    /// A reply states how many reads the peer serves and how many it sends, and some peers state
    /// their own limits instead of the request's values (InfiniBand specification, section 12.7,
    /// "Responder Resources" and "Initiator Depth"). A device refuses depths above its limits.
    fn of_this_end(self, kernels: Depth, inbound_max: u8) -> Depth {
        match self {
            Self::Agreed(agreed) => agreed,
            Self::Replied { requested } => Depth {
                inbound: kernels.inbound.min(inbound_max),
                outbound: kernels.outbound.min(requested.outbound),
            },
        }
    }
}

/// Moves the queue pair to full operation, with the values that both ends have agreed on.
pub(super) fn to_run(qp: &Qp, id: &Id, depths: Depths) -> io::Result<()> {
    let (mut receiving, receiving_mask) = id.qp_attr(IBV_QPS_RTR)?;
    let (mut sending, sending_mask) = id.qp_attr(IBV_QPS_RTS)?;
    let kernels = Depth {
        inbound: receiving.max_dest_rd_atomic,
        outbound: sending.max_rd_atomic,
    };
    let inbound_max = u8::try_from(qp.shared.device.attr.max_qp_rd_atom).unwrap_or(u8::MAX);
    let depth = depths.of_this_end(kernels, inbound_max);
    receiving.min_rnr_timer = RNR_TIMER;
    receiving.max_dest_rd_atomic = depth.inbound;
    qp.modify(
        &mut receiving,
        (receiving_mask & VERBS_MASK) | IBV_QP_MIN_RNR_TIMER,
    )?;
    sending.max_rd_atomic = depth.outbound;
    qp.modify(&mut sending, sending_mask & VERBS_MASK)
}

/// Returns the agreed depths: no end reads deeper than the other end serves.
///
/// A start-up frame of iWARP has 14 bits for a depth (RFC 6581), of which the kernel
/// reports the lowest 8: 0 may stand for 256. The kernel also reports 0 for a peer that uses MPA
/// revision 1, which has no field for depths. So a depth of 0 sets no limit on iWARP. If this end
/// reads from a peer that serves no reads, the peer ends the connection.
pub(super) fn agreed(requested: Depth, own: Depth, transport: Transport) -> Depth {
    let lower = |requested: u8, own: u8| match requested {
        0 if transport == Transport::Iwarp => own,
        _ => requested.min(own),
    };
    Depth {
        inbound: lower(requested.inbound, own.inbound),
        outbound: lower(requested.outbound, own.outbound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn depth(inbound: u8, outbound: u8) -> Depth {
        Depth { inbound, outbound }
    }

    #[test]
    fn the_accepting_end_uses_the_depths_on_which_it_has_agreed() {
        let depths = Depths::Agreed(depth(4, 2));
        assert_eq!(depths.of_this_end(depth(16, 16), 16), depth(4, 2));
    }

    #[test]
    fn a_reply_with_more_reads_than_requested_is_used_up_to_the_limits_of_this_end() {
        let requested = depth(4, 4);
        for (reply, expected) in [
            (depth(4, 4), depth(4, 4)),
            (depth(2, 1), depth(2, 1)),
            // The peer serves more reads than this end sends.
            (depth(4, 16), depth(4, 4)),
            // The peer sends more reads than this end offered, and the device serves them.
            (depth(16, 4), depth(16, 4)),
            (depth(255, 255), depth(16, 4)),
        ] {
            let depths = Depths::Replied { requested };
            assert_eq!(depths.of_this_end(reply, 16), expected, "{reply:?}");
        }
    }

    #[test]
    fn depths_are_the_minimum_of_both_ends() {
        for transport in [Transport::InfiniBand, Transport::Iwarp] {
            let agreed = agreed(depth(4, 16), depth(8, 2), transport);
            assert_eq!(agreed, depth(4, 2), "{transport:?}");
        }
    }

    #[test]
    fn a_depth_of_0_sets_no_limit_on_iwarp() {
        let on = |transport| agreed(depth(0, 1), depth(8, 8), transport);
        assert_eq!(on(Transport::InfiniBand), depth(0, 1));
        assert_eq!(on(Transport::Iwarp), depth(8, 1));
        let truncated = agreed(depth(1, 0), depth(8, 8), Transport::Iwarp);
        assert_eq!(truncated, depth(1, 8));
    }
}
