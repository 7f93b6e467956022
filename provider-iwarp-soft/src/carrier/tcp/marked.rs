//! MPA markers between the bytes of FPDUs (RFC 5044 section 4.3), for peers that request them.
//!
//! Each direction of a connection has markers or has none. The protocol defines their positions
//! ([`iwarp_proto::wire::marker`]). This module inserts them between the bytes of an FPDU and
//! removes them, in place. The CRC of an FPDU covers its markers, including a marker right before
//! the FPDU.

use std::ops::Range;

use iwarp_proto::MpaError;
use iwarp_proto::wire::fpdu::{self, ULPDU_MIN};
use iwarp_proto::wire::marker::{self, INTERVAL, LEN, Marker, markers};

use super::crc::crc32c;

/// The longest FPDU, without markers.
const FPDU_MAX: usize = fpdu::total_len(u16::MAX as usize);
/// The maximum number of bytes that markers can add to an FPDU.
pub(crate) const BYTES_MAX: usize = LEN * (FPDU_MAX / (INTERVAL as usize - LEN) + 2);

/// The sending direction.
#[derive(Debug, Default)]
pub(crate) struct MarkedTx {
    /// Octets since the first FPDU, counted from the marker before it.
    position: u64,
}

impl MarkedTx {
    /// A stream of which this number of octets was sent.
    pub(crate) fn at(position: u64) -> Self {
        Self { position }
    }

    /// The length on the wire of the next FPDU, which has `fpdu_len` bytes without markers.
    pub(crate) fn len(&self, fpdu_len: usize) -> usize {
        marker::total_len(self.position, fpdu_len)
    }

    /// Inserts the markers into the next FPDU. `room` is [`Self::len`] bytes long and has the FPDU,
    /// `fpdu_len` bytes, at its end.
    pub(crate) fn insert(&mut self, room: &mut [u8], fpdu_len: usize) {
        let (mut from, mut to) = (room.len() - fpdu_len, 0);
        let mut done = 0;
        for marker in markers(self.position, fpdu_len) {
            let len = marker.at - done;
            room.copy_within(from..from + len, to);
            (from, to, done) = (from + len, to + len, marker.at);
            room[to..to + LEN].copy_from_slice(&marker.emit());
            to += LEN;
        }
        // The gap has closed by the length of each marker, so the rest is in the right position.
        debug_assert_eq!(from, to);
        self.position += room.len() as u64;
    }
}

/// The receiving direction.
#[derive(Debug, Default)]
pub(crate) struct MarkedRx {
    /// Counted as in [`MarkedTx`].
    position: u64,
}

/// An FPDU whose markers were removed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unmarked {
    /// The ULPDU, as a range of the given bytes.
    pub(crate) ulpdu: Range<usize>,
    /// The length of the FPDU with its markers, in bytes.
    pub(crate) consumed: usize,
}

impl MarkedRx {
    /// Takes the FPDU at the front of the stream, and closes the gaps between its bytes. Returns
    /// `None` if the FPDU is incomplete.
    pub(crate) fn take(
        &mut self,
        front: &mut [u8],
        crc: bool,
    ) -> Result<Option<Unmarked>, MpaError> {
        let lead = if self.position.is_multiple_of(INTERVAL) {
            LEN
        } else {
            0
        };
        let Some(length) = front.get(lead..).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        let ulpdu_len = usize::from(u16::from_be_bytes(*length));
        if ulpdu_len < ULPDU_MIN {
            return Err(MpaError::Length);
        }
        let fpdu_len = fpdu::total_len(ulpdu_len);
        let consumed = marker::total_len(self.position, fpdu_len);
        let Some(frame) = front.get_mut(..consumed) else {
            return Ok(None);
        };
        let (covered, field) = frame.split_at(consumed - fpdu::CRC_LEN);
        if crc && fpdu::crc_field(crc32c(covered)) != field {
            return Err(MpaError::Crc);
        }
        if !remove(frame, self.position, fpdu_len) {
            return Err(MpaError::Length);
        }
        self.position += consumed as u64;
        let ulpdu = fpdu::LENGTH_LEN..fpdu::LENGTH_LEN + ulpdu_len;
        Ok(Some(Unmarked { ulpdu, consumed }))
    }
}

/// Moves the FPDU to the front of `frame`. Returns `false` if a marker does not have the expected
/// value.
fn remove(frame: &mut [u8], position: u64, fpdu_len: usize) -> bool {
    let (mut from, mut to) = (0, 0);
    for marker in markers(position, fpdu_len) {
        let len = marker.at - to;
        frame.copy_within(from..from + len, to);
        (from, to) = (from + len, to + len);
        let found = frame[from..].first_chunk().copied().map(Marker::parse);
        if found != Some(marker.fpdu_ptr) {
            return false;
        }
        from += LEN;
    }
    frame.copy_within(from.., to);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An FPDU of `fpdu_len` bytes without a good CRC.
    fn plain(fpdu_len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..fpdu_len).map(|at| (at * 7) as u8).collect();
        let ulpdu_len = (fpdu_len - fpdu::LENGTH_LEN - fpdu::CRC_LEN) as u16;
        bytes[..2].copy_from_slice(&ulpdu_len.to_be_bytes());
        bytes
    }

    #[test]
    fn inserted_markers_are_removed_at_every_phase() {
        for phase in (0..512).step_by(4) {
            for fpdu_len in [
                20, 24, 500, 504, 508, 512, 516, 1_020, 1_444, 16_404, 65_532,
            ] {
                let mut tx = MarkedTx { position: phase };
                let frame = plain(fpdu_len);
                let mut room = vec![0; tx.len(fpdu_len)];
                assert!(room.len() - fpdu_len <= BYTES_MAX);
                let at = room.len() - fpdu_len;
                room[at..].copy_from_slice(&frame);
                tx.insert(&mut room, fpdu_len);

                let mut rx = MarkedRx { position: phase };
                let whole = room.len();
                for part in [0, 3, 5, whole / 2, whole - 1] {
                    assert_eq!(rx.take(&mut room[..part], false), Ok(None));
                }
                let taken = rx.take(&mut room, false).unwrap().unwrap();
                assert_eq!(taken.consumed, whole);
                assert_eq!(taken.ulpdu, 2..fpdu_len - 4);
                assert_eq!(room[..fpdu_len], frame, "phase {phase}, {fpdu_len} bytes");
                assert_eq!(rx.position, tx.position);
            }
        }
    }

    #[test]
    fn a_marker_that_points_elsewhere_is_a_length_error() {
        for wrong in [4, 8, 0x100] {
            let mut tx = MarkedTx { position: 508 };
            let mut room = vec![0; tx.len(100)];
            let at = room.len() - 100;
            room[at..].copy_from_slice(&plain(100));
            tx.insert(&mut room, 100);
            let pointer = u16::from_be_bytes([room[6], room[7]]) ^ wrong;
            room[6..8].copy_from_slice(&pointer.to_be_bytes());
            let mut rx = MarkedRx { position: 508 };
            assert_eq!(rx.take(&mut room, false), Err(MpaError::Length));
        }
    }
}
