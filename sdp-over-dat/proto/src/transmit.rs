//! A message to send.

use crate::{AdvertId, wire::Header};

/// A message, which is posted as a single Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The headers of the message.
    pub header: Header,
    /// The source of the payload. It follows the headers, unless `into` is set.
    pub payload: Payload,
    /// The peer's memory into which the engine writes the payload by RDMA Write. The engine then
    /// posts the message, which has no payload. The write and the message are posted in this order
    /// with nothing between them.
    pub into: Option<PeerMemory>,
    /// True if the message must wake a receiver that waits for solicited events only.
    pub solicited: bool,
    /// True if the message is DisConn. The engine calls [`crate::Connection::handle_fin_completed`]
    /// when its Send has completed.
    pub fin: bool,
}

/// The place in the peer's memory at which an RDMA Write begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    /// The peer's R_Key or STag.
    pub stag: u32,
    /// The virtual address or tagged offset of the first byte.
    pub address: u64,
}

/// The payload of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No payload.
    Nothing,
    /// The next bytes of those that were passed to [`crate::Connection::write`].
    Stream(u32),
    /// Bytes of advertised memory.
    Advert {
        /// The advertisement.
        id: AdvertId,
        /// The offset of the first byte in the advertised memory.
        offset: u32,
        /// The number of bytes.
        len: u32,
    },
}

impl Payload {
    /// The number of payload bytes.
    #[must_use]
    pub const fn len(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Stream(len) | Self::Advert { len, .. } => len,
        }
    }

    /// The advertisement to which the payload belongs, if it is in the user's memory.
    #[must_use]
    pub const fn source(self) -> Option<AdvertId> {
        match self {
            Self::Advert { id, .. } => Some(id),
            Self::Nothing | Self::Stream(_) => None,
        }
    }

    /// True if there is no payload.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}
