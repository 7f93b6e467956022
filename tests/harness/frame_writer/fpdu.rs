//! The MPA frame around a DDP segment (RFC 5044 section 4); each of its parts can be given a wrong
//! value.

use super::{Frame, crc32c};

/// An FPDU. Parts that are not set have the correct value.
#[derive(Debug, Clone)]
#[must_use]
pub struct Fpdu {
    ulpdu: Vec<u8>,
    ulpdu_len: u16,
    pad: Vec<u8>,
    /// Changes the CRC after it was computed.
    crc_flip: u32,
}

impl Fpdu {
    /// The frame around a DDP segment.
    ///
    /// # Panics
    /// When the segment is too long for the length field.
    pub fn new(segment: &Frame) -> Self {
        Self::of(segment.bytes())
    }

    /// The frame around any bytes.
    ///
    /// # Panics
    /// As for [`Fpdu::new`].
    pub fn of(ulpdu: Vec<u8>) -> Self {
        let ulpdu_len = u16::try_from(ulpdu.len()).expect("a segment fits its length field");
        let pad = vec![0; (2 + ulpdu.len()).next_multiple_of(4) - 2 - ulpdu.len()];
        Self {
            ulpdu,
            ulpdu_len,
            pad,
            crc_flip: 0,
        }
    }

    /// Sets a wrong length field; the bytes stay unchanged.
    pub fn claiming(mut self, ulpdu_len: u16) -> Self {
        self.ulpdu_len = ulpdu_len;
        self
    }

    /// Fills the pad with this byte.
    pub fn padded_with(mut self, byte: u8) -> Self {
        self.pad.fill(byte);
        self
    }

    /// Changes these bits of the CRC.
    pub fn crc_flipped(mut self, bits: u32) -> Self {
        self.crc_flip = bits;
        self
    }

    /// The DDP segment inside.
    pub fn ulpdu(&self) -> &[u8] {
        &self.ulpdu
    }

    /// The bytes on the wire. The CRC covers all bytes before it, wrong values included.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.ulpdu_len.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.ulpdu);
        bytes.extend_from_slice(&self.pad);
        let crc = crc32c(&bytes) ^ self.crc_flip;
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::Fpdu;
    use crate::frame_writer;
    use crate::raw::{SEND_HELLO, WRITE_TO_NOWHERE};

    #[test]
    fn frames_equal_the_golden_frames() {
        let send = frame_writer::send(frame_writer::SEND, 1, b"hello");
        assert_eq!(Fpdu::new(&send).bytes(), SEND_HELLO);
        let write = frame_writer::write(0xdead_be00, 0x3000, b"oops!");
        assert_eq!(Fpdu::new(&write).bytes(), WRITE_TO_NOWHERE);
    }
}
