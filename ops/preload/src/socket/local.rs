//! The state that this process keeps of a connection within the host.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
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
    /// The number of a state of `local::ends`.
    sending: AtomicU8,
    /// True once this process has shut down the direction from the peer.
    has_ended_receiving: AtomicBool,
    /// True until a call has returned the result of a non-blocking `connect`.
    is_connect_pending: AtomicBool,
}

impl LocalSocket {
    pub(crate) fn connected(record: Record, kept: Kept) -> Self {
        Self {
            _record: Some(record),
            kept: Mutex::new(kept),
            accepted: None,
            sending: AtomicU8::new(0),
            has_ended_receiving: AtomicBool::new(false),
            is_connect_pending: AtomicBool::new(false),
        }
    }

    /// Makes the state of a connection whose non-blocking `connect` has not returned its result.
    pub(crate) fn connected_later(record: Record, kept: Kept) -> Self {
        Self {
            is_connect_pending: AtomicBool::new(true),
            ..Self::connected(record, kept)
        }
    }

    /// Returns true once for a connection of a non-blocking `connect`, whose result the next
    /// `connect` returns.
    pub(crate) fn take_connect_result(&self) -> bool {
        self.is_connect_pending.swap(false, Ordering::Relaxed)
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

    /// Stores the state of the direction to the peer.
    pub(crate) fn set_sending(&self, sending: u8) {
        // Relaxed is sufficient: threads that send at the same time have no order.
        self.sending.store(sending, Ordering::Relaxed);
    }

    /// Returns the state that was stored last; 0 at first.
    pub(crate) fn sending(&self) -> u8 {
        self.sending.load(Ordering::Relaxed)
    }

    pub(crate) fn end_receiving(&self) {
        self.has_ended_receiving.store(true, Ordering::Relaxed);
    }

    /// Returns true after [`end_receiving`](Self::end_receiving).
    pub(crate) fn has_ended_receiving(&self) -> bool {
        self.has_ended_receiving.load(Ordering::Relaxed)
    }

    /// Returns true if no thread holds the options.
    pub(crate) fn is_unlocked(&self) -> bool {
        !matches!(self.kept.try_lock(), Err(TryLockError::WouldBlock))
    }

    pub(crate) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().ignore_poison()
    }
}
