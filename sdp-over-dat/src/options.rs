//! The options of a socket.

use std::time::Duration;

/// Options of a socket, in the words of `setsockopt`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Calls return `WouldBlock` instead of waiting.
    pub nonblocking: bool,
    /// SO_RCVTIMEO. A read whose memory is advertised to the peer cancels the advertisement half a
    /// second before the timeout, because a peer of this library answers within that time. The read
    /// waits longer for a slower peer, at most [`crate::Config::close_timeout`]. Reads with
    /// timeouts below one second advertise nothing.
    pub read_timeout: Option<Duration>,
    /// SO_SNDTIMEO.
    pub write_timeout: Option<Duration>,
    /// SO_LINGER: zero resets the connection at close; a longer time makes close wait for the peer.
    /// Without it, close returns at once and the bytes that were written are still sent.
    pub linger: Option<Duration>,
    /// SO_SNDBUF: the largest number of bytes that the socket keeps for the peer, if it is below
    /// [`crate::Config::send_ring`]. It does not apply to bytes that stay in the caller's memory.
    /// A bound below the number of bytes kept takes effect as they are sent.
    pub send_bound: Option<usize>,
    /// SO_RCVLOWAT: the socket is shown as readable from this number of bytes on, or if it can hold
    /// few more; 0 and 1 have the same effect.
    pub receive_low: usize,
    /// SO_OOBINLINE: the urgent byte stays in the stream.
    pub oob_inline: bool,
    /// Replaces [`crate::Config::sink_threshold`] for this socket.
    pub sink_threshold: Option<usize>,
    /// TCP_NODELAY; stored only. Bytes are sent at once in any case, and are gathered while they
    /// cannot be sent.
    pub nodelay: bool,
    /// SO_KEEPALIVE; stored only. The transport checks that the peer is alive.
    pub keepalive: bool,
}
