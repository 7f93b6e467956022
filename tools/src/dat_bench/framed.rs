//! The cost of the protocol itself: DDP segments in FPDUs with CRC, without queues or an API.
//!
//! The sender assembles whole frames in one buffer, which is sent in one write. The receiver stages
//! the bytes that it receives, checks each CRC and copies the payload to its destination.

use anyhow::{Result, bail, ensure};
use crc_fast::CrcAlgorithm::Crc32Iscsi;
use iwarp_proto::Msn;
use iwarp_proto::wire::ddp::{UNTAGGED_LEN, Untagged, qn};
use iwarp_proto::wire::fpdu::{self, Deframed};
use tool_args::bench::case::SIZE_MAX;

/// Payload of one FPDU where its length is free, as between two ends of the software provider.
pub(crate) const PAYLOAD_LONG: usize = 16 << 10;
/// The bytes that a receiver reads at once.
const STAGE_LEN: usize = 256 << 10;
/// The RDMAP control byte of a Send.
const SEND: u8 = 0x43;

/// Writes and reads frames, over a socket that the caller owns.
#[derive(Debug)]
pub(crate) struct Framer {
    payload_max: usize,
    out: Vec<u8>,
    msn: u32,
    stage: Vec<u8>,
    /// The part of the stage that holds received bytes and not yet a whole frame.
    begin: usize,
    end: usize,
    sink: Vec<u8>,
}

impl Framer {
    pub(crate) fn new() -> Self {
        Self {
            payload_max: PAYLOAD_LONG,
            out: Vec::with_capacity(SIZE_MAX + SIZE_MAX / 16),
            msn: 0,
            stage: vec![0; STAGE_LEN],
            begin: 0,
            end: 0,
            sink: vec![0; SIZE_MAX],
        }
    }

    /// Sets the longest payload of the FPDUs that follow.
    pub(crate) fn set_payload_max(&mut self, len: usize) {
        self.payload_max = len;
    }

    /// The longest payload whose FPDU fits into one TCP segment.
    pub(crate) fn payload_in_segment(mss: usize) -> usize {
        fpdu::mulpdu(mss, false) - UNTAGGED_LEN
    }

    /// The frames of `count` equal messages.
    pub(crate) fn assemble(&mut self, message: &[u8], count: usize) -> Result<&[u8]> {
        self.out.clear();
        for _ in 0..count {
            self.msn = self.msn.wrapping_add(1);
            let mut offset = 0;
            for payload in message.chunks(self.payload_max) {
                let last = offset + payload.len() == message.len();
                self.frame(payload, u32::try_from(offset)?, last)?;
                offset += payload.len();
            }
        }
        Ok(&self.out)
    }

    fn frame(&mut self, payload: &[u8], offset: u32, last: bool) -> Result<()> {
        let begin = self.out.len();
        let ulpdu_len = UNTAGGED_LEN + payload.len();
        let mut header = [0; UNTAGGED_LEN];
        Untagged {
            last,
            rdmap: SEND,
            rsvd_ulp: 0,
            qn: qn::SEND,
            msn: Msn(self.msn),
            mo: offset,
        }
        .emit(&mut header);
        self.out
            .extend_from_slice(&u16::try_from(ulpdu_len)?.to_be_bytes());
        self.out.extend_from_slice(&header);
        self.out.extend_from_slice(payload);
        self.out.extend_from_slice(&[0; 3][..fpdu::pad(ulpdu_len)]);
        let crc = crc32c(&self.out[begin..]);
        self.out.extend_from_slice(&crc);
        Ok(())
    }

    /// The buffer to receive into; never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        // The start of a frame is moved only if the rest of the frame might not fit.
        let is_full = self.stage.len() - self.end < fpdu::total_len(fpdu::MULPDU_MAX);
        if self.begin == self.end || is_full {
            self.stage.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
        }
        &mut self.stage[self.end..]
    }

    /// Places the frames that `len` more bytes have completed. Returns the number of messages that
    /// ended.
    pub(crate) fn arrived(&mut self, len: usize) -> Result<u64> {
        self.end += len;
        let mut messages = 0;
        loop {
            let rest = &self.stage[self.begin..self.end];
            match fpdu::peek(rest) {
                Deframed::Need(_) => return Ok(messages),
                Deframed::BadLength => bail!("the frames are out of step"),
                Deframed::Fpdu {
                    ulpdu_len,
                    total_len,
                } => {
                    let last = place(&rest[..total_len], ulpdu_len, &mut self.sink)?;
                    messages += u64::from(last);
                    self.begin += total_len;
                }
            }
        }
    }
}

/// Checks one frame and copies its payload into `sink`. Returns true if the frame ends its message.
fn place(frame: &[u8], ulpdu_len: usize, sink: &mut [u8]) -> Result<bool> {
    let (covered, crc) = frame.split_at(frame.len() - fpdu::CRC_LEN);
    ensure!(crc32c(covered) == *crc, "a frame has a wrong CRC");
    let ulpdu = &covered[fpdu::LENGTH_LEN..][..ulpdu_len];
    let Some((header, payload)) = ulpdu.split_first_chunk() else {
        bail!("a frame without a header");
    };
    let header = Untagged::parse(header);
    let offset = usize::try_from(header.mo)?;
    let Some(target) = sink.get_mut(offset..offset + payload.len()) else {
        bail!("a frame beyond the largest message");
    };
    target.copy_from_slice(payload);
    Ok(header.last)
}

fn crc32c(covered: &[u8]) -> [u8; fpdu::CRC_LEN] {
    fpdu::crc_field(crc_fast::checksum(Crc32Iscsi, covered) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Receives a stream that is cut every `cut` bytes. Returns the number of messages that ended.
    fn receive(framer: &mut Framer, stream: &[u8], cut: usize) -> Result<u64> {
        let mut messages = 0;
        for piece in stream.chunks(cut) {
            framer.room()[..piece.len()].copy_from_slice(piece);
            messages += framer.arrived(piece.len())?;
        }
        Ok(messages)
    }

    #[test]
    fn messages_are_complete_wherever_the_stream_is_split() {
        let message: Vec<u8> = (0..40_001u32).map(|i| (i % 251) as u8).collect();
        for payload_max in [Framer::payload_in_segment(1448), PAYLOAD_LONG] {
            let mut sender = Framer::new();
            sender.set_payload_max(payload_max);
            let stream = sender.assemble(&message, 3).unwrap().to_vec();
            for cut in [1, 7, 1448, 100_000] {
                let mut receiver = Framer::new();
                assert_eq!(receive(&mut receiver, &stream, cut).unwrap(), 3);
                assert_eq!(receiver.sink[..message.len()], message);
            }
        }
    }

    #[test]
    fn a_changed_bit_is_detected() {
        let mut framer = Framer::new();
        let mut stream = framer.assemble(&[9; 100], 1).unwrap().to_vec();
        stream[60] ^= 1;
        assert!(receive(&mut framer, &stream, 4096).is_err());
    }

    #[test]
    fn a_frame_fills_a_segment() {
        let payload = Framer::payload_in_segment(1448);
        assert_eq!(fpdu::total_len(UNTAGGED_LEN + payload), 1448);
    }
}
