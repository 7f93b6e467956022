//! The FPDU frame (RFC 5044 section 4).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |          ULPDU_Length         |                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//! |                                                               |
//! ~                            ULPDU                              ~
//! |               +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |               |          PAD (0-3 octets)                     |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                             CRC                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! The CRC is CRC32C over length, ULPDU and pad, and is sent least significant byte first. Pad
//! bytes are zero on send and not checked on receive (a known peer sends old bytes in them, covered
//! by its CRC).

/// Bytes of the length field.
pub const LENGTH_LEN: usize = 2;
/// Bytes of the CRC field, present even when CRC is off.
pub const CRC_LEN: usize = 4;
/// RFC 5044 section 4.1: the smallest MULPDU that MPA may offer to DDP.
pub const MULPDU_MIN: usize = 128;
/// RFC 5044 section 4.1: the largest MULPDU.
pub const MULPDU_MAX: usize = 64768;

/// The shortest ULPDU that can carry a DDP segment: a tagged header without payload.
pub const ULPDU_MIN: usize = super::ddp::TAGGED_LEN;

/// The number of zero bytes that bring length field, ULPDU and pad to a multiple of four.
#[must_use]
pub const fn pad(ulpdu_len: usize) -> usize {
    (LENGTH_LEN + ulpdu_len).wrapping_neg() & 3
}

/// The length of a complete FPDU in bytes, without markers.
#[must_use]
pub const fn total_len(ulpdu_len: usize) -> usize {
    LENGTH_LEN + ulpdu_len + pad(ulpdu_len) + CRC_LEN
}

/// The longest ULPDU whose FPDU fits into one TCP segment of `emss` bytes (RFC 5044 section 4.1),
/// kept within the bounds of the same section.
#[must_use]
pub const fn mulpdu(emss: usize, markers: bool) -> usize {
    let marker_bytes = if markers { 4 * emss.div_ceil(512) } else { 0 };
    let overhead = LENGTH_LEN + CRC_LEN + marker_bytes + emss % 4;
    let mulpdu = emss.saturating_sub(overhead);
    if mulpdu < MULPDU_MIN {
        MULPDU_MIN
    } else if mulpdu > MULPDU_MAX {
        MULPDU_MAX
    } else {
        mulpdu
    }
}

/// The content at the front of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deframed {
    /// An incomplete FPDU: call again when the buffer holds this many bytes.
    Need(usize),
    /// A complete FPDU. The ULPDU is `buf[2..2 + ulpdu_len]`, the CRC the last four bytes.
    Fpdu {
        /// The length of the ULPDU in bytes.
        ulpdu_len: usize,
        /// The length of the FPDU in bytes, all of which are in the buffer.
        total_len: usize,
    },
    /// The length field is impossible; the stream is lost
    /// ([`crate::MpaError::Length`]).
    BadLength,
}

/// Examines the front of a receive buffer without markers.
///
/// Every 16-bit length from [`ULPDU_MIN`] on is accepted, also beyond [`MULPDU_MAX`]: known peers
/// send up to 65535, so a receive buffer must hold `total_len(65535)`, 65544 bytes.
#[must_use]
pub fn peek(buf: &[u8]) -> Deframed {
    let Some(length) = buf.first_chunk::<LENGTH_LEN>() else {
        return Deframed::Need(LENGTH_LEN);
    };
    let ulpdu_len = usize::from(u16::from_be_bytes(*length));
    if ulpdu_len < ULPDU_MIN {
        return Deframed::BadLength;
    }
    let total_len = total_len(ulpdu_len);
    if buf.len() < total_len {
        return Deframed::Need(total_len);
    }
    Deframed::Fpdu {
        ulpdu_len,
        total_len,
    }
}

/// The CRC field for a CRC32C value: least significant byte first.
#[must_use]
pub const fn crc_field(crc32c: u32) -> [u8; CRC_LEN] {
    crc32c.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::VALUE_STEP;

    #[test]
    fn every_fpdu_is_a_multiple_of_four() {
        for ulpdu_len in (0..=65535).step_by(VALUE_STEP) {
            assert!(pad(ulpdu_len) < 4);
            assert_eq!(total_len(ulpdu_len) % 4, 0);
        }
        assert_eq!(total_len(0x17), 32, "A3 of the golden frames");
        assert_eq!(total_len(46), 52, "a Read Request");
    }

    #[test]
    fn mulpdu_follows_the_segment_size() {
        assert_eq!(mulpdu(1460, false), 1454);
        assert_eq!(
            mulpdu(1448, false),
            1442,
            "full segments of MTU 1500 with timestamps"
        );
        assert_eq!(mulpdu(1449, false), 1442);
        assert_eq!(mulpdu(1460, true), 1460 - 6 - 12);
        assert_eq!(mulpdu(100, false), MULPDU_MIN);
        assert_eq!(mulpdu(0, true), MULPDU_MIN);
        assert_eq!(mulpdu(65483, false), MULPDU_MAX);
        for emss in (136..65000).step_by(VALUE_STEP) {
            let fpdu = total_len(mulpdu(emss, false));
            assert!(fpdu <= emss && (fpdu > emss - 4 || mulpdu(emss, false) == MULPDU_MAX));
        }
    }

    #[test]
    fn peek_asks_for_exactly_what_is_missing() {
        let frame = [&[0x00, 0x17][..], &[0; 30]].concat();
        assert_eq!(peek(&frame[..0]), Deframed::Need(2));
        assert_eq!(peek(&frame[..1]), Deframed::Need(2));
        for len in 2..32 {
            assert_eq!(peek(&frame[..len]), Deframed::Need(32));
        }
        assert_eq!(
            peek(&frame),
            Deframed::Fpdu {
                ulpdu_len: 23,
                total_len: 32
            }
        );
    }

    #[test]
    fn lengths_that_hold_no_segment_are_refused() {
        for len in 0..ULPDU_MIN as u16 {
            assert_eq!(peek(&len.to_be_bytes()), Deframed::BadLength);
        }
        assert_eq!(peek(&65535_u16.to_be_bytes()), Deframed::Need(65544));
    }

    #[test]
    fn crc_is_sent_least_significant_byte_first() {
        assert_eq!(crc_field(0x0CB1_90B9), [0xb9, 0x90, 0xb1, 0x0c]);
    }
}
