//! The state that `poll` should report for a socket.
//!
//! A socket reports its readiness to a [`Watch`]. [`StandIn`] is a watch that shows the readiness
//! on a descriptor. A preload layer that owns the program's descriptors has a watch of its own.

mod stand_in;

pub use host::readiness::Readiness;
pub use stand_in::StandIn;

/// A receiver of a socket's readiness.
///
/// The socket's lock is held during `show` and `hold`, so they must not call the socket.
pub trait Watch: Send + Sync {
    /// Reports the socket's present readiness. `arrived` is true if bytes were received since the
    /// last call: an edge-triggered waiter is to be woken again although the socket was readable.
    fn show(&self, now: Readiness, arrived: bool);

    /// Delays the wake-ups of the next calls of [`show`](Self::show) until
    /// [`release`](Self::release): the woken threads need the lock that the caller holds.
    fn hold(&self) {}

    /// The caller has released the socket's lock.
    fn release(&self) {}
}
