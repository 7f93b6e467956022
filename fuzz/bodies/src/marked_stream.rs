//! MPA markers: inserted between the bytes of FPDUs, damaged in transit, removed again.
//!
//! Input: one byte of flags; the cuts, with their count first; then either a stream as a peer might
//! send it, or the lengths of FPDUs, with their count first (two bytes each), and the damage to the
//! stream: a position (two bytes) and the bits that flip there.
//!
//! The following must hold. Markers are where RFC 5044 section 4.3 requires them, with the content
//! that it requires. Inserted markers are removed again. Up to the first damaged FPDU all FPDUs are
//! received, and with a CRC none after it. The cuts of the stream do not matter.

use iwarp_proto::{
    MpaError,
    wire::{
        fpdu::{self, CRC_LEN, LENGTH_LEN, ULPDU_MIN},
        marker::{INTERVAL, LEN},
    },
};

use crate::{
    crc::crc32c,
    input::{Input, in_pieces},
    marked::{BYTES_MAX, MarkedRx, MarkedTx},
    seed::{Seed, seed},
};

/// The number of bytes by which ULPDUs may exceed the shortest one.
const SPREAD: usize = 1800;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let flags = input.byte();
    let crc = flags & 1 == 0;
    let cut_count = input.below(16);
    let cuts = input.bytes(cut_count);
    if flags & 2 != 0 {
        receive_both(input.rest(), cuts, crc);
        return;
    }
    let ulpdus: Vec<Vec<u8>> = (0..input.below(12))
        .map(|index| {
            let len = ULPDU_MIN + usize::from(input.short()) % SPREAD;
            (0..len).map(|at| (at + 37 * index) as u8).collect()
        })
        .collect();
    let sent = Sent::of(&ulpdus);
    sent.check_markers();
    let mut stream = sent.stream.clone();
    for _ in 0..4 {
        let (at, flip) = (usize::from(input.short()), input.byte());
        if let Some(byte) = stream.get_mut(at) {
            *byte ^= flip;
        }
    }
    let received = receive_both(&stream, cuts, crc);
    let damaged = (0..stream.len()).find(|&at| stream[at] != sent.stream[at]);
    let whole = sent
        .ends
        .partition_point(|&end| damaged.is_none_or(|at| end <= at));
    assert!(received.ulpdus.starts_with(&ulpdus[..whole]));
    if damaged.is_none() || crc {
        assert_eq!(received.ulpdus.len(), whole);
    }
    assert!(damaged.is_some() || received.error.is_none());
}

/// A stream with markers.
struct Sent {
    stream: Vec<u8>,
    /// The offsets at which its FPDUs end.
    ends: Vec<usize>,
}

impl Sent {
    fn of(ulpdus: &[Vec<u8>]) -> Self {
        let mut tx = MarkedTx::at(0);
        let (mut stream, mut ends) = (Vec::new(), Vec::new());
        for ulpdu in ulpdus {
            let fpdu_len = fpdu::total_len(ulpdu.len());
            let mut room = vec![0xEE; tx.len(fpdu_len)];
            let at = room.len() - fpdu_len;
            assert!(at <= BYTES_MAX);
            let plain = &mut room[at..];
            plain[..LENGTH_LEN].copy_from_slice(&(ulpdu.len() as u16).to_be_bytes());
            plain[LENGTH_LEN..][..ulpdu.len()].copy_from_slice(ulpdu);
            tx.insert(&mut room, fpdu_len);
            let covered = room.len() - CRC_LEN;
            let field = fpdu::crc_field(crc32c(&room[..covered]));
            room[covered..].copy_from_slice(&field);
            stream.extend(room);
            ends.push(stream.len());
        }
        Self { stream, ends }
    }

    /// Checks that there is a marker at each multiple of 512 and nowhere else, with the distance to
    /// its FPDU.
    fn check_markers(&self) {
        let mut start = 0_usize;
        for &end in &self.ends {
            let lead = start.is_multiple_of(INTERVAL as usize);
            let first = start + if lead { LEN } else { 0 };
            let mut plain = Vec::new();
            let mut at = start;
            while at < end {
                if at.is_multiple_of(INTERVAL as usize) {
                    let distance = at.saturating_sub(first) as u16;
                    let [high, low] = distance.to_be_bytes();
                    assert_eq!(self.stream[at..at + LEN], [0, 0, high, low]);
                } else {
                    plain.extend_from_slice(&self.stream[at..at + LEN]);
                }
                at += LEN;
            }
            let ulpdu_len = usize::from(u16::from_be_bytes([plain[0], plain[1]]));
            assert_eq!(plain.len(), fpdu::total_len(ulpdu_len));
            start = end;
        }
    }
}

/// The result of receiving a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    ulpdus: Vec<Vec<u8>>,
    error: Option<MpaError>,
}

/// Receives the stream whole and in pieces, and checks that both give the same result.
fn receive_both(stream: &[u8], cuts: &[u8], crc: bool) -> Received {
    let whole = receive(stream, &[], crc);
    let cuts = if cuts.is_empty() {
        &[1, 3, 200][..]
    } else {
        cuts
    };
    assert_eq!(whole, receive(stream, cuts, crc), "cuts at {cuts:?}");
    whole
}

fn receive(stream: &[u8], cuts: &[u8], crc: bool) -> Received {
    let (mut rx, mut received) = (MarkedRx::default(), Received::default());
    let (mut staging, mut done) = (Vec::new(), 0);
    in_pieces(stream, cuts, |piece| {
        staging.extend_from_slice(piece);
        while received.error.is_none() {
            let front: &mut [u8] = &mut staging[done..];
            match rx.take(front, crc) {
                Ok(Some(taken)) => {
                    assert!(taken.ulpdu.end + CRC_LEN <= taken.consumed);
                    assert!(taken.ulpdu.len() >= ULPDU_MIN);
                    received.ulpdus.push(front[taken.ulpdu].to_vec());
                    done += taken.consumed;
                }
                Ok(None) => return,
                Err(error) => received.error = Some(error),
            }
        }
    });
    received
}

/// Lengths that put markers before, inside and right after FPDUs, and damage to each part.
pub(crate) fn seeds() -> Vec<Seed> {
    // Length field, ULPDU, CRC; the first marker precedes the first FPDU.
    let fills_interval = (512 - LEN - LENGTH_LEN - CRC_LEN - ULPDU_MIN) as u16;
    let lengths = [0, fills_interval, 0, 1500, 498, 1799];
    let mut plain = vec![0, 0, lengths.len() as u8];
    for len in lengths {
        plain.extend_from_slice(&len.to_le_bytes());
    }
    let with = |tail: &[u8]| [&plain[..], tail].concat();
    let rows = [
        ("plain", plain.clone()),
        ("cut", [&[0, 3, 1, 5, 250], &plain[2..]].concat()),
        ("bad-marker", with(&[2, 2, 0xFF])),
        ("bad-length", with(&[4, 0, 1])),
        ("bad-payload-no-crc", {
            let mut bytes = with(&[40, 0, 1]);
            bytes[0] = 1;
            bytes
        }),
        ("raw", vec![2, 0, 0, 0, 0, 0, 0, 14, 1, 2, 3]),
    ];
    rows.map(|(name, bytes)| seed("marked_stream", name, bytes))
        .into()
}
