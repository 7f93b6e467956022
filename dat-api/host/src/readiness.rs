//! The state that `poll` should report for a socket whose bytes are carried by another transport.

/// The readiness of a socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// A read would not block.
    pub readable: bool,
    /// A write would not block.
    pub writable: bool,
    /// An urgent byte was received or announced.
    pub urgent: bool,
    /// No more bytes can be read: the peer has ended its stream, or this end has shut down the
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

impl Readiness {
    /// Returns true if both directions have ended.
    #[must_use]
    pub const fn is_hung_up(&self) -> bool {
        self.failed || self.peer_ended && self.write_closed
    }
}
