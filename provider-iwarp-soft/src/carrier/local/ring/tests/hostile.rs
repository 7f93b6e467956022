//! A peer that writes any value at any address.

use super::*;

const VALUES: [u64; 12] = [
    0,
    1,
    2,
    u64::MAX,
    1 << 63,
    // Words with a valid tag for the first lines: long, unknown, a skip, a reference.
    0xFFFF_FFFF_0000_4801,
    0x0000_0FC0_0000_FF01,
    0x0000_1000_0000_0003,
    0x0000_0FC0_0001_0003,
    0x0000_0010_0000_0002,
    // States and numbers of pieces.
    0x0000_0020_0000_0001,
    0x0000_0021_0000_0006,
];

/// The ends that have not found a fault yet.
struct Ends {
    half: Half,
    producer: Option<Producer>,
    consumer: Option<Consumer>,
}

impl Ends {
    fn new(shift: usize) -> Self {
        let (half, theirs) = halves(RING_LEN_MIN);
        let (mut producer, mut consumer) = (Producer::new(half.clone()), Consumer::new(theirs));
        pass_short_records(&mut producer, &mut consumer, shift);
        consumer.release();
        Self {
            half,
            producer: Some(producer),
            consumer: Some(consumer),
        }
    }

    /// Makes one step of each end. An end that finds a fault is removed.
    fn step(&mut self, step: usize) {
        if let Some(producer) = &mut self.producer
            && produce(producer, step).is_err()
        {
            self.producer = None;
        }
        if let Some(consumer) = &mut self.consumer
            && consume(consumer, step).is_err()
        {
            self.consumer = None;
        }
    }
}

fn produce(producer: &mut Producer, step: usize) -> Result<(), Corrupt> {
    let piece = Piece {
        addr: 4096,
        len: 16,
    };
    let pushed = match step % 4 {
        0 => push(producer, &[1; 18], &[2; 64]),
        1 => producer.push_reference(&[3; 14], &[piece; 3]),
        2 => push(producer, &[4; 14], &[5; 900]),
        _ => producer.push_last(&[6; 72]),
    };
    if let Err(Refused::Corrupt(corrupt)) = pushed {
        return Err(corrupt);
    }
    producer.publish();
    producer.must_ring();
    if let Ok(position) = pushed {
        producer
            .revoker()
            .revoke(Position(position.0.wrapping_sub(128)));
    }
    producer.poll_reference()?;
    producer.announce_wait()?;
    producer.consumed()?;
    Ok(())
}

fn consume(consumer: &mut Consumer, step: usize) -> Result<(), Corrupt> {
    for _ in 0..=step % 2 {
        let Some(record) = consumer.peek()? else {
            consumer.announce_sleep();
            break;
        };
        assert!(record.header().len() <= 72);
        match record.body {
            Body::None => {}
            // Reading all of them fails under a sanitizer, or at the end of the mapping.
            Body::Inline { .. } => drop(payload(&record)),
            Body::Reference { total } => {
                let lens = consumer.pieces().iter().map(|piece| u64::from(piece.len));
                assert!(consumer.pieces().len() <= PIECES_MAX && lens.sum::<u64>() == total.into());
                if consumer.begin_pull()? {
                    let _ = if step.is_multiple_of(3) {
                        consumer.decline()
                    } else {
                        consumer.end_pull()
                    };
                }
            }
        }
        consumer.advance();
    }
    consumer.must_notify();
    consumer.known_word();
    Ok(())
}

/// Changes one word after one step and continues.
fn check_mutation(shift: usize, after: usize, mutate: impl FnOnce(&Half)) {
    let mut ends = Ends::new(shift);
    for step in 0..=after {
        ends.step(step);
    }
    mutate(&ends.half);
    for step in after + 1..after + 6 {
        ends.step(step);
    }
}

#[test]
fn any_control_word_may_have_any_value() {
    for after in 0..6 {
        for at in (0..512).step_by(8) {
            for value in VALUES {
                check_mutation(0, after, |half| {
                    half.control_word(at).store(value, Ordering::Relaxed);
                });
            }
        }
    }
}

#[test]
fn any_word_of_a_record_may_have_any_value() {
    for shift in [0, 60] {
        for after in 0..6 {
            // Forty lines from the first record on: all that the script uses.
            let first = shift * LINE;
            for at in (first..first + 40 * LINE).step_by(8) {
                for value in VALUES {
                    // The tag of this line, so that more than the tag is checked.
                    let tag = (at / LINE) as u64;
                    check_mutation(shift, after, |half| {
                        let word = half.word(at % RING_LEN_MIN);
                        word.store(value | tag << 16, Ordering::Relaxed);
                    });
                }
            }
        }
    }
}

#[test]
fn any_byte_of_a_record_may_change() {
    for after in 0..4 {
        for at in 0..12 * LINE {
            for bit in [1, 0x80, 0xFF] {
                check_mutation(0, after, |half| {
                    let word = half.word(at / 8 * 8);
                    word.fetch_xor(bit << (at % 8 * 8), Ordering::Relaxed);
                });
            }
        }
    }
}

#[test]
fn each_fault_is_named() {
    let word = |kind: u64, header_len: u64, len: u64| kind | header_len << 8 | len << 32;
    let rows = [
        (word(4, 0, 0), Corrupt::Kind(4)),
        (word(1, 73, 0), Corrupt::HeaderLen(73)),
        (word(1, 18, 4096), Corrupt::PayloadLen(4096)),
        (word(1, 18, 0xFFFF_FFFF), Corrupt::PayloadLen(u32::MAX)),
        (word(3, 0, 4096), Corrupt::SkipLen(4096)),
        (word(3, 0, 64), Corrupt::SkipLen(64)),
        (word(2, 0, 9), Corrupt::PieceCount(0)),
        (
            word(1, 0, 0) | 5 << 16,
            Corrupt::Tag {
                found: 5,
                expected: 0,
            },
        ),
    ];
    for (word, fault) in rows {
        let (half, theirs) = halves(RING_LEN_MIN);
        half.word(0).store(word, Ordering::Relaxed);
        let mut consumer = Consumer::new(theirs);
        assert_eq!(consumer.peek().map(drop), Err(fault));
    }
    let (half, theirs) = halves(RING_LEN_MIN);
    let (mut producer, mut consumer) = (Producer::new(half.clone()), Consumer::new(theirs));
    producer
        .push_reference(&[], &[Piece { addr: 0, len: 8 }])
        .unwrap();
    producer.publish();
    half.word(24).store(1 << 32, Ordering::Relaxed);
    assert_eq!(consumer.peek().map(drop), Err(Corrupt::PieceLen(1 << 32)));
    half.word(24).store(7, Ordering::Relaxed);
    assert_eq!(consumer.peek().map(drop), Err(Corrupt::PieceLen(7)));
    for released in [1, 64, 128, u64::MAX] {
        half.control_word(0).store(released, Ordering::Relaxed);
        let expected = if released == 64 {
            Ok(Position(64))
        } else {
            Err(Corrupt::Released(released))
        };
        assert_eq!(producer.consumed(), expected);
    }
    half.control_word(0).store(0, Ordering::Relaxed);
    assert_eq!(producer.consumed(), Err(Corrupt::Released(0)), "withdrawn");
}
