//! The state that `poll` should report for a socket.
//!
//! A socket tells whoever watches it; [`StandIn`] turns that into a descriptor. A preload layer
//! that owns the program's descriptors watches in the same way.

mod stand_in;

pub use stand_in::StandIn;

/// The readiness of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read would not block.
    pub readable: bool,
    /// A write would not block.
    pub writable: bool,
    /// An urgent byte is here or announced.
    pub urgent: bool,
    /// Nothing more is to be read, be it that the peer writes no more or that this end has shut
    /// its reading.
    pub read_closed: bool,
    /// The peer writes no more.
    pub peer_ended: bool,
    /// This end writes no more.
    pub write_closed: bool,
    /// `write_closed` is set, and all bytes that were written before have been sent.
    pub all_sent: bool,
    /// The connection ended by fault.
    pub failed: bool,
    /// The error that the next call reports.
    pub errno: Option<i32>,
}

/// Somebody who wants to know what a socket is ready for.
///
/// Called with the socket's lock held, so that news come in order: it must not call the socket.
pub trait Watch: Send + Sync {
    /// The socket is in this state now. `arrived` when bytes came since the last call: an
    /// edge-triggered waiter is to be told again although it was readable before.
    fn show(&self, now: Readiness, arrived: bool);

    /// Threads that the next calls of [`show`](Self::show) wake are to stay asleep until
    /// [`release`](Self::release): they need the socket's lock, which the caller holds.
    fn hold(&self) {}

    /// The caller has released the socket's lock.
    fn release(&self) {}
}
