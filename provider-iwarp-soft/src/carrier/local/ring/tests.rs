use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::record::{Body, Corrupt, PIECES_MAX, Piece, Position, Record, State};
use super::ring::{Consumer, Finished, KnownWord, Outcome, Producer, Refused, Revoked, SUPPLY_MAX};
use super::segment::{Direction, Half, LINE, RING_LEN_MIN, SharedSegment};

#[path = "tests/hostile.rs"]
mod hostile;
#[path = "tests/references.rs"]
mod references;
#[path = "tests/threads.rs"]
mod threads;

/// A ring, through the mappings of its two processes.
fn halves(ring_len: usize) -> (Half, Half) {
    let (created, fd) = SharedSegment::create(ring_len).unwrap();
    let adopted = SharedSegment::adopt(fd, ring_len).unwrap();
    let half = |segment: SharedSegment| Arc::new(segment).half(Direction::FromCreator);
    (half(created), half(adopted))
}

fn ring(ring_len: usize) -> (Producer, Consumer) {
    let (created, adopted) = halves(ring_len);
    (Producer::new(created), Consumer::new(adopted))
}

#[test]
fn the_first_line_of_a_record_is_written_when_it_is_published() {
    // Short payloads are in the first line, others after it; some records follow a skip.
    for (header_len, payload_len) in [(18, 0), (18, 24), (18, 32), (18, 64), (14, 8), (72, 0)] {
        let (mut producer, mut consumer) = ring(RING_LEN_MIN);
        for round in 0..RING_LEN_MIN / LINE {
            let header = vec![round as u8 | 1; header_len];
            let bytes = vec![round as u8 ^ 0x55; payload_len];
            let at = consumer.next_offset();
            let line = consumer.half().bytes(at, LINE);
            // SAFETY: a line of the data area, which no thread writes now.
            let read_line = || unsafe { std::slice::from_raw_parts(line, LINE).to_vec() };
            let before = read_line();
            push(&mut producer, &header, &bytes).unwrap();
            assert_eq!(read_line(), before, "written before it is published");
            producer.publish();
            let record = consumer.peek().unwrap().unwrap();
            assert_eq!(record.header(), header);
            assert_eq!(payload(&record), bytes);
            consumer.advance();
            consumer.release();
        }
    }
}

/// Numbers that are the same in each run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }

    /// Creates a header and a payload; short ones and the longest ones are as likely as others.
    fn message(&mut self, payload_max: usize) -> (Vec<u8>, Vec<u8>) {
        let header_len = [0, 14, 18, 72, self.below(73)][self.below(5)];
        let len = [0, 64, payload_max, self.below(200), self.below(payload_max)][self.below(5)];
        (self.bytes(header_len), self.bytes(len))
    }
}

fn push(producer: &mut Producer, header: &[u8], payload: &[u8]) -> Result<Position, Refused> {
    producer.push(header, payload.len(), |target| {
        // SAFETY: the ring has reserved this many bytes, none of which is Rust's memory.
        unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), target, payload.len()) };
        true
    })
}

/// The payload of an inline record.
fn payload(record: &Record) -> Vec<u8> {
    let mut bytes = vec![0; record.payload_len()];
    if let Body::Inline { ptr, len } = record.body {
        // SAFETY: the ring guarantees `len` bytes, and the vector is as long.
        unsafe { std::ptr::copy_nonoverlapping(ptr, bytes.as_mut_ptr(), len) };
    }
    bytes
}

/// Takes the next record, which must be inline.
fn take(consumer: &mut Consumer) -> Option<(Vec<u8>, Vec<u8>)> {
    let record = consumer.peek().unwrap()?;
    let message = (record.header().to_vec(), payload(&record));
    consumer.advance();
    Some(message)
}

fn pass_short_records(producer: &mut Producer, consumer: &mut Consumer, count: usize) {
    for _ in 0..count {
        push(producer, &[1], &[]).unwrap();
        producer.publish();
        assert!(take(consumer).is_some());
    }
}

