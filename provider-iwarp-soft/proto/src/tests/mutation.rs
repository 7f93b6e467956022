//! Headers that were cut or changed: they cause no panic, and no access to a byte that was not
//! granted.

use super::{
    VALUE_STEP,
    engine::{Engine, Prng, with_rtr},
    hex,
};
use crate::{
    Inbound, Role,
    wire::{mpa::RtrKind, rdmap, terminate},
};

/// A legal segment of every kind, for the engine below.
const SEGMENTS: [&str; 8] = [
    "4143 00000000 00000000 00000001 00000000 68656c6c6f",
    "0146 00000001 00000000 00000001 00000000 68656c6c6f",
    "c140 00000001 00000000 00001000 48656c6c6f",
    "4141 00000000 00000001 00000001 00000000 \
     0000000a 00000000 00000000 00000004 00000001 00000000 00001000",
    "c142 00000001 00000000 00001000 01020304",
    "4147 00000000 00000002 00000001 00000000 1100c000 0013c140 deadbe00 00000000 00003000",
    "4148 00000000 00000000 00000001 00000000 0001020304050607",
    "414a 00000000 00000001 00000001 00000000 00000000 00000000 00000001 00000000 00001000 \
     0000000000000005 0000000000000000 0000000000000000 ffffffffffffffff",
];

fn engine(role: Role) -> Engine {
    let mut engine = Engine::new(with_rtr(role, Some(RtrKind::Send)));
    engine.register(1, 0x1000, vec![0; 64]);
    engine.post_receive(1, 64);
    if role == Role::Initiator {
        engine.post_read(1, (9, 0), (1, 0x1000), 4, false);
        engine.transmit_all();
    }
    engine
}

/// Checks that neither the segment nor a repetition of it makes the engine panic.
fn handle_without_panic(role: Role, segment: &[u8]) {
    let mut engine = engine(role);
    for _ in 0..2 {
        match engine.handle(segment) {
            Ok(()) => engine.transmit_all(),
            Err(error) => {
                let fpdu = engine.conn.terminate(&error).expect("the first fault");
                let bytes = engine.assemble(&fpdu);
                assert!(bytes.len() <= crate::HEADER_MAX + 8);
            }
        }
    }
}

/// The step of positions in a segment, like [`VALUE_STEP`].
const PLACE_STEP: usize = if cfg!(miri) { 5 } else { 1 };

#[test]
fn no_value_of_a_header_byte_causes_a_panic() {
    for text in SEGMENTS {
        let segment = hex(text);
        for at in (0..segment.len()).step_by(PLACE_STEP) {
            for value in (0..=255).step_by(VALUE_STEP) {
                let mut mutant = segment.clone();
                mutant[at] = value;
                handle_without_panic(Role::Responder, &mutant);
                handle_without_panic(Role::Initiator, &mutant);
            }
        }
    }
}

#[test]
fn no_truncation_causes_a_panic() {
    for text in SEGMENTS {
        let segment = hex(text);
        for len in (0..segment.len()).step_by(PLACE_STEP) {
            handle_without_panic(Role::Responder, &segment[..len]);
            handle_without_panic(Role::Initiator, &segment[..len]);
        }
    }
}

#[test]
fn random_changes_of_many_bytes_cause_no_panic() {
    let mut prng = Prng::new(77);
    for round in 0..20_000 / VALUE_STEP {
        let mut segment = hex(SEGMENTS[round % SEGMENTS.len()]);
        for _ in 0..=prng.below(6) {
            let at = prng.below(segment.len());
            segment[at] = prng.next() as u8;
        }
        let role = if round % 2 == 0 {
            Role::Responder
        } else {
            Role::Initiator
        };
        handle_without_panic(role, &segment);
    }
}

#[test]
fn random_bytes_as_a_stream_cause_no_panic() {
    let mut prng = Prng::new(78);
    for _ in 0..2_000 / VALUE_STEP {
        let mut engine = engine(Role::Responder);
        let len = prng.below(300);
        let bytes = prng.bytes(len);
        if let Err(error) = engine.receive(&bytes) {
            assert!(engine.conn.terminate(&error).is_some());
        }
    }
}

#[test]
fn random_segments_of_another_carrier_cause_no_panic() {
    let mut prng = Prng::new(80);
    for round in 0..20_000 / VALUE_STEP {
        let mut segment = hex(SEGMENTS[round % SEGMENTS.len()]);
        if prng.below(2) == 0 {
            let at = prng.below(segment.len());
            segment[at] = prng.next() as u8;
        }
        segment.truncate(prng.below(segment.len() + 1));
        let payload_len = match prng.below(4) {
            0 => 0,
            1 => prng.below(100),
            2 => u32::MAX as usize,
            _ => prng.next() as usize,
        };
        let mut engine = engine(Role::Initiator);
        let Engine {
            conn,
            memory,
            receives,
            ..
        } = &mut engine;
        let judged = conn.handle_segment(&segment, payload_len, memory, receives);
        if let Ok(Inbound::Place(placement)) = judged {
            assert!(placement.payload.end <= segment.len() + payload_len);
        }
    }
}

#[test]
fn codecs_do_not_panic_on_random_bytes() {
    let mut prng = Prng::new(79);
    for _ in 0..20_000 / VALUE_STEP {
        let len = prng.below(60);
        let bytes = prng.bytes(len);
        let context = terminate::Context {
            is_first_fpdu: prng.below(2) == 0,
            sent_fpdu: prng.below(2) == 0,
        };
        let parsed = terminate::parse(&bytes, context);
        assert_eq!(parsed.is_some(), bytes.len() >= terminate::CONTROL_LEN);
        if let Some(request) = bytes.first_chunk().and_then(rdmap::AtomicRequest::parse) {
            let mut again = [0; rdmap::ATOMIC_REQUEST_LEN];
            request.emit(&mut again);
            assert_eq!(rdmap::AtomicRequest::parse(&again), Some(request));
        }
    }
}
