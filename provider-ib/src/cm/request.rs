//! Connection requests.

use std::sync::Arc;

use access_layer::rnic::{AcceptParams, RnicError};

use crate::qp::Qp;

/// A peer's request. Dropping it refuses the peer.
#[derive(Debug)]
pub struct IbRequest {}

impl IbRequest {
    /// Accepts on an idle queue pair.
    pub(crate) fn accept(self, qp: &Arc<Qp>, _params: &AcceptParams<'_>) -> Result<(), RnicError> {
        qp.begin_attempt()?;
        qp.abandon_attempt();
        Err(RnicError::NotSupported("accepting"))
    }

    /// Rejects as the consumer's decision.
    pub(crate) fn reject(self, _private_data: &[u8]) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("rejecting"))
    }
}