#[test]
fn records_keep_their_order_and_bytes_across_the_end_of_the_area() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let (mut numbers, mut expected) = (Numbers(7), VecDeque::new());
    let mut next = numbers.message(producer.payload_max());
    for _ in 0..20_000 {
        if numbers.below(2) == 0 {
            match push(&mut producer, &next.0, &next.1) {
                Ok(_) => {
                    let sent =
                        std::mem::replace(&mut next, numbers.message(producer.payload_max()));
                    expected.push_back(sent);
                    producer.publish();
                }
                refused => assert_eq!(refused, Err(Refused::Full)),
            }
        } else {
            assert_eq!(take(&mut consumer), expected.pop_front());
        }
    }
    assert!(producer.consumed().unwrap() > Position(100 * RING_LEN_MIN as u64));
}

#[test]
fn records_are_visible_together_when_they_are_published() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    for round in 0..200_u8 {
        for index in 0..3 {
            push(&mut producer, &[round, index], &[index; 200]).unwrap();
            assert!(!consumer.has_record() && consumer.peek().unwrap().is_none());
        }
        producer.publish();
        for index in 0..3 {
            let expected = (vec![round, index], vec![index; 200]);
            assert_eq!(take(&mut consumer), Some(expected));
        }
        assert_eq!(take(&mut consumer), None);
        producer.publish();
    }
}

#[test]
fn the_last_record_has_room_however_full_the_ring_is() {
    for shift in 0..RING_LEN_MIN / LINE {
        let (mut producer, mut consumer) = ring(RING_LEN_MIN);
        pass_short_records(&mut producer, &mut consumer, shift);
        consumer.release();
        let mut count = 0;
        while push(&mut producer, &[2], &[]).is_ok() {
            count += 1;
        }
        assert!(count > 50);
        assert_eq!(push(&mut producer, &[2], &[]), Err(Refused::Full));
        producer.push_last(&[3; 72]).unwrap();
        producer.publish();
        for _ in 0..count {
            assert_eq!(take(&mut consumer), Some((vec![2], vec![])));
        }
        assert_eq!(take(&mut consumer), Some((vec![3; 72], vec![])));
        assert_eq!(take(&mut consumer), None);
    }
}

#[test]
fn a_record_longer_than_any_ring_is_refused_at_once() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let max = producer.payload_max();
    let long = vec![5; max + 1];
    assert_eq!(push(&mut producer, &[0; 72], &long), Err(Refused::TooLong));
    assert_eq!(push(&mut producer, &[0; 73], &[]), Err(Refused::TooLong));
    let huge = producer.push(&[], usize::MAX, |_| unreachable!());
    assert_eq!(huge, Err(Refused::TooLong));
    push(&mut producer, &[1; 72], &long[1..]).unwrap();
    producer.publish();
    let expected = (vec![1; 72], long[1..].to_vec());
    assert_eq!(take(&mut consumer), Some(expected));
}

#[test]
fn room_is_released_lazily_but_the_longest_record_always_fits_eventually() {
    for shift in 0..RING_LEN_MIN / LINE {
        let (mut producer, mut consumer) = ring(RING_LEN_MIN);
        pass_short_records(&mut producer, &mut consumer, shift);
        let quarter = (RING_LEN_MIN / 4) as u64;
        let released = shift as u64 * LINE as u64 / quarter * quarter;
        assert_eq!(producer.consumed(), Ok(Position(released)));
        let long = vec![9; producer.payload_max()];
        push(&mut producer, &[0; 72], &long).unwrap();
    }
}

#[test]
fn a_checked_record_does_not_change() {
    let (half, theirs) = halves(RING_LEN_MIN);
    let (mut producer, mut consumer) = (Producer::new(half.clone()), Consumer::new(theirs));
    push(&mut producer, &[7; 18], &[8; 30]).unwrap();
    push(&mut producer, &[6; 18], &[]).unwrap();
    producer.publish();
    let first = consumer.peek().unwrap().unwrap();
    for at in (0..LINE).step_by(8) {
        half.word(at).store(u64::MAX, Ordering::Relaxed);
    }
    let again = consumer.peek().unwrap().unwrap();
    assert_eq!(first.header(), again.header());
    assert_eq!((again.header(), again.payload_len()), (&[7; 18][..], 30));
    consumer.advance();
    assert_eq!(take(&mut consumer), Some((vec![6; 18], vec![])));
}

