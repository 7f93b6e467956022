//! What a stack's sockets are made of.

use std::time::Duration;

/// Sizes and limits of the sockets of a [`crate::Stack`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Receive buffers of a socket; the protocol needs 3, and two or three stay in reserve.
    pub receive_buffers: u16,
    /// Bytes of each, headers counted.
    pub buffer_size: u32,
    /// Bytes that may be written and not sent.
    pub send_ring: usize,
    /// Sends under way at most.
    pub sends_max: usize,
    /// Memory for bytes of the peer's that nobody waits for; two halves.
    pub staging: usize,
    /// Blocking writes from this length on are advertised instead of copied.
    pub zcopy_threshold: usize,
    /// How long an attempt to connect may take.
    pub connect_timeout: Duration,
    /// How long the bytes of a closed socket are given to leave.
    pub close_timeout: Duration,
    /// Connection requests that wait for an accept.
    pub backlog: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffers: 16,
            buffer_size: 64 * 1024 + 16,
            send_ring: 512 * 1024,
            sends_max: 32,
            staging: 512 * 1024,
            zcopy_threshold: 256 * 1024,
            connect_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(60),
            backlog: 128,
        }
    }
}
