//! The base header.

use super::{Mid, WireError, u16_at, u32_at};
use crate::Seq;

/// The length of the base header in bytes.
pub const BSDH_LEN: usize = 16;

/// Flags of the base header. Other bits are zero when sent and ignored when received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// The last payload byte of this Data message is urgent.
    pub const OOB_PRES: Self = Self(0x01);
    /// An urgent byte will follow, or is in this message.
    pub const OOB_PEND: Self = Self(0x02);
    /// The sink hints, in RdmaRdCompl, that the source should change to pipelined mode.
    pub const REQ_PIPE: Self = Self(0x04);

    /// The union of both sets of flags.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The flags byte of the header.
    pub(super) const fn byte(self) -> u8 {
        self.0
    }

    /// True if all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The base sockets direct header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bsdh {
    /// The kind of the message.
    pub mid: Mid,
    /// Flags for urgent data and hints.
    pub flags: Flags,
    /// The number of receive buffers that the sender has posted.
    pub bufs: u16,
    /// The length of the whole message in bytes, this header included.
    pub len: u32,
    /// The sequence number of this message.
    pub seq: Seq,
    /// The number of the last message in the other direction that the sender has processed.
    pub ack: Seq,
}

impl Bsdh {
    /// Parses the header at the start of a message.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        if bytes.len() < BSDH_LEN {
            return Err(WireError::Short { len: bytes.len() });
        }
        let mid = Mid::from_byte(bytes[0]).ok_or(WireError::UnknownMid(bytes[0]))?;
        Ok(Self {
            mid,
            flags: Flags(bytes[1] & 0x07),
            bufs: u16_at(bytes, 2),
            len: u32_at(bytes, 4),
            seq: Seq(u32_at(bytes, 8)),
            ack: Seq(u32_at(bytes, 12)),
        })
    }

    /// The header as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; BSDH_LEN] {
        let mut bytes = [0; BSDH_LEN];
        bytes[0] = self.mid as u8;
        bytes[1] = self.flags.byte();
        bytes[2..4].copy_from_slice(&self.bufs.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.seq.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.ack.0.to_be_bytes());
        bytes
    }
}
