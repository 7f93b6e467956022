//! Carrier messages: two ends of this implementation move a connection off TCP.
//!
//! RFC 5040 and RFC 7306 do not define these messages. They are untagged messages of one segment,
//! with an opcode that no RFC assigns ([`OPCODE`]) on a queue that no RFC assigns
//! ([`qn::CARRIER`]). They are sent only after both ends have agreed on them
//! ([`crate::Connection::has_agreed_carriers`]).
//!
//! ```text
//! Offer                     Moved
//!  0 kind, 1      4          0 kind, 2      4
//!  4 name        16
//! 20 token        8
//! ```
//!
//! (offset, name, bytes; counted from the end of the DDP header)

use super::{
    ddp::{Untagged, be32, be64, qn},
    rdmap::Control,
};

/// The RDMAP opcode of all carrier messages.
pub const OPCODE: u8 = 0xF;
/// The length of the longest carrier message in bytes, without its DDP header.
pub const LEN_MAX: usize = OFFER_LEN;

const OFFER_LEN: usize = 28;
const MOVED_LEN: usize = 4;

const OFFER: u32 = 1;
const MOVED: u32 = 2;

/// A message about the carrier of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CarrierMessage {
    /// The sender of this message can be reached without TCP.
    Offer {
        /// The abstract AF_UNIX name at which the sender's adapter listens.
        name: [u8; 16],
        /// The sender's identifier of this connection.
        token: u64,
    },
    /// The last message that this direction sends over TCP. The segments that follow it are
    /// transmitted by the new carrier.
    Moved,
}

/// The reason why the bytes of a carrier message do not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// No message has this kind.
    Kind,
    /// The message has fewer bytes than its kind needs.
    TooShort,
    /// The message has more bytes than its kind allows.
    TooLong,
}

/// Returns true if this is the DDP header of a carrier message.
#[must_use]
pub const fn is_carrier(header: &Untagged) -> bool {
    let control = Control(header.rdmap);
    control.is_version_known() && control.number() == OPCODE && header.qn == qn::CARRIER
}

impl CarrierMessage {
    /// Parses the bytes after the DDP header.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let kind = message.first_chunk::<4>().ok_or(Malformed::TooShort)?;
        let (len, parsed) = match be32(kind) {
            OFFER => (OFFER_LEN, message.first_chunk().map(Self::parse_offer)),
            MOVED => (MOVED_LEN, Some(Self::Moved)),
            _ => return Err(Malformed::Kind),
        };
        if message.len() > len {
            return Err(Malformed::TooLong);
        }
        parsed.ok_or(Malformed::TooShort)
    }

    fn parse_offer(message: &[u8; OFFER_LEN]) -> Self {
        let mut name = [0; 16];
        name.copy_from_slice(&message[4..20]);
        Self::Offer {
            name,
            token: be64(&message[20..28]),
        }
    }

    /// Writes the bytes after the DDP header and returns their number.
    pub fn emit(&self, message: &mut [u8; LEN_MAX]) -> usize {
        match self {
            Self::Offer { name, token } => {
                message[0..4].copy_from_slice(&OFFER.to_be_bytes());
                message[4..20].copy_from_slice(name);
                message[20..28].copy_from_slice(&token.to_be_bytes());
            }
            Self::Moved => message[0..4].copy_from_slice(&MOVED.to_be_bytes()),
        }
        self.wire_len()
    }

    /// The length in bytes after the DDP header.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Offer { .. } => OFFER_LEN,
            Self::Moved => MOVED_LEN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    #[test]
    fn messages_have_these_bytes() {
        let offer = CarrierMessage::Offer {
            name: std::array::from_fn(|index| index as u8 + 0x10),
            token: 0x0102_0304_0506_0708,
        };
        let bytes = "00000001 10111213 14151617 18191a1b 1c1d1e1f 01020304 05060708";
        for (message, bytes) in [(offer, bytes), (CarrierMessage::Moved, "00000002")] {
            let bytes = hex(bytes);
            let mut emitted = [0xAA; LEN_MAX];
            let len = message.emit(&mut emitted);
            assert_eq!(emitted[..len], bytes);
            assert_eq!(message.wire_len(), bytes.len());
            assert_eq!(CarrierMessage::parse(&bytes), Ok(message));
        }
    }
}
