//! A message of the data path.

use super::{BSDH_LEN, Body, Bsdh, Flags, Mid, WireError};
use crate::Seq;

/// The length of the longest header of the data path, SinkAvail's, in bytes.
pub const HEADER_MAX: usize = 36;

/// A message without its payload bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Flags for urgent data and hints.
    pub flags: Flags,
    /// The number of receive buffers that the sender has posted.
    pub bufs: u16,
    /// The sequence number.
    pub seq: Seq,
    /// The number of the last message in the other direction that the sender has processed.
    pub ack: Seq,
    /// The kind of the message, with its extended header.
    pub body: Body,
    /// The number of payload bytes after the headers.
    pub payload_len: u32,
}

/// The headers of a message as bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Header {
    mid: Mid,
    bytes: [u8; HEADER_MAX],
    len: usize,
}

impl Message {
    /// Parses a message of `len` bytes. `head` is its beginning: all of it, or at least
    /// [`HEADER_MAX`] bytes.
    pub fn parse(head: &[u8], len: usize) -> Result<Self, WireError> {
        let bsdh = Bsdh::parse(head)?;
        let mid = bsdh.mid;
        if matches!(mid, Mid::Hello | Mid::HelloAck) {
            return Err(WireError::Misplaced(mid));
        }
        if bsdh.len as usize != len {
            return Err(WireError::Length {
                stated: bsdh.len,
                received: len,
            });
        }
        let header_len = BSDH_LEN + mid.extended_len();
        let Some(extended) = head.get(BSDH_LEN..header_len) else {
            return Err(WireError::Short { len });
        };
        let Some(payload_len) = len.checked_sub(header_len) else {
            return Err(WireError::Short { len });
        };
        if payload_len > 0 && !mid.may_carry_payload() {
            return Err(WireError::Payload(mid));
        }
        if bsdh.flags.contains(Flags::OOB_PRES) && (mid != Mid::Data || payload_len == 0) {
            return Err(WireError::Urgent);
        }
        Ok(Self {
            flags: bsdh.flags,
            bufs: bsdh.bufs,
            seq: bsdh.seq,
            ack: bsdh.ack,
            body: Body::parse(mid, extended)?,
            payload_len: payload_len as u32,
        })
    }

    /// The headers as bytes.
    #[must_use]
    pub fn emit(&self) -> Header {
        let mid = self.body.mid();
        let len = self.header_len();
        let bsdh = Bsdh {
            mid,
            flags: self.flags,
            bufs: self.bufs,
            len: len as u32 + self.payload_len,
            seq: self.seq,
            ack: self.ack,
        };
        let mut bytes = [0; HEADER_MAX];
        bytes[..BSDH_LEN].copy_from_slice(&bsdh.emit());
        self.body.emit(&mut bytes[BSDH_LEN..len]);
        Header { mid, bytes, len }
    }

    /// The length of the headers in bytes.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        BSDH_LEN + self.body.mid().extended_len()
    }

    /// True if the message carries nothing but credits.
    #[must_use]
    pub const fn is_credit_update(&self) -> bool {
        matches!(self.body, Body::Data) && self.payload_len == 0
    }
}

impl Header {
    /// The headers, without unused space.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The kind of the message.
    #[must_use]
    pub const fn mid(&self) -> Mid {
        self.mid
    }

    /// This header with other flags.
    #[must_use]
    pub(crate) fn with_flags(mut self, flags: Flags) -> Self {
        self.bytes[1] = flags.byte();
        self
    }
}

impl std::fmt::Debug for Header {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for group in self.as_bytes().chunks(4) {
            for byte in group {
                write!(f, "{byte:02x}")?;
            }
            f.write_str(" ")?;
        }
        Ok(())
    }
}
