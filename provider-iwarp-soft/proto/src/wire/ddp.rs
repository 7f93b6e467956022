//! The two DDP segment headers (RFC 5041 section 4).
//!
//! ```text
//! Tagged                              Untagged
//!  0                   1               0                   1
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5     0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |T|L| Resrvd| DV|   RDMAP ctrl  |   |T|L| Resrvd| DV|   RDMAP ctrl  |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |             STag              |   |  RsvdULP (Invalidate STag)    |
//! |                               |   |                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               |   |             QN                |
//! |              TO               |   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                               |   |             MSN               |
//! |                               |   +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+   |             MO                |
//!                                     +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! Reserved bits are 0 on send and ignored on receive.

use crate::{Msn, Stag};

/// Bytes of a tagged header, the RDMAP control byte included.
pub const TAGGED_LEN: usize = 14;
/// Bytes of an untagged header, the RDMAP control byte included.
pub const UNTAGGED_LEN: usize = 18;

/// The DDP version of RFC 5041.
const VERSION: u8 = 1;

mod field {
    use core::ops::Range;

    pub(super) const TAGGED: u8 = 0x80;
    pub(super) const LAST: u8 = 0x40;
    pub(super) const VERSION: u8 = 0x03;

    pub(super) const STAG: Range<usize> = 2..6;
    pub(super) const TO: Range<usize> = 6..14;

    pub(super) const RSVD_ULP: Range<usize> = 2..6;
    pub(super) const QN: Range<usize> = 6..10;
    pub(super) const MSN: Range<usize> = 10..14;
    pub(super) const MO: Range<usize> = 14..18;
}

/// The queues of the untagged model (RFC 5040 section 4.4, RFC 7306 section 4).
pub mod qn {
    /// Sends and Immediate Data.
    pub const SEND: u32 = 0;
    /// Read Requests and Atomic Requests.
    pub const REQUEST: u32 = 1;
    /// Terminate.
    pub const TERMINATE: u32 = 2;
    /// Atomic Responses.
    pub const ATOMIC_RESPONSE: u32 = 3;
    /// Carrier messages between two ends of this implementation ([`super::super::carrier`]). No
    /// RFC assigns this number.
    pub const CARRIER: u32 = 0x4441_5452;
}

/// The first byte of every DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control(pub u8);

impl Control {
    /// The T bit: the segment names its own target.
    #[must_use]
    pub const fn is_tagged(self) -> bool {
        self.0 & field::TAGGED != 0
    }

    /// The length of the header that begins with this byte, in bytes.
    #[must_use]
    pub const fn header_len(self) -> usize {
        if self.is_tagged() {
            TAGGED_LEN
        } else {
            UNTAGGED_LEN
        }
    }

    /// The L bit: the last segment of its message.
    #[must_use]
    pub const fn is_last(self) -> bool {
        self.0 & field::LAST != 0
    }

    /// True if the version is the one of RFC 5041.
    #[must_use]
    pub const fn is_version_known(self) -> bool {
        self.0 & field::VERSION == VERSION
    }

    const fn emit(tagged: bool, last: bool) -> u8 {
        VERSION | if tagged { field::TAGGED } else { 0 } | if last { field::LAST } else { 0 }
    }
}

/// A tagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// The last segment of its message.
    pub last: bool,
    /// The RDMAP control byte ([`super::rdmap::Control`]).
    pub rdmap: u8,
    /// The STag of the target memory.
    pub stag: Stag,
    /// The tagged offset of the payload in that memory.
    pub to: u64,
}

impl Tagged {
    /// Parses the header. T and DV are not checked here: [`Control`] is checked before.
    #[must_use]
    pub fn parse(header: &[u8; TAGGED_LEN]) -> Self {
        Self {
            last: Control(header[0]).is_last(),
            rdmap: header[1],
            stag: Stag(be32(&header[field::STAG])),
            to: be64(&header[field::TO]),
        }
    }

    /// Writes the header.
    pub fn emit(&self, header: &mut [u8; TAGGED_LEN]) {
        header[0] = Control::emit(true, self.last);
        header[1] = self.rdmap;
        header[field::STAG].copy_from_slice(&self.stag.0.to_be_bytes());
        header[field::TO].copy_from_slice(&self.to.to_be_bytes());
    }
}

/// An untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// The last segment of its message.
    pub last: bool,
    /// The RDMAP control byte ([`super::rdmap::Control`]).
    pub rdmap: u8,
    /// The STag to invalidate, or 0.
    pub rsvd_ulp: u32,
    /// Queue number, see [`qn`].
    pub qn: u32,
    /// Message sequence number.
    pub msn: Msn,
    /// Offset of the payload in its message.
    pub mo: u32,
}

impl Untagged {
    /// Parses the header. T and DV are not checked here: [`Control`] is checked before.
    #[must_use]
    pub fn parse(header: &[u8; UNTAGGED_LEN]) -> Self {
        Self {
            last: Control(header[0]).is_last(),
            rdmap: header[1],
            rsvd_ulp: be32(&header[field::RSVD_ULP]),
            qn: be32(&header[field::QN]),
            msn: Msn(be32(&header[field::MSN])),
            mo: be32(&header[field::MO]),
        }
    }

    /// Writes the header.
    pub fn emit(&self, header: &mut [u8; UNTAGGED_LEN]) {
        header[0] = Control::emit(false, self.last);
        header[1] = self.rdmap;
        header[field::RSVD_ULP].copy_from_slice(&self.rsvd_ulp.to_be_bytes());
        header[field::QN].copy_from_slice(&self.qn.to_be_bytes());
        header[field::MSN].copy_from_slice(&self.msn.0.to_be_bytes());
        header[field::MO].copy_from_slice(&self.mo.to_be_bytes());
    }
}

/// Decodes a big-endian 32-bit field. Callers pass a constant range of an array, so the length is
/// always four.
pub(crate) fn be32(field: &[u8]) -> u32 {
    u32::from_be_bytes(field.try_into().expect("a field of four bytes"))
}

/// Decodes a big-endian 64-bit field, see [`be32`].
pub(crate) fn be64(field: &[u8]) -> u64 {
    u64::from_be_bytes(field.try_into().expect("a field of eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_bits_are_ignored() {
        let control = Control(0x41 | 0x3C);
        assert!(!control.is_tagged() && control.is_last() && control.is_version_known());
        for version in [0, 2, 3] {
            assert!(!Control(0x40 | version).is_version_known());
        }
    }
}
