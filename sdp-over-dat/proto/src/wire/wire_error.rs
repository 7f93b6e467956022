//! Why bytes are not a message.

use super::Mid;

/// What is wrong with the bytes, whatever the state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Not even its own header is whole.
    #[error("a message of {len} bytes ends inside its header")]
    Short {
        /// Bytes that came.
        len: usize,
    },
    /// A reserved or experimental kind.
    #[error("message identifier {0:#04x} is reserved")]
    UnknownMid(u8),
    /// The header says another length than the transport.
    #[error("the header says {stated} bytes, {received} came")]
    Length {
        /// What the header says.
        stated: u32,
        /// What the transport says.
        received: usize,
    },
    /// Bytes behind a header that ends its message.
    #[error("{0:?} carries payload")]
    Payload(Mid),
    /// Hello where a message of the data path belongs, or the other way round.
    #[error("{0:?} does not belong here")]
    Misplaced(Mid),
    /// An urgent byte outside Data, or in a Data message without any.
    #[error("the urgent flag stands on a message without an urgent byte")]
    Urgent,
    /// A mode or a half that does not exist.
    #[error("mode change {0:#04x} is not defined")]
    ModeChange(u8),
    /// A set-up message with a version that is not spoken here.
    #[error("version {major}.{minor} is not spoken here")]
    Version {
        /// Major version.
        major: u8,
        /// Minor version.
        minor: u8,
    },
    /// Neither IPv4 nor IPv6.
    #[error("address family {0} is neither 4 nor 6")]
    AddressFamily(u8),
    /// An IPv4 address whose unused bytes are used.
    #[error("an IPv4 address with bytes in front of it")]
    Ipv4Padding,
    /// A set-up message that allows no advertisement; one is the least.
    #[error("the peer takes no advertisement at all")]
    NoAdverts,
    /// Receive buffers that hold no payload.
    #[error("receive buffers of {0} bytes hold no payload")]
    BufferSize(u32),
    /// Too few receive buffers: with the reserves that both sides keep, data could never flow.
    #[error("{0} receive buffers are too few for data to flow")]
    BufferCount(u16),
    /// A set-up message whose own sequence numbers are not zero.
    #[error("a set-up message with sequence numbers")]
    Numbered,
}
