//! The counters of a socket.

/// The counters of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Bytes that the program sent on a connection.
    Sent = 0,
    /// Bytes that the program received.
    Received = 1,
    /// Offloaded connections that a listener's program accepted.
    AcceptedOffloaded = 2,
    /// Connections over TCP that a listener's program accepted.
    AcceptedTcp = 3,
}
