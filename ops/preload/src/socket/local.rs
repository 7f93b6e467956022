//! A connection within the host, as this process remembers it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ops::observe::Record;

use crate::tcp::kept::Kept;

/// The state of a connection in this process. A process that got the descriptor without it finds
/// the addresses all the same, and default values of options.
#[derive(Default)]
pub(crate) struct LocalSocket {
    /// Under which the connection is listed.
    _record: Option<Record>,
    kept: Mutex<Kept>,
}

impl LocalSocket {
    pub(crate) fn listed(record: Record, kept: Kept) -> Self {
        Self {
            _record: Some(record),
            kept: Mutex::new(kept),
        }
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
