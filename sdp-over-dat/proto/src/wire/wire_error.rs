//! The reasons why bytes are not a message.

use super::Mid;

/// A malformed message, independent of the state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The message is shorter than its header.
    #[error("a message of {len} bytes ends inside its header")]
    Short {
        /// The number of bytes received.
        len: usize,
    },
    /// The message identifier is reserved or experimental.
    #[error("message identifier {0:#04x} is reserved")]
    UnknownMid(u8),
    /// The length in the header differs from the length that the transport reports.
    #[error("the header states {stated} bytes, but {received} were received")]
    Length {
        /// The length in the header.
        stated: u32,
        /// The length that the transport reports.
        received: usize,
    },
    /// Payload on a message whose kind permits none.
    #[error("{0:?} carries payload")]
    Payload(Mid),
    /// Hello or HelloAck in place of a message of the data path, or the other way round.
    #[error("{0:?} is not permitted at this point")]
    Misplaced(Mid),
    /// The urgent flag outside Data, or on a Data message without payload.
    #[error("the urgent flag is set on a message without an urgent byte")]
    Urgent,
    /// A mode or a half that is not defined.
    #[error("mode change {0:#04x} is not defined")]
    ModeChange(u8),
    /// A set-up message with an unsupported version.
    #[error("version {major}.{minor} is not supported")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// An address family that is neither IPv4 nor IPv6.
    #[error("address family {0} is neither 4 nor 6")]
    AddressFamily(u8),
    /// An IPv4 address whose padding bytes are not zero.
    #[error("an IPv4 address with bytes in front of it")]
    Ipv4Padding,
    /// A set-up message that permits no advertisement; at least one is required.
    #[error("the peer accepts no advertisement")]
    NoAdverts,
    /// Receive buffers too small for any payload.
    #[error("receive buffers of {0} bytes hold no payload")]
    BufferSize(u32),
    /// Too few receive buffers: with the reserves that both sides keep, data could never flow.
    #[error("{0} receive buffers are too few for data to flow")]
    BufferCount(u16),
    /// A set-up message whose own sequence numbers are not zero.
    #[error("a set-up message with sequence numbers")]
    Numbered,
}
