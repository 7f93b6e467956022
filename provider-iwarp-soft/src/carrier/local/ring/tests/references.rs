//! References and their states.

use super::*;

const PIECES: [Piece; 2] = [
    Piece {
        addr: 1000,
        len: 10,
    },
    Piece {
        addr: u64::MAX,
        len: u32::MAX - 10,
    },
];

/// A ring with one reference in this state, which may be an invalid state.
fn with_state(state: u32) -> (Producer, Consumer, Position) {
    let (half, theirs) = halves(RING_LEN_MIN);
    let (mut producer, mut consumer) = (Producer::new(half.clone()), Consumer::new(theirs));
    let position = producer.push_reference(&[1; 14], &PIECES).unwrap();
    producer.publish();
    assert!(consumer.peek().unwrap().is_some());
    half.half_word(8).store(state, Ordering::Relaxed);
    (producer, consumer, position)
}

#[test]
fn pieces_are_those_of_the_producer() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    for count in 1..=PIECES_MAX {
        let pieces: Vec<_> = (1..=count as u32)
            .map(|len| Piece {
                addr: u64::from(len) << 40,
                len,
            })
            .collect();
        let header = vec![count as u8; count];
        let position = producer.push_reference(&header, &pieces).unwrap();
        assert!(consumer.peek().unwrap().is_none(), "seen before publish");
        assert!(consumer.pieces().is_empty());
        producer.publish();
        let record = consumer.peek().unwrap().unwrap();
        assert_eq!(record.header(), header);
        assert_eq!(consumer.pieces(), pieces);
        let total: u32 = pieces.iter().map(|piece| piece.len).sum();
        assert!(matches!(record.body, Body::Reference { total: found } if found == total));
        assert_eq!(record.payload_len(), total as usize);
        assert!(consumer.begin_pull().unwrap());
        assert_eq!(producer.poll_reference(), Ok(None));
        consumer.end_pull();
        consumer.advance();
        let outcome = Outcome::Pulled;
        let finished = Finished { position, outcome };
        assert_eq!(producer.poll_reference(), Ok(Some(finished)));
        assert_eq!(producer.poll_reference(), Ok(None));
        assert_eq!(producer.is_drained(), Ok(true), "released at once");
    }
}

#[test]
fn references_that_cannot_be_described_are_refused() {
    let (mut producer, _) = ring(RING_LEN_MIN);
    let piece = |len| Piece { addr: 1, len };
    for pieces in [
        vec![],
        vec![piece(0)],
        vec![piece(1), piece(0)],
        vec![piece(u32::MAX), piece(1)],
        vec![piece(1); PIECES_MAX + 1],
    ] {
        let refused = producer.push_reference(&[], &pieces);
        assert_eq!(refused, Err(Refused::TooLong), "{pieces:?}");
    }
    let refused = producer.push_reference(&[0; 73], &[piece(1)]);
    assert_eq!(refused, Err(Refused::TooLong));
}

