//! Both ends of a ring, in any order of calls, and a peer that changes control words.
//!
//! Input: calls, three bytes each: the number of the call, and two arguments.
//!
//! As long as only the two ends write, each published record is received once and in order, neither
//! end reports a fault, and a sleeping end is woken. After foreign writes an end may report a fault
//! and then makes no more calls, but nothing is read or written outside the data area.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::record::{Body, Corrupt, Piece, Position};
use super::ring::Refused;
use super::{RING_LEN, Ring};
use crate::input::Input;
use crate::seed::{Seed, seed};

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World {
        ring: Ring::new(),
        is_honest: true,
        unpublished: Vec::new(),
        published: VecDeque::new(),
        references: VecDeque::new(),
        is_asleep: false,
    };
    while !input.is_empty() {
        let (call, first, second) = (input.byte(), input.byte(), input.byte());
        if let Err(corrupt) = world.call(call, first, second) {
            assert!(!world.is_honest, "{corrupt}");
            return;
        }
    }
}

/// A record as it was pushed.
#[derive(Debug, PartialEq, Eq)]
struct Pushed {
    header: Vec<u8>,
    payload: Vec<u8>,
    pieces: Vec<Piece>,
}

/// Both ends, and the state for the properties that must hold between them.
struct World {
    ring: Ring,
    is_honest: bool,
    unpublished: Vec<Pushed>,
    published: VecDeque<Pushed>,
    references: VecDeque<Position>,
    /// True while the consumer may be asleep.
    is_asleep: bool,
}

impl World {
    fn call(&mut self, call: u8, first: u8, second: u8) -> Result<(), Corrupt> {
        match call % 12 {
            0 | 1 => self.push(first, second)?,
            2 => self.push_reference(first, second)?,
            3 => self.publish(),
            4 | 5 => self.receive(first)?,
            6 => self.poll_reference()?,
            7 => self.revoke(first),
            8 => self.sleep(),
            9 => self.wait()?,
            10 => self.return_pages(),
            _ => self.mutate(first, second),
        }
        Ok(())
    }

    fn push(&mut self, header_len: u8, len: u8) -> Result<(), Corrupt> {
        let header = vec![len; usize::from(header_len) % 73];
        let payload = vec![header_len; usize::from(len) * 5];
        let result = if len == 255 {
            self.ring.producer.push_last(&header)
        } else {
            self.ring.producer.push(&header, payload.len(), |target| {
                // SAFETY: the ring returned a buffer of at least that many bytes.
                unsafe { std::ptr::copy_nonoverlapping(payload.as_ptr(), target, payload.len()) };
            })
        };
        let payload = if len == 255 { Vec::new() } else { payload };
        let pushed = Pushed {
            header,
            payload,
            pieces: Vec::new(),
        };
        self.pushed(result, pushed).map(drop)
    }

    fn push_reference(&mut self, count: u8, len: u8) -> Result<(), Corrupt> {
        let pieces: Vec<_> = (0..count % 34)
            .map(|index| Piece {
                addr: u64::from(index) << 12,
                len: u32::from(len),
            })
            .collect();
        let result = self.ring.producer.push_reference(&[count], &pieces);
        let pushed = Pushed {
            header: vec![count],
            payload: Vec::new(),
            pieces,
        };
        if let Some(position) = self.pushed(result, pushed)? {
            self.references.push_back(position);
        }
        Ok(())
    }

    fn pushed(
        &mut self,
        result: Result<Position, Refused>,
        pushed: Pushed,
    ) -> Result<Option<Position>, Corrupt> {
        match result {
            Ok(position) => {
                self.unpublished.push(pushed);
                Ok(Some(position))
            }
            Err(Refused::Full | Refused::TooLong) => Ok(None),
            Err(Refused::Corrupt(corrupt)) => Err(corrupt),
        }
    }

    fn publish(&mut self) {
        self.ring.producer.publish();
        let rings = self.ring.producer.must_ring();
        if self.is_honest {
            let has_new = !self.unpublished.is_empty();
            assert!(rings || !(has_new && self.is_asleep), "a lost wake-up");
        }
        self.is_asleep &= !rings;
        self.published.extend(self.unpublished.drain(..));
    }

