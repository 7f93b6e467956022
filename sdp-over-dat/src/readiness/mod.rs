//! The state that `poll` should report for a socket.
//!
//! A socket reports its readiness to a [`Watch`]. [`StandIn`] is a watch that shows the readiness
//! on a descriptor. A preload layer that owns the program's descriptors has a watch of its own.

mod stand_in;

pub use stand_in::StandIn;

/// The readiness of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read would not block.
    pub readable: bool,
    /// A write would not block.
    pub writable: bool,
    /// An urgent byte was received or announced.
    pub urgent: bool,
    /// No more bytes can be read: the peer has ended its stream, or this end has shut the
    /// receiving direction.
    pub read_closed: bool,
    /// The peer has ended its stream.
    pub peer_ended: bool,
    /// This end can write no more bytes.
    pub write_closed: bool,
    /// `write_closed` is set, and all bytes that were written before have been sent.
    pub all_sent: bool,
    /// The connection has failed.
    pub failed: bool,
    /// The error that the next call reports.
    pub errno: Option<i32>,
}

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