#[test]
fn each_side_is_woken_once_for_each_sleep() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let send = |producer: &mut Producer| {
        push(producer, &[1], &[2]).unwrap();
        producer.publish();
        producer.must_ring()
    };
    assert!(!send(&mut producer), "the consumer does not sleep");
    assert!(consumer.announce_sleep(), "there is a record");
    assert!(!send(&mut producer), "the consumer did not go to sleep");
    while take(&mut consumer).is_some() {}
    assert!(!consumer.announce_sleep());
    assert!(send(&mut producer));
    assert!(!send(&mut producer), "the doorbell was rung for this sleep");
    assert!(consumer.peek().unwrap().is_some());
    assert!(
        !consumer.announce_sleep(),
        "a record that was returned and not taken"
    );
    consumer.wake();
    assert!(!send(&mut producer));
    while take(&mut consumer).is_some() {}

    consumer.release();
    consumer.must_notify();
    while producer.announce_wait().unwrap() {}
    assert!(!consumer.must_notify(), "nothing was released");
    send(&mut producer);
    assert!(take(&mut consumer).is_some());
    assert!(!consumer.must_notify(), "nothing was released yet");
    consumer.release();
    assert!(consumer.must_notify() && !consumer.must_notify());
    assert!(producer.announce_wait().unwrap(), "something was released");
    assert!(!producer.announce_wait().unwrap());
    producer.end_wait();
    send(&mut producer);
    assert!(take(&mut consumer).is_some());
    consumer.release();
    assert!(
        !consumer.must_notify(),
        "the producer does not wait any more"
    );
}

/// A load of the index for another purpose, such as the return of memory, does not count as the
/// check for the record that was refused.
#[test]
fn a_release_after_a_refused_record_prevents_the_sleep() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    while push(&mut producer, &[1], &[2; 1000]).is_ok() {}
    producer.publish();
    while take(&mut consumer).is_some() {}
    consumer.release();
    assert!(!consumer.must_notify(), "the producer does not wait yet");
    assert!(producer.has_room(1, 1000));
    assert!(producer.announce_wait().unwrap(), "there is room now");
}

#[test]
fn a_record_that_is_too_long_for_the_ring_has_no_room() {
    for len in [0, 1000, 1200, 1400, 2000, 3000, RING_LEN_MIN] {
        let (mut producer, _) = ring(RING_LEN_MIN);
        let has_room = producer.has_room(72, len);
        let pushed = push(&mut producer, &[0; 72], &vec![0; len]);
        assert_eq!(has_room, pushed.is_ok(), "{len} bytes: {pushed:?}");
    }
}

#[test]
fn memory_is_returned_around_the_records_of_the_ring() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN * 16);
    let mut expected = std::collections::VecDeque::new();
    let mut number = 0_u8;
    // At every distance of the two ends, and at every place of the ring.
    for round in 0..400_usize {
        for _ in 0..round % 13 {
            number = number.wrapping_add(1);
            let payload = vec![number; 100 + round * 7 % 3000];
            if push(&mut producer, &[number], &payload).is_ok() {
                expected.push_back((vec![number], payload));
            }
        }
        producer.publish();
        producer.return_pages();
        for _ in 0..round % 11 {
            assert_eq!(take(&mut consumer), expected.pop_front());
        }
        consumer.announce_sleep();
        producer.return_pages();
    }
    while let Some(next) = expected.pop_front() {
        assert_eq!(take(&mut consumer), Some(next));
    }
    assert_eq!(take(&mut consumer), None);
}

#[test]
fn the_peer_reads_the_known_word() {
    let (mut producer, consumer) = ring(RING_LEN_MIN);
    let known = KnownWord {
        addr: 0x1234_5678_9abc,
        value: u64::MAX / 3,
    };
    producer.set_known_word(known);
    assert_eq!(consumer.known_word(), known);
}
