//! Connection requests.

use std::sync::Arc;

use rnic::{AcceptParams, RnicError};

use super::connection::{Connection, own_depth};
use super::id::{ConnParam, Depth, Id};
use super::{Cm, check_private_data};
use crate::qp::Qp;
use crate::quirks::Transport;

/// A peer's request. A request that is dropped without an answer is refused.
#[derive(Debug)]
pub struct IbRequest {
    cm: Arc<Cm>,
    id: Id,
    /// The depths that the peer requests, as seen from this end.
    depth: Depth,
}

impl IbRequest {
    pub(super) fn new(cm: &Arc<Cm>, id: Id, depth: Depth) -> Self {
        Self {
            cm: cm.clone(),
            id,
            depth,
        }
    }

    /// Accepts the request on an idle queue pair.
    pub(crate) fn accept(self, qp: &Arc<Qp>, params: &AcceptParams<'_>) -> Result<(), RnicError> {
        check_private_data(&self.cm.shared, params.private_data)?;
        qp.begin_attempt()?;
        let depth = agreed(self.depth, own_depth(qp), self.cm.shared.device.transport);
        let param = ConnParam::of(qp, depth, params.private_data);
        Connection::accept(&self.cm, qp, Arc::new(self.id), param);
        Ok(())
    }

    /// Rejects the request, with the private data of the consumer.
    pub(crate) fn reject(self, private_data: &[u8]) -> Result<(), RnicError> {
        check_private_data(&self.cm.shared, private_data)?;
        let data = self.cm.shared.device.transport.reject_data(private_data);
        if let Err(error) = self.id.reject(&data) {
            // The peer has disconnected or cancelled its request, and needs no answer any more.
            tracing::debug!(%error, "reject not sent");
        }
        Ok(())
    }
}

/// Returns the agreed depths: no end reads deeper than the other end serves.
///
/// A start-up frame of iWARP has 14 bits for a depth (RFC 6581), of which the kernel
/// reports the lowest 8: 0 may stand for 256. The kernel also reports 0 for a peer that uses MPA
/// revision 1, which has no field for depths. So a depth of 0 sets no limit on iWARP. If this end
/// reads from a peer that serves no reads, the peer ends the connection.
fn agreed(requested: Depth, own: Depth, transport: Transport) -> Depth {
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

    #[test]
    fn depths_are_the_minimum_of_both_ends() {
        let depth = |inbound, outbound| Depth { inbound, outbound };
        for transport in [Transport::InfiniBand, Transport::Iwarp] {
            let agreed = agreed(depth(4, 16), depth(8, 2), transport);
            assert_eq!(agreed, depth(4, 2), "{transport:?}");
        }
    }

    #[test]
    fn a_depth_of_0_sets_no_limit_on_iwarp() {
        let depth = |inbound, outbound| Depth { inbound, outbound };
        let on = |transport| agreed(depth(0, 1), depth(8, 8), transport);
        assert_eq!(on(Transport::InfiniBand), depth(0, 1));
        assert_eq!(on(Transport::Iwarp), depth(8, 1));
        let truncated = agreed(depth(1, 0), depth(8, 8), Transport::Iwarp);
        assert_eq!(truncated, depth(1, 8));
    }
}
