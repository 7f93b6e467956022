//! Connection requests.

use std::sync::Arc;

use access_layer::rnic::{AcceptParams, RnicError};

use super::connection::{Connection, own_depth};
use super::id::{ConnParam, Depth, Id};
use super::{Cm, check_private_data};
use crate::qp::Qp;

/// A peer's request. Its drop without an answer refuses the peer.
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
        let param = ConnParam {
            private_data: params.private_data.to_vec(),
            depth: self.agreed(own_depth(qp)),
            has_srq: qp.has_srq(),
            qp_number: qp.num(),
        };
        Connection::accept(&self.cm, qp, Arc::new(self.id), param);
        Ok(())
    }

    /// Returns the agreed depths, if the peer sent its own: no end reads deeper than the other end
    /// serves.
    fn agreed(&self, own: Depth) -> Depth {
        let is_absent = self.depth == Depth::default();
        if is_absent && !self.cm.shared.device.quirks().reports_requested_depths {
            return own;
        }
        agreed(self.depth, own)
    }

    /// Rejects the request, as the decision of the consumer.
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

fn agreed(requested: Depth, own: Depth) -> Depth {
    Depth {
        inbound: requested.inbound.min(own.inbound),
        outbound: requested.outbound.min(own.outbound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_the_minimum_of_both_ends() {
        let depth = |inbound, outbound| Depth { inbound, outbound };
        assert_eq!(agreed(depth(4, 16), depth(8, 2)), depth(4, 2));
        assert_eq!(agreed(depth(0, 1), depth(8, 8)), depth(0, 1));
    }
}
