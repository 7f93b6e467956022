//! The state that this process keeps of a connection within the host.

use std::sync::{Mutex, MutexGuard, TryLockError};

use host::locks::IgnorePoison as _;
use ops::observe::Record;

use crate::tcp::kept::Kept;

/// The listing and options of a connection. A process that received the descriptor alone reports
/// the same addresses, and default values of the options.
#[derive(Default)]
pub(crate) struct LocalSocket {
    /// Lists the connection until it is dropped.
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

    /// Returns true if no thread holds the options.
    pub(crate) fn is_unlocked(&self) -> bool {
        !matches!(self.kept.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().ignore_poison()
    }
}