/// Checks all pairs of a state and an operation.
#[test]
fn each_state_allows_its_operations() {
    let corrupt = |state| Err(Corrupt::State(state));
    let finished = |outcome| {
        let position = Position(0);
        Ok(Some(Finished { position, outcome }))
    };
    let rows = [
        (State::Offered as u32, Ok(true), Revoked::Taken, Ok(None)),
        (
            State::Pulling as u32,
            corrupt(2),
            Revoked::Pulling,
            Ok(None),
        ),
        (
            State::Done as u32,
            corrupt(3),
            Revoked::AlreadyDone,
            finished(Outcome::Pulled),
        ),
        (State::Declined as u32, corrupt(6), Revoked::Taken, Ok(None)),
        (
            State::Revoked as u32,
            Ok(false),
            Revoked::Taken,
            finished(Outcome::Revoked),
        ),
        (0, corrupt(0), Revoked::AlreadyDone, Err(Corrupt::State(0))),
        (4, corrupt(4), Revoked::AlreadyDone, Err(Corrupt::State(4))),
        (
            u32::MAX,
            corrupt(u32::MAX),
            Revoked::AlreadyDone,
            Err(Corrupt::State(u32::MAX)),
        ),
    ];
    for (state, pull, revoked, polled) in rows {
        assert_eq!(with_state(state).1.begin_pull(), pull, "{state}");
        let (producer, mut consumer, position) = with_state(state);
        assert_eq!(producer.revoker().revoke(position), revoked, "{state}");
        if revoked == Revoked::Taken {
            assert_eq!(consumer.begin_pull(), Ok(false), "{state}");
            assert_eq!(
                producer.revoker().revoke(position),
                Revoked::Taken,
                "{state}"
            );
        }
        assert_eq!(with_state(state).0.poll_reference(), polled, "{state}");
        let is_pulling = state == State::Pulling as u32;
        let is_declined = state == State::Declined as u32;
        type End = fn(&mut Consumer) -> bool;
        let ends: [(End, bool); 2] = [
            (Consumer::end_pull, is_pulling),
            (Consumer::end_supply, is_declined),
        ];
        for (end, is_legal) in ends {
            let (mut producer, mut consumer, _) = with_state(state);
            assert_eq!(end(&mut consumer), is_legal, "{state}");
            let outcome = if is_legal {
                finished(Outcome::Pulled)
            } else {
                polled
            };
            assert_eq!(producer.poll_reference(), outcome, "{state}");
        }
        let (producer, mut consumer, _) = with_state(state);
        assert_eq!(consumer.decline(), is_pulling, "{state}");
        assert_eq!(producer.can_supply(), is_pulling || is_declined, "{state}");
        let (mut producer, mut consumer, position) = with_state(state);
        producer.revoker().abandon(position);
        if revoked == Revoked::Taken || is_pulling {
            assert!(!consumer.end_pull() && !consumer.end_supply());
            assert_eq!(producer.poll_reference(), finished(Outcome::Revoked));
        } else {
            assert_eq!(producer.poll_reference(), polled, "{state}");
        }
    }
}

/// Supplies a piece. Returns false if there is no room for it.
fn supply(producer: &mut Producer, byte: u8) -> bool {
    let can_supply = producer.can_supply();
    if can_supply {
        let supplied = producer.supply(|to| {
            // SAFETY: the supply area has room for this many bytes.
            unsafe { std::ptr::write_bytes(to, byte, SUPPLY_MAX) };
            Ok::<_, ()>(())
        });
        assert_eq!(supplied, Ok(()));
    }
    can_supply
}

#[test]
fn a_declined_reference_is_supplied_piece_by_piece() {
    let (mut producer, mut consumer, position) = with_state(State::Offered as u32);
    assert!(!supply(&mut producer, 0), "the reference is not declined");
    assert!(consumer.begin_pull().unwrap() && consumer.decline());
    assert!(consumer.must_notify() || !producer.announce_wait().unwrap());
    assert!(!consumer.has_record() && !consumer.announce_sleep());
    for byte in 1..5 {
        assert!(consumer.supplied().is_none());
        assert!(supply(&mut producer, byte));
        assert!(producer.must_ring() || byte > 1, "the consumer sleeps");
        assert!(!supply(&mut producer, 9), "a piece is not overwritten");
        assert!(consumer.has_record() && consumer.announce_sleep());
        let piece = consumer.supplied().unwrap();
        // SAFETY: the area is mapped, and nothing writes to it at the moment.
        assert!((0..SUPPLY_MAX).all(|at| unsafe { piece.add(at).read() } == byte));
        consumer.take_supply();
    }
    assert!(consumer.end_supply());
    consumer.advance();
    let outcome = Outcome::Pulled;
    let finished = Finished { position, outcome };
    assert_eq!(producer.poll_reference(), Ok(Some(finished)));
    assert!(!supply(&mut producer, 0), "nothing is declined any more");
}

