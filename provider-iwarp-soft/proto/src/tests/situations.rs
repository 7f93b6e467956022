//! Every kind of segment, well formed, in every situation of a stream.

use super::{
    code,
    engine::{self, Engine, split, with_rtr},
    hex,
};
use crate::{
    Delivery, Inbound, Role,
    wire::{mpa::RtrKind, rdmap::AtomicOp},
};

/// A segment of each kind, with the first sequence number of its queue. STag 1 grants every access
/// to 1000..1010.
const SEGMENTS: &str = "\
Write | c140 00000001 0000000000001000 01020304
Write, not last | 8140 00000001 0000000000001000 01020304
empty Write | c140 00000000 0000000000000000
Read Request | 4141 00000000 00000001 00000001 00000000 0000000a 0000000000000000 00000004 \
    00000001 0000000000001000
empty Read Request | 4141 00000000 00000001 00000001 00000000 0000000a 0000000000000000 \
    00000000 00000000 0000000000000000
Read Response | c142 00000001 0000000000001000 0102030405060708
Send | 4143 00000000 00000000 00000001 00000000 6869
Send, not last | 0143 00000000 00000000 00000001 00000000 6869
second half of a Send | 4143 00000000 00000000 00000001 00000002 6869
empty Send | 4143 00000000 00000000 00000001 00000000
Send, invalidate | 4144 00000001 00000000 00000001 00000000 6869
Send, solicited | 4145 00000000 00000000 00000001 00000000 6869
Send, both | 4146 00000001 00000000 00000001 00000000 6869
Terminate | 4147 00000000 00000002 00000001 00000000 20020000
Immediate Data | 4148 00000000 00000000 00000001 00000000 0102030405060708
Atomic Request | 414a 00000000 00000001 00000001 00000000 00000000 00000000 00000001 \
    0000000000001000 0000000000000001 0000000000000000 0000000000000000 0000000000000000
Atomic Response | 414b 00000000 00000003 00000001 00000000 00000000 0000000000000005
";

/// The names and the bytes of the segments.
fn segments() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    SEGMENTS.lines().map(|row| {
        let (name, segment) = row.split_once(" | ").expect("a name and a segment");
        (name, hex(segment))
    })
}

/// Each row is a segment, each column a situation in the order of [`situations`]; a fault is layer,
/// type and code.
const OUTCOMES: &str = "\
Write | written | written | written | written | written | written | dropped
Write, not last | placed | placed | placed | placed | placed | placed | dropped
empty Write | written | ready | written | written | written | written | dropped
Read Request | asked | asked | asked | asked | asked | asked | dropped
empty Read Request | asked | ready | asked | asked | asked | asked | dropped
Read Response | 0/2/06 | 0/2/06 | 0/2/06 | 0/2/06 | read | 0/2/06 | dropped
Send | received | received | 1/2/04 | 1/2/02 | received | received | dropped
Send, not last | placed | placed | 1/2/04 | 1/2/02 | placed | placed | dropped
second half of a Send | 1/2/04 | 1/2/04 | received | 1/2/04 | 1/2/04 | 1/2/04 | dropped
empty Send | received | ready | 1/2/04 | 1/2/02 | received | received | dropped
Send, invalidate | received | received | 0/2/06 | 1/2/02 | received | received | dropped
Send, solicited | received | received | 0/2/06 | 1/2/02 | received | received | dropped
Send, both | received | received | 0/2/06 | 1/2/02 | received | received | dropped
Terminate | ended | ended | ended | ended | ended | ended | dropped
Immediate Data | received | received | 0/2/06 | 1/2/02 | received | received | dropped
Atomic Request | executed | executed | executed | executed | executed | executed | dropped
Atomic Response | 0/2/06 | 0/2/06 | 0/2/06 | 0/2/06 | 0/2/06 | answered | dropped
";

/// The situations: a responder before its first FPDU; such a responder in peer-to-peer mode with a
/// Send as first FPDU; in the middle of a Send; without a receive; an initiator that reads 8 bytes
/// to 0x1000; one that waits for an atomic; a stream that has ended.
fn situations() -> [Engine; 7] {
    let engine_of = |role, rtr, receives| {
        let mut engine = Engine::new(with_rtr(role, rtr));
        engine.register(1, 0x1000, vec![0; 16]);
        for token in 0..receives {
            engine.post_receive(token, 8);
        }
        engine
    };
    let mut middle = engine_of(Role::Responder, None, 1);
    middle
        .handle(&hex("0143 00000000 00000000 00000001 00000000 6869"))
        .expect("legal");
    let mut reader = engine_of(Role::Initiator, None, 1);
    reader.post_read(1, (9, 0), (1, 0x1000), 8, false);
    let mut atomic = engine_of(Role::Initiator, None, 1);
    let add = AtomicOp::FetchAdd { add: 1, mask: 0 };
    atomic.post(1, engine::atomic(add, 9, 0), Vec::new(), false);
    for initiator in [&mut reader, &mut atomic] {
        initiator.transmit_all();
    }
    let mut ended = engine_of(Role::Responder, None, 1);
    ended.conn.fail_local();
    [
        engine_of(Role::Responder, None, 1),
        engine_of(Role::Responder, Some(RtrKind::Send), 1),
        middle,
        engine_of(Role::Responder, None, 0),
        reader,
        atomic,
        ended,
    ]
}

