//! MPA markers (RFC 5044 section 4.3): their positions and their content.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |           RESERVED            |            FPDUPTR            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! The first marker is right before the first FPDU, and further ones follow every 512 octets of the
//! stream, marker bytes counted. FPDUPTR is the distance back to the ULPDU length field of the FPDU
//! around the marker. It is 0 between two FPDUs, where the marker belongs to the FPDU that follows.

/// Bytes of a marker.
pub const LEN: usize = 4;
/// Octets of the stream from one marker to the next.
pub const INTERVAL: u64 = 512;

/// A marker of an FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The number of bytes of the FPDU (length, ULPDU, pad, CRC) before the marker.
    pub at: usize,
    /// The FPDUPTR field: `at` plus the bytes of the earlier markers of this FPDU.
    pub fpdu_ptr: u16,
}

impl Marker {
    /// The bytes on the wire.
    #[must_use]
    pub const fn emit(&self) -> [u8; LEN] {
        let [high, low] = self.fpdu_ptr.to_be_bytes();
        [0, 0, high, low]
    }

    /// The FPDUPTR of a received marker; its low two bits are reserved.
    #[must_use]
    pub const fn parse(bytes: [u8; LEN]) -> u16 {
        u16::from_be_bytes([bytes[2], bytes[3]]) & !3
    }
}

/// The markers of one FPDU, in order.
#[derive(Clone, Debug)]
pub struct Markers {
    /// Stream position of the next byte to send, marker or not.
    position: u64,
    /// Bytes of the FPDU that were sent, markers not counted.
    sent: usize,
    /// Bytes of this FPDU on the wire so far, markers counted unless they precede it.
    distance: u64,
    fpdu_len: usize,
}

/// Returns the markers of an FPDU of `fpdu_len` bytes (without markers) whose first byte, or first
/// marker, is sent at `position`: octets since the start of full operation, markers counted.
/// `position` and `fpdu_len` are multiples of 4, as every FPDU keeps them.
#[must_use]
pub const fn markers(position: u64, fpdu_len: usize) -> Markers {
    Markers {
        position,
        sent: 0,
        distance: 0,
        fpdu_len,
    }
}

/// The length of the FPDU on the wire in bytes, markers counted.
#[must_use]
pub fn total_len(position: u64, fpdu_len: usize) -> usize {
    fpdu_len + LEN * markers(position, fpdu_len).count()
}

impl Iterator for Markers {
    type Item = Marker;

    fn next(&mut self) -> Option<Marker> {
        let gap = self.position.next_multiple_of(INTERVAL) - self.position;
        let at = self.sent + gap as usize;
        // A marker at the very end is between two FPDUs and belongs to the next one.
        if at >= self.fpdu_len {
            return None;
        }
        self.distance += gap;
        // The distance fits the field in every FPDU that is sent: MULPDU is at most 64768, so the
        // FPDU and its markers have fewer than 65536 bytes.
        let fpdu_ptr = self.distance as u16;
        if at > 0 {
            self.distance += LEN as u64;
        }
        self.position += gap + LEN as u64;
        self.sent = at;
        Some(Marker { at, fpdu_ptr })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_inside_an_fpdu_as_in_golden_frame_m3() {
        // Send of 600 bytes: ULPDU 618, FPDU 624, from stream octet 36.
        let all: Vec<_> = markers(36, 624).collect();
        assert_eq!(
            all,
            [Marker {
                at: 476,
                fpdu_ptr: 0x01dc
            }]
        );
        assert_eq!(all[0].emit(), [0x00, 0x00, 0x01, 0xdc]);
        assert_eq!(Marker::parse([0, 0, 0x01, 0xdf]), 0x01dc);
    }

    #[test]
    fn marker_between_two_fpdus_belongs_to_the_second() {
        assert_eq!(markers(500, 12).count(), 0);
        let all: Vec<_> = markers(512, 12).collect();
        assert_eq!(all, [Marker { at: 0, fpdu_ptr: 0 }]);
    }

    #[test]
    fn stream_of_fpdus_has_a_marker_at_every_multiple_of_512() {
        let mut position = 0;
        let mut expected = 0;
        for fpdu_len in (20..65_000).step_by(1_796) {
            let all: Vec<_> = markers(position, fpdu_len).collect();
            let leading = usize::from(all.first().is_some_and(|marker| marker.at == 0));
            for (before, marker) in all.iter().enumerate() {
                assert_eq!(position + (marker.at + LEN * before) as u64, expected);
                let within = before.saturating_sub(leading);
                assert_eq!(usize::from(marker.fpdu_ptr), marker.at + LEN * within);
                expected += INTERVAL;
            }
            position += total_len(position, fpdu_len) as u64;
        }
        assert!(expected > 100 * INTERVAL);
    }
}