#[test]
fn a_revoked_supply_is_not_used() {
    let (mut producer, mut consumer, position) = with_state(State::Offered as u32);
    assert!(consumer.begin_pull().unwrap() && consumer.decline());
    assert!(supply(&mut producer, 1));
    assert_eq!(producer.revoker().revoke(position), Revoked::Taken);
    assert!(consumer.has_record() && consumer.is_supply_revoked());
    consumer.take_supply();
    assert!(!supply(&mut producer, 2) && !consumer.end_supply());
}

#[test]
fn a_reference_that_was_released_without_a_pull_is_a_fault() {
    let (mut producer, mut consumer, _) = with_state(State::Offered as u32);
    consumer.advance();
    assert_eq!(producer.poll_reference(), Err(Corrupt::NotPulled));
}

#[test]
fn the_state_of_a_reference_is_not_overwritten_before_it_was_read() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    let position = producer.push_reference(&[1], &PIECES).unwrap();
    producer.publish();
    assert!(consumer.peek().unwrap().is_some() && consumer.begin_pull().unwrap());
    consumer.end_pull();
    consumer.advance();
    let mut count = 0;
    while count < 100 && push(&mut producer, &[9; 18], &[9; 200]).is_ok() {
        count += 1;
        producer.publish();
        assert!(take(&mut consumer).is_some());
    }
    assert!(count > 10 && count < 100);
    let outcome = Outcome::Pulled;
    let finished = Finished { position, outcome };
    assert_eq!(producer.poll_reference(), Ok(Some(finished)));
    assert!(push(&mut producer, &[9; 18], &[9; 200]).is_ok());
}

#[test]
fn a_waiting_producer_is_woken_by_a_pull() {
    let (mut producer, mut consumer, _) = with_state(State::Offered as u32);
    assert!(!producer.announce_wait().unwrap());
    assert!(consumer.begin_pull().unwrap());
    assert!(!consumer.must_notify());
    consumer.end_pull();
    assert!(consumer.must_notify());
    assert!(
        producer.announce_wait().unwrap(),
        "the reference was not taken yet"
    );
}

#[test]
fn too_many_outstanding_references_are_a_full_ring() {
    let (mut producer, mut consumer) = ring(4 * RING_LEN_MIN);
    let mut count = 0;
    while producer.push_reference(&[1], &PIECES[..1]).is_ok() {
        count += 1;
    }
    assert_eq!(count, 64);
    let refused = producer.push_reference(&[1], &PIECES);
    assert_eq!(refused, Err(Refused::Full));
    producer.publish();
    assert!(consumer.peek().unwrap().is_some() && consumer.begin_pull().unwrap());
    consumer.end_pull();
    assert!(producer.poll_reference().unwrap().is_some());
    assert!(producer.push_reference(&[1], &PIECES).is_ok());
}

/// The consumer has released everything before the record is refused. Only the reference, which the
/// producer has not taken yet, keeps the room, and the consumer has nothing more to announce.
#[test]
fn a_reference_that_is_taken_after_a_refused_record_prevents_the_sleep() {
    let (mut producer, mut consumer) = ring(RING_LEN_MIN);
    producer.push_reference(&[1], &PIECES).unwrap();
    while push(&mut producer, &[1], &[2; 200]).is_ok() {}
    producer.publish();
    assert!(consumer.peek().unwrap().is_some() && consumer.begin_pull().unwrap());
    consumer.end_pull();
    consumer.advance();
    while take(&mut consumer).is_some() {}
    consumer.release();
    assert!(!consumer.must_notify(), "the producer does not wait yet");
    let refused = push(&mut producer, &[1], &[2; 200]);
    assert_eq!(refused, Err(Refused::Full));
    assert!(producer.poll_reference().unwrap().is_some());
    assert!(producer.announce_wait().unwrap(), "there is room now");
    assert!(!producer.announce_wait().unwrap());
}
