//! Both ends of a ring, in any order of calls, and a peer that changes control words.
//!
//! Input: calls, three bytes each: the number of the call, and two arguments.
//!
//! As long as only the two ends write, each published record is received once and in order, neither
//! end reports a fault, and a sleeping end is woken. The producer reports a reference as pulled
//! exactly if the consumer may use its bytes. After foreign writes an end may report a fault
//! and then makes no more calls, but nothing is read or written outside the data area.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use super::record::{Body, Corrupt, Piece, Position};
use super::ring::{Outcome, Refused, SUPPLY_MAX};
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
        references: Vec::new(),
        taken: 0,
        polled: 0,
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
    /// All references, and whether the consumer, which has taken it, may use its bytes.
    references: Vec<(Position, Option<bool>)>,
    /// The numbers of references that the consumer has taken, and that the producer has polled.
    taken: usize,
    polled: usize,
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
                // Memory behind the end of a file cannot be read.
                len != 254
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
            self.references.push((position, None));
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
            Err(Refused::Full | Refused::TooLong | Refused::Unreadable) => Ok(None),
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
        if matches!(record.body, Body::Reference { .. }) {
            let is_usable = self.pull(how)?;
            if let Some((_, usable)) = self.references.get_mut(self.taken) {
                *usable = Some(is_usable);
            }
            self.taken += 1;
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

    /// Pulls the payload of the current record, of which the producer may stop the use meanwhile.
    /// Returns true if the bytes may be used.
    fn pull(&mut self, how: u8) -> Result<bool, Corrupt> {
        if !self.ring.consumer.begin_pull()? {
            return Ok(false);
        }
        if how & 4 != 0
            && let Some((position, _)) = self.references.get(self.taken)
        {
            self.ring.producer.revoker().abandon(*position);
        }
        if how & 1 != 0 {
            return self.supply();
        }
        let may_use = self.ring.consumer.may_use_pulled();
        let is_used = self.ring.consumer.end_pull();
        assert!(!self.is_honest || is_used == may_use);
        Ok(is_used)
    }

    /// Declines the current record, which the producer supplies if all older references are polled.
    fn supply(&mut self) -> Result<bool, Corrupt> {
        if !self.ring.consumer.decline() {
            return Ok(false);
        }
        for _ in self.polled..self.taken {
            self.poll_reference()?;
        }
        for byte in 0..2 {
            if !self.ring.producer.can_supply() {
                assert!(!self.is_honest, "nothing is supplied");
                break;
            }
            let supplied = self.ring.producer.supply(|to| {
                // SAFETY: the supply area has room for this many bytes.
                unsafe { std::ptr::write_bytes(to, byte, SUPPLY_MAX) };
                Ok::<_, ()>(())
            });
            let piece = self.ring.consumer.supplied();
            assert!(supplied.is_ok() && (piece.is_some() || !self.is_honest));
            self.ring.consumer.take_supply();
        }
        Ok(self.ring.consumer.end_supply())
    }

    fn poll_reference(&mut self) -> Result<(), Corrupt> {
        if let Some(finished) = self.ring.producer.poll_reference()? {
            let (position, usable) = self.references[self.polled];
            self.polled += 1;
            assert_eq!(position, finished.position);
            let is_pulled = finished.outcome == Outcome::Pulled;
            assert!(!self.is_honest || is_pulled == (usable == Some(true)));
        }
        Ok(())
    }

    fn revoke(&mut self, which: u8) {
        let outstanding = &self.references[self.polled..];
        if let Some((position, _)) = outstanding.get(usize::from(which) % 64) {
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