    fn receive(&mut self, how: u8) -> Result<(), Corrupt> {
        let Some(record) = self.ring.consumer.peek()? else {
            assert!(!self.is_honest || self.published.is_empty());
            return Ok(());
        };
        let payload = self.ring.check(&record);
        let received = Pushed {
            header: record.header().to_vec(),
            payload,
            pieces: self.ring.consumer.pieces().to_vec(),
        };
        if how == 0 {
            // The consumer leaves the record in the ring.
            return Ok(());
        }
        if matches!(record.body, Body::Reference { .. }) && self.ring.consumer.begin_pull()? {
            self.ring.consumer.end_pull(how & 1 == 0);
        }
        self.ring.consumer.advance();
        if how & 2 != 0 {
            self.ring.consumer.release();
        }
        self.ring.consumer.must_notify();
        let expected = self.published.pop_front();
        assert!(!self.is_honest || expected == Some(received));
        Ok(())
    }

    fn poll_reference(&mut self) -> Result<(), Corrupt> {
        if let Some(finished) = self.ring.producer.poll_reference()? {
            assert_eq!(self.references.pop_front(), Some(finished.position));
        }
        Ok(())
    }

    fn revoke(&mut self, which: u8) {
        if let Some(position) = self.references.get(usize::from(which) % 64) {
            self.ring.producer.revoker().revoke(*position);
        }
    }

    fn sleep(&mut self) {
        self.is_asleep = !self.ring.consumer.announce_sleep();
        if !self.is_asleep {
            self.ring.consumer.wake();
        }
        self.ring.consumer.must_notify();
    }

    fn wait(&mut self) -> Result<(), Corrupt> {
        self.ring.producer.announce_wait()?;
        self.ring.producer.consumed()?;
        Ok(())
    }

    fn return_pages(&mut self) {
        let before = self.ring.blocks();
        self.ring.producer.return_pages();
        assert!(self.ring.blocks() <= before);
    }

    /// Changes a word. If `place` modulo 8 is 7, the word is a control word, and each cache line of
    /// control words has a `place` of its own.
    fn mutate(&mut self, place: u8, value: u8) {
        self.is_honest = false;
        let value = match value % 4 {
            0 => u64::from(value),
            1 => u64::MAX - u64::from(value),
            2 => u64::from(value) << 6,
            _ => u64::from(value) << 32 | u64::from(place / 8) << 16 | 1,
        };
        if place % 8 == 7 {
            let at = usize::from(place) / 8 * 64;
            self.ring
                .half
                .control_word(at)
                .store(value, Ordering::Relaxed);
        } else {
            let at = usize::from(place) * 24 % RING_LEN;
            self.ring.half.word(at).store(value, Ordering::Relaxed);
        }
    }
}

/// A few sequences of calls over the life of a ring.
pub(crate) fn seeds() -> Vec<Seed> {
    let send = [0, 18, 12, 3, 0, 0];
    let receive = [4, 1, 0];
    let fill = [[0, 14, 200]; 6].concat();
    let refer = [2, 3, 9, 3, 0, 0];
    let rows = [
        ("send", [&send[..], &receive].concat()),
        (
            "sleep",
            [&[8, 0, 0][..], &send, &receive, &[8, 0, 0]].concat(),
        ),
        (
            "around",
            [&fill[..], &[3, 0, 0], &receive.repeat(6)]
                .concat()
                .repeat(4),
        ),
        (
            "last",
            [&fill[..], &[0, 72, 255, 3, 0, 0, 4, 3, 0, 9, 0, 0]].concat(),
        ),
        (
            "refer",
            [&refer[..], &[4, 2, 0, 6, 0, 0, 10, 0, 0]].concat(),
        ),
        (
            "revoke",
            [&refer[..], &[7, 0, 0], &receive, &[6, 0, 0]].concat(),
        ),
        ("control", [&send[..], &[11, 7, 1], &fill, &fill].concat()),
        ("word", [&send[..], &[11, 0, 253], &receive].concat()),
        (
            "state",
            [&refer[..], &[11, 16, 0], &receive, &[6, 0, 0]].concat(),
        ),
    ];
    rows.map(|(name, bytes)| seed("ring_sequence", name, bytes))
        .into()
}
