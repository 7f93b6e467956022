//! The consumer of a ring whose memory has any content.
//!
//! Input: the calls, with their count first, one byte each; then the bytes of the data area, which
//! are repeated until the area is full.
//!
//! The body checks that each record is inside the data area and has the length in its control word,
//! that a record does not change when the memory does, and that no call hangs or panics.

use std::sync::atomic::Ordering;

use super::record::Corrupt;
use super::{RING_LEN, Ring};
use crate::input::Input;
use crate::seed::{Seed, seed};

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let call_count = usize::from(input.byte());
    let calls = input.bytes(call_count);
    let contents = input.rest();
    let mut ring = Ring::new();
    fill(&ring, contents);
    for &call in calls {
        if consume(&mut ring, call).is_err() {
            return;
        }
    }
}

fn fill(ring: &Ring, contents: &[u8]) {
    let mut bytes = contents.iter().copied().cycle();
    for at in (0..RING_LEN).step_by(8) {
        let word = std::array::from_fn(|_| bytes.next().unwrap_or(0));
        let word = u64::from_le_bytes(word);
        ring.half.word(at).store(word, Ordering::Relaxed);
    }
}

/// A call of the consumer, or a change of the memory between two calls.
fn consume(ring: &mut Ring, call: u8) -> Result<(), Corrupt> {
    match call % 8 {
        0 => {
            if let Some(record) = ring.consumer.peek()? {
                ring.check(&record);
            }
        }
        1 => {
            let first = ring.consumer.peek()?;
            fill(ring, &[call]);
            let second = ring.consumer.peek()?;
            if let (Some(first), Some(second)) = (first, second) {
                assert_eq!(first.header(), second.header());
                assert_eq!(first.payload_len(), second.payload_len());
                ring.check(&second);
            }
        }
        2 | 3 => ring.consumer.advance(),
        4 => {
            ring.consumer.begin_pull()?;
        }
        5 => {
            if call & 8 != 0 {
                ring.consumer.end_pull();
            } else {
                ring.consumer.decline();
            }
        }
        6 => {
            ring.consumer.announce_sleep();
            ring.consumer.must_notify();
            ring.consumer.wake();
        }
        _ => ring.consumer.release(),
    }
    assert!(ring.consumer.pieces().len() <= 32);
    Ok(())
}

/// Records of each kind, right and wrong.
pub(crate) fn seeds() -> Vec<Seed> {
    // Kind, header length, tag, length of the payload.
    let word = |kind: u8, header_len: u8, tag: u8, len: u32| {
        let [a, b, c, d] = len.to_le_bytes();
        vec![kind, header_len, tag, 0, a, b, c, d]
    };
    let lines = |mut bytes: Vec<u8>| {
        bytes.resize(bytes.len().next_multiple_of(64), 7);
        bytes
    };
    let mut piece = word(2, 14, 0, 300);
    // State and number of pieces, a header, a piece.
    piece.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    piece.extend([9; 16]);
    piece.extend(4096_u64.to_le_bytes());
    piece.extend(300_u64.to_le_bytes());
    let two = [lines(word(1, 18, 0, 20)), lines(word(1, 0, 1, 0))].concat();
    let rows = [
        ("empty", vec![0; 8]),
        ("two", two),
        ("long", lines(word(1, 18, 0, 1000))),
        ("too-long", lines(word(1, 18, 0, 2000))),
        ("reference", lines(piece)),
        ("skip", lines(word(3, 0, 0, 4096))),
        ("garbage", vec![0xFF; 3]),
    ];
    let calls = [7, 0, 4, 5, 2, 1, 3, 6];
    rows.map(|(name, bytes)| seed("ring_contents", name, [&calls[..], &bytes].concat()))
        .into()
}
