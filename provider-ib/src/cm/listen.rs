//! Services.

use std::sync::Arc;

use access_layer::rnic::{ListenAddress, ListenToken, RnicError};

use crate::rnic::Shared;

/// A listening id.
#[derive(Debug)]
pub(crate) struct Listener {}

impl Listener {
    /// Listens; returns the port as well.
    pub(crate) fn open(
        _shared: &Arc<Shared>,
        _address: &ListenAddress,
        _token: ListenToken,
    ) -> Result<(Arc<Self>, u16), RnicError> {
        Err(RnicError::NotSupported("listening"))
    }

    /// Stops listening. Requests that were told stay valid.
    pub(crate) fn close(&self) {}
}