/// The result of a segment, in a word. `early`: the segment is predicted before its payload is
/// received.
fn outcome(early: bool, mut engine: Engine, segment: &[u8]) -> String {
    let Engine {
        conn,
        memory,
        receives,
        ..
    } = &mut engine;
    let (header, len) = split(segment);
    let judged = if early && conn.predict_target(header, len, memory, receives).is_some() {
        conn.handle_segment(header, len, memory, receives)
    } else {
        conn.handle_ulpdu(segment, memory, receives)
    };
    match judged {
        Err(error) => code(&error),
        Ok(Inbound::Place(placement)) => match placement.delivered {
            None => "placed".into(),
            Some(Delivery::Write) => "written".into(),
            Some(Delivery::Receive { .. }) => "received".into(),
            Some(Delivery::Read { .. }) => "read".into(),
        },
        Ok(Inbound::ReadRequest) => "asked".into(),
        Ok(Inbound::Atomic { .. }) => "executed".into(),
        Ok(Inbound::AtomicResponse { .. }) => "answered".into(),
        Ok(Inbound::Carrier(_)) => "carrier".into(),
        Ok(Inbound::ReadyToReceive) => "ready".into(),
        Ok(Inbound::Terminated(_)) => "ended".into(),
        Ok(Inbound::Unready) => "unready".into(),
        Ok(Inbound::Dropped) => "dropped".into(),
    }
}

#[test]
fn every_kind_of_segment_in_every_situation() {
    for early in [false, true] {
        let mut outcomes = String::new();
        for (name, segment) in segments() {
            let columns = situations().map(|engine| outcome(early, engine, &segment));
            outcomes.push_str(&format!("{name} | {}\n", columns.join(" | ")));
        }
        assert_eq!(outcomes, OUTCOMES, "\n{outcomes}");
    }
}

/// A segment that is not the first of its stream is predicted if it is a Write, a Read Response or
/// a Send without Invalidate, has payload, and would be accepted. Repeated calls change no visible
/// state.
#[test]
fn the_predicted_target_of_payload_is_its_target() {
    let mut predicted = Vec::new();
    for (name, segment) in segments() {
        let engines = situations();
        let mut situations_with_target = Vec::new();
        for (index, mut engine) in engines.into_iter().enumerate() {
            // An FPDU was received before, except in the situations that this would change.
            let is_ready = matches!(index, 0 | 3..=5);
            if is_ready {
                let write = hex("c140 00000001 0000000000001000 00");
                engine.handle(&write).expect("legal");
            }
            let (header, len) = split(&segment);
            let (memory, receives) = (&engine.memory, &mut engine.receives);
            let target = engine.conn.predict_target(header, len, memory, receives);
            let left = receives.posted.len();
            assert_eq!(
                engine.conn.predict_target(header, len, memory, receives),
                target
            );
            assert_eq!(
                receives.posted.len(),
                left,
                "{name}: one receive for one message"
            );
            assert!(engine.conn.poll_completion().is_none(), "{name}");
            if target.is_some() {
                situations_with_target.push(index.to_string());
            }
        }
        if !situations_with_target.is_empty() {
            predicted.push(format!("{name}: {}", situations_with_target.join(" ")));
        }
    }
    let expected = [
        "Write: 0 2 3 4 5",
        "Write, not last: 0 2 3 4 5",
        "Read Response: 4",
        "Send: 0 4 5",
        "Send, not last: 0 4 5",
        "second half of a Send: 2",
        "Send, solicited: 0 4 5",
    ];
    assert_eq!(predicted, expected);
}

#[test]
fn opcodes_without_a_meaning_in_every_situation() {
    for opcode in 0x4c..=0x4f {
        for tagged in ["c1", "41"] {
            let segment = format!("{tagged}{opcode:02x} 00000000 00000000 00000001 00000000");
            let outcomes = situations().map(|engine| outcome(true, engine, &hex(&segment)));
            let (dropped, refused) = outcomes.split_last().expect("there are situations");
            assert!(
                refused.iter().all(|fault| fault == "0/2/06"),
                "{outcomes:?}"
            );
            assert_eq!(dropped, "dropped");
        }
    }
}
