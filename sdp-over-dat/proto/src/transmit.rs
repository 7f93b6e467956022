//! What a connection wants sent.

use crate::{AdvertId, wire::Header};

/// One message: one Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The bytes in front.
    pub header: Header,
    /// Where the others come from.
    pub payload: Payload,
    /// Whether the receiver is to be woken although it waits for solicited events only.
    pub solicited: bool,
    /// Whether it is DisConn, whose completion [`crate::Connection::handle_fin_completed`] wants
    /// to know.
    pub fin: bool,
}

/// The payload of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    Nothing,
    /// The next bytes of those that were given to [`crate::Connection::write`].
    Stream(u32),
    /// Bytes of advertised memory.
    Advert {
        /// Which.
        id: AdvertId,
        /// Where they start in it.
        offset: u32,
        /// How many.
        len: u32,
    },
}

impl Payload {
    /// How many bytes.
    #[must_use]
    pub const fn len(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::Stream(len) | Self::Advert { len, .. } => len,
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}
