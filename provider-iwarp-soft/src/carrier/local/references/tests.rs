use std::os::unix::net::UnixStream;

use super::*;
use crate::carrier::local::pull::Witness;
use crate::carrier::local::record::Piece;
use crate::carrier::local::ring::{Consumer, Producer};
use crate::carrier::local::segment::{Direction, RING_LEN_MIN, SharedSegment};

const PIECE: Piece = Piece { addr: 64, len: 10 };

/// The two ends of a ring, with the references of its producer.
fn ends() -> (Producer, Consumer, OutstandingReferences, UnixStream) {
    let (created, fd) = SharedSegment::create(RING_LEN_MIN).unwrap();
    let adopted = SharedSegment::adopt(fd, RING_LEN_MIN).unwrap();
    let half = |segment: SharedSegment| Arc::new(segment).half(Direction::FromCreator);
    let (producer, consumer) = (Producer::new(half(created)), Consumer::new(half(adopted)));
    let (near, far) = UnixStream::pair().unwrap();
    let conn = Arc::new(UnixConn::new(near.into()));
    let grant = Grant::new(producer.half().clone(), Witness::new().unwrap());
    let references = OutstandingReferences::new(producer.revoker(), conn, grant);
    (producer, consumer, references, far)
}

/// Pushes a reference to a registration.
fn push(producer: &mut Producer, references: &OutstandingReferences, stag: u32) -> Position {
    let position = producer.push_reference(&[1; 14], &[PIECE]).unwrap();
    references.add(position, vec![Stag(stag)]);
    producer.publish();
    position
}

#[test]
fn references_are_added_while_a_deregistration_waits_for_a_reader() {
    let (mut producer, mut consumer, references, _far) = ends();
    push(&mut producer, &references, 1);
    let offered = push(&mut producer, &references, 1);
    assert!(consumer.peek().unwrap().is_some() && consumer.begin_pull().unwrap());
    thread::scope(|scope| {
        let deregistration = scope.spawn(|| references.revoke(Stag(1)));
        // The deregistration has begun when the second reference is revoked.
        let at = offered.0 as usize + crate::carrier::local::record::STATE_AT;
        let state = consumer.half().half_word(at);
        while state.load(std::sync::atomic::Ordering::Acquire) == 1 {
            thread::yield_now();
        }
        for stag in 2..5 {
            push(&mut producer, &references, stag);
        }
        assert!(consumer.end_pull(), "the reader was given up");
        deregistration.join().unwrap();
    });
    let open: Vec<_> = references.lock().iter().map(|it| it.stags[0].0).collect();
    assert_eq!(open, [1, 1, 2, 3, 4]);
}

#[test]
fn the_end_of_a_connection_voids_the_bytes_of_a_reader_that_never_ends() {
    let (mut producer, mut consumer, references, _far) = ends();
    push(&mut producer, &references, 1);
    assert!(consumer.peek().unwrap().is_some() && consumer.begin_pull().unwrap());
    references.revoke_all();
    assert!(!consumer.end_pull(), "the bytes are delivered");
    assert!(references.lock().is_empty());
}
