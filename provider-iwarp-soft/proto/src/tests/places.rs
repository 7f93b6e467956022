//! The STag of a segment is resolved once, and the result is part of the placement.

use std::cell::RefCell;

use super::{
    engine::{self, Engine, Receives, config, split},
    hex,
};
use crate::{
    Access, CompletionStatus, Connection, Inbound, InvalidateFault, MemoryTable, ProtectionFault,
    Role, Stag, Target, wire::rdmap::AtomicOp,
};

/// Grants every access. The result of a call is the number of the call.
#[derive(Debug, Default)]
struct Numbered(RefCell<Vec<(Access, u64, u32)>>);

impl MemoryTable for Numbered {
    type Place = usize;

    fn resolve(
        &self,
        access: Access,
        _stag: Stag,
        to: u64,
        len: u32,
    ) -> Result<usize, ProtectionFault> {
        let mut calls = self.0.borrow_mut();
        calls.push((access, to, len));
        Ok(calls.len())
    }

    fn check_invalidate(&self, _stag: Stag) -> Result<(), InvalidateFault> {
        Ok(())
    }
}

/// Handles segments, all of which must be legal. Returns the result of the last one.
fn judge(conn: &mut Connection, memory: &Numbered, segments: &[&str]) -> Option<Inbound<usize>> {
    let mut last = None;
    for segment in segments {
        let segment = hex(segment);
        let judged = conn.handle_ulpdu(&segment, memory, &mut Receives::default());
        last = Some(judged.expect("legal"));
    }
    last
}

fn tagged(inbound: Option<Inbound<usize>>) -> Option<(Access, u64, usize)> {
    match inbound {
        Some(Inbound::Place(placement)) => match placement.target {
            Target::Tagged {
                access, to, place, ..
            } => Some((access, to, place)),
            Target::None | Target::Untagged { .. } => None,
        },
        _ => None,
    }
}

#[test]
fn the_placement_of_a_write_has_its_resolved_target() {
    let mut conn = Connection::new(config(Role::Responder));
    let memory = Numbered::default();
    let first = "8140 00000001 0000000000001000 0102";
    let second = "c140 00000001 0000000000001002 030405";
    let inbound = judge(&mut conn, &memory, &[first, second]);
    assert_eq!(tagged(inbound), Some((Access::RemoteWrite, 0x1002, 2)));
    let calls = [
        (Access::RemoteWrite, 0x1000, 2),
        (Access::RemoteWrite, 0x1002, 3),
    ];
    assert_eq!(memory.0.into_inner(), calls);
}

#[test]
fn the_placement_of_a_read_response_has_the_access_of_a_sink() {
    let mut reader = Engine::new(config(Role::Initiator));
    reader.post_read(1, (9, 0), (1, 0x1000), 4, false);
    reader.transmit_all();
    let memory = Numbered::default();
    let response = ["c142 00000001 0000000000001000 01020304"];
    let inbound = judge(&mut reader.conn, &memory, &response);
    assert_eq!(tagged(inbound), Some((Access::ReadSink, 0x1000, 1)));
    assert_eq!(memory.0.into_inner(), [(Access::ReadSink, 0x1000, 4)]);
}

#[test]
fn an_atomic_operation_has_its_place() {
    let mut conn = Connection::new(config(Role::Responder));
    let memory = Numbered::default();
    let request = "414a 00000000 00000001 00000001 00000000 00000000 00000000 00000001 \
                   0000000000001000 0000000000000001 0000000000000000 0000000000000000 \
                   0000000000000000";
    let inbound = judge(&mut conn, &memory, &[request]);
    assert!(matches!(inbound, Some(Inbound::Atomic { place: 1, .. })));
    assert_eq!(memory.0.into_inner(), [(Access::RemoteAtomic, 0x1000, 8)]);
}

#[test]
fn an_empty_segment_resolves_nothing() {
    let mut conn = Connection::new(config(Role::Responder));
    let memory = Numbered::default();
    let inbound = judge(&mut conn, &memory, &["c140 00000000 0000000000000000"]);
    assert!(matches!(
        inbound,
        Some(Inbound::Place(placement)) if placement.target == Target::None
    ));
    assert_eq!(memory.0.into_inner(), []);
}

#[test]
fn a_predicted_place_is_not_resolved() {
    let mut conn = Connection::new(config(Role::Responder));
    let memory = Numbered::default();
    judge(&mut conn, &memory, &["c140 00000000 0000000000000000"]);
    let write = hex("c140 00000001 0000000000001000 01020304");
    let (header, len) = split(&write);
    let predicted = conn.predict_target(header, len, &memory, &mut Receives::default());
    let expected = Target::Tagged {
        access: Access::RemoteWrite,
        stag: Stag(1),
        to: 0x1000,
        place: (),
    };
    assert_eq!(predicted, Some(expected));
}

/// The answer to a read of four bytes, and to an atomic operation.
const ANSWERS: [&str; 2] = [
    "c142 00000001 0000000000001000 01020304",
    "414b 00000000 00000003 00000001 00000000 00000000 0000000000000001",
];

/// An initiator that has posted a read or an atomic operation, and has received its answer.
fn answered(answer: &str) -> Connection {
    let mut initiator = Engine::new(config(Role::Initiator));
    if answer == ANSWERS[0] {
        initiator.post_read(1, (9, 0), (1, 0x1000), 4, false);
    } else {
        let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
        initiator.post(1, engine::atomic(add, 9, 0), Vec::new(), false);
    }
    initiator.transmit_all();
    judge(&mut initiator.conn, &Numbered::default(), &[answer]);
    initiator.conn
}

#[test]
fn a_request_completes_when_its_answer_is_stored_and_not_before() {
    for answer in ANSWERS {
        let mut conn = answered(answer);
        assert_eq!(conn.poll_completion(), None, "{answer}");
        conn.on_answer_stored();
        let done = conn.poll_completion().map(|done| (done.token, done.status));
        assert_eq!(done, Some((1, CompletionStatus::Done)), "{answer}");
        conn.on_answer_stored();
        assert_eq!(conn.poll_completion(), None, "{answer}");
    }
}

#[test]
fn a_request_whose_answer_is_not_stored_is_flushed() {
    for answer in ANSWERS {
        let mut conn = answered(answer);
        conn.fail_local();
        conn.on_llp_closed();
        assert_eq!(conn.poll_completion(), None, "{answer}");
        let flushed = conn.poll_flushed().map(|done| (done.token, done.status));
        assert_eq!(flushed, Some((1, CompletionStatus::Flushed)), "{answer}");
    }
}

#[test]
fn no_answer_is_taken_while_one_is_being_stored() {
    let memory = Numbered::default();
    for answer in ANSWERS {
        let mut conn = answered(answer);
        let empty = "c142 00000001 0000000000001004";
        for next in [answer, empty] {
            let mut conn = answered(answer);
            let judged = conn.handle_ulpdu(&hex(next), &memory, &mut Receives::default());
            assert!(judged.is_err(), "{next} after {answer}");
        }
        conn.on_answer_stored();
        assert_eq!(conn.outstanding_reads(), 0, "{answer}");
    }
}
