//! HelloAck: the parameters of the passive side.

use super::hello::{byte_at, check_limits, setup_bsdh, setup_header};
use super::{BSDH_LEN, Mid, TrimError, Version, WireError, u32_at};

/// The private data of the connection reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck {
    /// The number of receive buffers that the sender has posted.
    pub bufs: u16,
    /// The protocol version of the sender.
    pub version: Version,
    /// True if the sender can receive a Send with Invalidate.
    pub takes_invalidate: bool,
    /// The number of advertisements that the sender accepts at a time.
    pub adverts_max: u8,
    /// The sender's receive buffer size, base header included.
    pub own_size: u32,
}

impl HelloAck {
    /// The length of the message in bytes.
    pub const LEN: usize = 196;
    /// The number of bytes that carry information.
    pub const NEEDED_LEN: usize = 24;

    /// Parses a HelloAck. A provider may have removed trailing zeros or added some.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let bsdh = setup_header(bytes, Mid::HelloAck, Self::LEN)?;
        let ack = Self {
            bufs: bsdh.bufs,
            version: Version::parse(byte_at(bytes, 16))?,
            takes_invalidate: byte_at(bytes, 17) & 0x01 != 0,
            adverts_max: byte_at(bytes, 19),
            own_size: u32_at(bytes, 20),
        };
        check_limits(ack.bufs, u16::from(ack.adverts_max), ack.own_size)?;
        Ok(ack)
    }

    /// The whole message as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..BSDH_LEN].copy_from_slice(&setup_bsdh(Mid::HelloAck, self.bufs, Self::LEN).emit());
        bytes[16] = self.version.byte();
        bytes[17] = u8::from(self.takes_invalidate);
        bytes[19] = self.adverts_max;
        bytes[20..24].copy_from_slice(&self.own_size.to_be_bytes());
        bytes
    }

    /// The message, cut to `available` bytes. Only zeros may be cut.
    pub fn trimmed(&self, available: usize) -> Result<Vec<u8>, TrimError> {
        if available < Self::NEEDED_LEN {
            return Err(TrimError {
                needed: Self::NEEDED_LEN,
                available,
            });
        }
        Ok(self.emit()[..Self::LEN.min(available)].to_vec())
    }
}
