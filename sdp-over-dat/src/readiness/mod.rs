//! The state that `poll` should report for a socket.
//!
//! A socket reports its readiness to a [`Watch`]. [`StandIn`] is a watch that shows the readiness
//! on a descriptor. A preload layer that owns the program's descriptors has a watch of its own.

mod stand_in;

pub use host::readiness::Readiness;
pub use stand_in::StandIn;

use crate::statistics::Statistics;

/// A receiver of a socket's readiness and counters.
///
/// The socket's lock is held during `show`, `count` and `hold`, so they must not call the socket.
pub trait Watch: Send + Sync {
    /// Reports the socket's present readiness. `arrived` is true if bytes were received since the
    /// last call: an edge-triggered waiter is to be woken again although the socket was readable.
    fn show(&self, now: Readiness, arrived: bool);

    /// Reports the socket's counters, before each call of [`show`](Self::show).
    fn count(&self, _now: &Statistics) {}

    /// Delays the wake-ups of the next calls of [`show`](Self::show) until
    /// [`release`](Self::release): the woken threads need the lock that the caller holds.
    fn hold(&self) {}

    /// Called when the caller of [`hold`](Self::hold) has released the socket's lock.
    fn release(&self) {}
}
