//! What a user may set on a socket.

use std::time::Duration;

/// Options of a socket, in the words of `setsockopt`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Calls return `WouldBlock` instead of waiting.
    pub nonblocking: bool,
    /// SO_RCVTIMEO.
    pub read_timeout: Option<Duration>,
    /// SO_SNDTIMEO.
    pub write_timeout: Option<Duration>,
    /// SO_LINGER: zero resets at close, more waits for the peer. Without it a close returns at
    /// once, and what was written is still sent.
    pub linger: Option<Duration>,
    /// SO_OOBINLINE: the urgent byte stays in the stream.
    pub oob_inline: bool,
    /// TCP_NODELAY; stored. Bytes leave at once in any case, and gather while they cannot.
    pub nodelay: bool,
    /// SO_KEEPALIVE; stored. Whether the peer lives is the transport's business.
    pub keepalive: bool,
}
