//! The state that this process keeps of a connection within the host.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use host::locks::IgnorePoison as _;
use ops::observe::Record;
use ops_local_protocol::Addresses;

use crate::tcp::kept::Kept;

/// The listing and options of a connection. A process that received the descriptor alone reports
/// the same addresses, and default values of the options.
#[derive(Default)]
pub(crate) struct LocalSocket {
    /// Lists the connection until it is dropped.
    _record: Option<Record>,
    kept: Mutex<Kept>,
    /// The addresses with which this process has accepted the connection.
    accepted: Option<Addresses>,
    /// True once this process has shut down its direction, or has sent to a peer that had closed.
    has_ended_sending: AtomicBool,
}

impl LocalSocket {
    pub(crate) fn connected(record: Record, kept: Kept) -> Self {
        Self {
            _record: Some(record),
            kept: Mutex::new(kept),
            accepted: None,
            has_ended_sending: AtomicBool::new(false),
        }
    }

    pub(crate) fn accepted(record: Record, kept: Kept, addresses: Addresses) -> Self {
        Self {
            accepted: Some(addresses),
            ..Self::connected(record, kept)
        }
    }

    /// Returns the addresses of a connection that this process has accepted.
    pub(crate) fn accepted_addresses(&self) -> Option<Addresses> {
        self.accepted
    }

    /// Makes later sends fail that the kernel refuses.
    pub(crate) fn end_sending(&self) {
        // Relaxed is sufficient: threads that send at the same time have no order.
        self.has_ended_sending.store(true, Ordering::Relaxed);
    }

    /// Returns true after [`end_sending`](Self::end_sending).
    pub(crate) fn has_ended_sending(&self) -> bool {
        self.has_ended_sending.load(Ordering::Relaxed)
    }

    /// Returns true if no thread holds the options.
    pub(crate) fn is_unlocked(&self) -> bool {
        !matches!(self.kept.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().ignore_poison()
    }
}
