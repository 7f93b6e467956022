//! The move of a connection from TCP to another carrier.

use super::{
    code,
    engine::{Engine, Pair, SEND, immediate, request, split, with_rtr, write},
    faults, hex, triple,
};
use crate::{
    CarrierError, CarrierMessage, Delivery, Immediate, Inbound, OwnOffer, PostError, Role, Stag,
    StreamState, TransmitFpdu, TransmitPayload, WorkKind, testing::memory::Grant,
    wire::mpa::RtrKind,
};

const OFFER: CarrierMessage = CarrierMessage::Offer {
    name: [0xAB; 16],
    token: 0x77,
};

/// A pair before its first FPDU, in which each end offers carriers, offers long FPDUs only, or
/// offers nothing.
fn pair(carriers: [Option<bool>; 2]) -> Pair {
    let rtr = Some(RtrKind::Read);
    let sides = [Role::Initiator, Role::Responder].map(|role| with_rtr(role, rtr));
    let [initiator, responder] = sides;
    let mut pair = Pair::new(initiator, responder, 5);
    for (engine, carriers) in [&mut pair.initiator, &mut pair.responder]
        .into_iter()
        .zip(carriers)
    {
        if let Some(carriers) = carriers {
            let ulpdu_max = 16_402;
            engine.conn.offer(OwnOffer {
                ulpdu_max,
                carriers,
            });
        }
        engine.register(1, 0x1000, vec![0; 300_000]);
        engine.post_receive(100, 300_000);
        engine.post_receive(101, 300_000);
    }
    pair
}

/// A pair with an agreement on carrier messages.
fn agreed() -> Pair {
    let mut pair = pair([Some(true); 2]);
    pair.run();
    pair
}

/// Moves one direction. `Moved` is transmitted ahead of all work, which the new carrier must
/// transmit.
fn move_direction(from: &mut Engine, to: &mut Engine) {
    from.conn
        .queue_carrier(CarrierMessage::Moved)
        .expect("the peer has agreed");
    from.transmit_all();
    assert!(from.conn.is_tx_moving());
    let bytes = from.take_sent();
    to.receive(&bytes).expect("legal");
    assert_eq!(to.carrier_messages(), [CarrierMessage::Moved]);
    from.conn.on_tx_moved();
}

/// Transmits all pending segments of `from` by the new carrier. Returns the lengths of the
/// segments.
fn deliver(from: &mut Engine, to: &mut Engine) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(fpdu) = from.conn.poll_transmit() {
        let segment = from.segment(&fpdu);
        lengths.push(segment.len());
        to.handle_segment(&segment).expect("legal");
        from.conn.on_sent(usize::from(ends_work(&fpdu)));
        while let Some(done) = from.conn.poll_completion() {
            from.completions.push(done);
        }
    }
    lengths
}

fn ends_work(fpdu: &TransmitFpdu) -> bool {
    matches!(fpdu.ends, Some(crate::Ends::WorkRequest { .. }))
}

#[test]
fn carrier_messages_need_an_offer_of_both_ends() {
    let rows = [
        ([Some(true), Some(true)], true),
        ([Some(true), Some(false)], false),
        ([Some(false), Some(true)], false),
        ([Some(true), None], false),
        ([None, Some(true)], false),
    ];
    for (offers, expected) in rows {
        let mut pair = pair(offers);
        pair.run();
        for engine in [&mut pair.initiator, &mut pair.responder] {
            assert_eq!(engine.conn.has_agreed_carriers(), expected, "{offers:?}");
            let queued = engine.conn.queue_carrier(OFFER);
            assert_eq!(queued.is_ok(), expected, "{offers:?}");
        }
    }
}

#[test]
fn a_send_with_immediate_data_needs_a_peer_of_this_implementation() {
    const LEN: u32 = 40_000;
    let kind = |solicited| WorkKind::SendImmediate {
        value: 0x0102_0304,
        solicited,
    };
    for solicited in [false, true] {
        let mut pair = agreed();
        let kind = kind(solicited);
        pair.initiator.post(1, kind, vec![7; LEN as usize], false);
        pair.run();
        let expected = Delivery::Receive {
            token: 100,
            len: LEN,
            solicited,
            invalidate: None,
            immediate: Some(Immediate::OfSend(0x0102_0304)),
        };
        assert_eq!(pair.responder.deliveries(), [expected]);
    }
    let mut alone = pair([None, Some(true)]);
    alone.run();
    let refused = alone.initiator.conn.post(request(1, kind(false), 8));
    assert_eq!(refused, Err(PostError::Unsupported));
    let mut unknown = pair([Some(true), None]);
    unknown.initiator.post(1, kind(false), vec![7; 8], false);
    unknown.initiator.transmit_all();
    let bytes = unknown.initiator.take_sent();
    assert!(unknown.responder.receive(&bytes).is_err());
}

#[test]
fn responder_may_send_carrier_messages_once_its_answer_is_transmitted() {
    let mut pair = pair([Some(true); 2]);
    pair.initiator.transmit_all();
    let bytes = pair.initiator.take_sent();
    pair.responder.receive(&bytes).expect("legal");
    assert_eq!(pair.responder.conn.agreed_ulpdu(), Some(16_402));
    let early = pair.responder.conn.queue_carrier(OFFER);
    assert_eq!(early, Err(CarrierError::NotAgreed));
    pair.responder.transmit_all();
    assert_eq!(pair.responder.conn.queue_carrier(OFFER), Ok(()));
    pair.run();
    assert_eq!(pair.initiator.carrier_messages(), [OFFER]);
}

#[test]
fn offer_has_these_bytes_on_the_wire() {
    let mut pair = agreed();
    pair.responder.conn.queue_carrier(OFFER).expect("agreed");
    pair.responder.transmit_all();
    let bytes = pair.responder.take_sent();
    let expected = "002e 414f 00000000 44415452 00000001 00000000 \
                    00000001 abababab abababab abababab abababab 00000000 00000077";
    assert_eq!(bytes[..bytes.len() - 4], hex(expected));
}

#[test]
fn carrier_messages_are_transmitted_between_messages_and_ahead_of_work() {
    let mut pair = agreed();
    let engine = &mut pair.initiator;
    engine.post_send(1, vec![7; 40_000]);
    engine.post_send(2, vec![8; 10]);
    engine.transmit_one(usize::MAX).expect("the first segment");
    engine.conn.queue_carrier(OFFER).expect("agreed");
    assert!(!engine.conn.is_idle());
    let mut order = Vec::new();
    while let Some(fpdu) = engine.transmit_one(usize::MAX) {
        order.push(match fpdu.payload {
            TransmitPayload::WorkRequest { token, .. } => token,
            _ => 0,
        });
    }
    assert_eq!(order, [1, 1, 0, 2]);
    pair.run();
    assert_eq!(pair.responder.carrier_messages(), [OFFER]);
    assert_eq!(pair.responder.received(), [(100, 40_000), (101, 10)]);
}

#[test]
fn a_queued_carrier_message_is_not_overtaken_by_immediate_transmission() {
    let send = SEND;
    let mut pair = agreed();
    let conn = &mut pair.initiator.conn;
    conn.queue_carrier(OFFER).expect("agreed");
    assert_eq!(conn.transmit_now(send, 8), None);
    assert!(conn.poll_transmit().is_some());
    assert!(conn.transmit_now(send, 8).is_some());
    conn.queue_carrier(CarrierMessage::Moved).expect("agreed");
    assert!(conn.poll_transmit().is_some());
    assert_eq!(conn.transmit_now(send, 8), None);
    conn.on_tx_moved();
    assert_eq!(
        conn.transmit_now(send, 200_000).map(|it| it.ulpdu_len()),
        Some(200_018)
    );
}

#[test]
fn nothing_is_transmitted_between_moved_and_the_new_carrier() {
    let mut pair = agreed();
    let conn = &mut pair.initiator.conn;
    conn.queue_carrier(CarrierMessage::Moved).expect("agreed");
    assert_eq!(conn.queue_carrier(OFFER), Err(CarrierError::Moved));
    assert!(!conn.is_tx_moving());
    pair.initiator.post_send(1, vec![7; 10]);
    pair.initiator.transmit_one(usize::MAX).expect("Moved");
    let conn = &mut pair.initiator.conn;
    assert!(conn.is_tx_moving() && !conn.has_transmit());
    assert_eq!(conn.poll_transmit(), None);
    conn.on_tx_moved();
    assert!(conn.has_tx_moved() && !conn.is_tx_moving() && conn.has_transmit());
    assert!(conn.poll_transmit().is_some());
    assert_eq!(conn.queue_carrier(OFFER), Err(CarrierError::Moved));
}

#[test]
fn both_directions_move_and_carry_every_kind_of_message() {
    let Pair {
        mut initiator,
        mut responder,
        ..
    } = agreed();
    initiator.post_read(1, (1, 0x1000), (1, 0x2000), 90_000, false);
    initiator.transmit_all();
    move_direction(&mut initiator, &mut responder);
    responder.conn.set_segment_max(70_000);
    move_direction(&mut responder, &mut initiator);
    assert!(initiator.conn.has_rx_moved() && responder.conn.has_rx_moved());
    assert_eq!(deliver(&mut responder, &mut initiator), [45_070, 44_958]);
    assert_eq!(
        initiator.completed(),
        [1],
        "asked over TCP, answered by the new carrier"
    );

    let message: Vec<u8> = (0..200_000_u32).map(|at| at as u8).collect();
    initiator.post_send(2, message.clone());
    let write = write(1, 0x1000);
    initiator.post(3, write, message.clone(), false);
    initiator.post_read(4, (1, 0x1000), (1, 0x1000), 200_000, true);
    let data = *b"abcdefgh";
    initiator.post(5, immediate(data, false), Vec::new(), false);
    let lengths = deliver(&mut initiator, &mut responder);
    assert_eq!(lengths, [200_018, 200_014, 46, 26], "one segment a message");
    let answers = deliver(&mut responder, &mut initiator);
    assert_eq!(answers.iter().sum::<usize>(), 200_000 + 14 * answers.len());
    assert!(answers.iter().all(|len| *len <= 70_000), "{answers:?}");
    assert_eq!(initiator.completed(), [1, 2, 3, 4, 5]);
    assert_eq!(responder.buffers[&100][..200_000], message);
    assert_eq!(initiator.memory.slice(Stag(1), 0x1000, 200_000), message);
    assert!(matches!(
        responder.deliveries().last(),
        Some(Delivery::Receive { immediate: Some(it), .. }) if *it == Immediate::OfWrite(data)
    ));

    let error = responder.conn.fail_local();
    let fpdu = responder.conn.terminate(&error).expect("one is owed");
    let segment = responder.segment(&fpdu);
    initiator.handle_segment(&segment).expect("legal");
    assert!(initiator.terminated().is_some());
}

const MOVED: &str = "414f 00000000 44415452 00000001 00000000 00000002";
/// Faults for a responder with an agreement.
const FAULTS: &str = "\
not the last segment | 014f 00000000 44415452 00000001 00000000 00000002 | 1/2/05
too long | 414f 00000000 44415452 00000001 00000000 00000002 00 | 1/2/05
too short | 414f 00000000 44415452 00000001 00000000 000000 | 2/0/03
short Offer | 414f 00000000 44415452 00000001 00000000 00000001 abab | 2/0/03
long Offer | 414f 00000000 44415452 00000001 00000000 00000001 00000000 00000000 00000000 \
    00000000 00000000 00000000 00 | 1/2/05
no kind | 414f 00000000 44415452 00000001 00000000 | 2/0/03
kind 0 | 414f 00000000 44415452 00000001 00000000 00000000 | 0/2/06
unknown kind | 414f 00000000 44415452 00000001 00000000 00000003 | 0/2/06
MSN 0 | 414f 00000000 44415452 00000000 00000000 00000002 | 1/2/03
MSN too high | 414f 00000000 44415452 00000002 00000000 00000002 | 1/2/03
MO not 0 | 414f 00000000 44415452 00000001 00000004 00000002 | 1/2/04
Send on the queue of carriers | 4143 00000000 44415452 00000001 00000000 | 1/2/01
carrier opcode on the Send queue | 414f 00000000 00000000 00000001 00000000 | 0/2/06
RDMAP version 0 | 410f 00000000 44415452 00000001 00000000 00000002 | 0/2/05
Moved within a Send | 0143 00000000 00000000 00000001 00000000 68, MOVED | 0/2/06
Moved within a Write | 8140 00000001 0000000000001000 68, MOVED | 0/2/06
Moved twice | MOVED, 414f 00000000 44415452 00000002 00000000 00000002 | 0/2/06
FPDU after Moved | MOVED, 4143 00000000 00000000 00000001 00000000 6869 | 0/2/06
long FPDU after Moved | MOVED, c140 00000001 0000000000001000 6869 | 0/2/06
";

#[test]
fn faults_of_a_peer_that_has_agreed_have_these_codes() {
    for (name, segments, expected) in faults(FAULTS, &[("MOVED", MOVED)]) {
        let mut responder = agreed().responder;
        let (fault, legal) = segments.split_last().expect("a row has segments");
        for segment in legal {
            responder.handle(segment).expect("legal");
        }
        let error = responder.handle(fault).expect_err(name);
        assert_eq!(code(&error), expected, "{name}");
        assert_eq!(responder.conn.state(), StreamState::TerminateOwed);
    }
}

#[test]
fn no_target_is_predicted_for_fpdus_after_moved() {
    let mut engine = agreed().responder;
    let write = hex("c140 00000001 0000000000001000 01020304");
    let (header, len) = split(&write);
    let (memory, receives) = (&engine.memory, &mut engine.receives);
    assert!(
        engine
            .conn
            .predict_target(header, len, memory, receives)
            .is_some()
    );
    engine.handle(&hex(MOVED)).expect("legal");
    let (memory, receives) = (&engine.memory, &mut engine.receives);
    assert_eq!(
        engine.conn.predict_target(header, len, memory, receives),
        None
    );
    engine
        .handle_segment(&write)
        .expect("legal on the new carrier");
}

#[test]
fn a_second_moved_is_a_fault_on_the_new_carrier_too() {
    let mut responder = agreed().responder;
    responder.handle(&hex(MOVED)).expect("legal");
    let second = hex("414f 00000000 44415452 00000002 00000000 00000002");
    assert_eq!(triple(responder.handle_segment(&second)), Some((0, 2, 6)));
}

#[test]
fn moved_within_a_read_response_is_a_fault() {
    let mut initiator = agreed().initiator;
    initiator.post_read(1, (9, 0), (1, 0x1000), 8, false);
    initiator.transmit_all();
    let half = hex("8142 00000001 0000000000001000 01020304");
    initiator.handle(&half).expect("legal");
    assert_eq!(triple(initiator.handle(&hex(MOVED))), Some((0, 2, 6)));
}

#[test]
fn carrier_messages_are_unknown_without_an_agreement() {
    for offers in [[Some(true), Some(false)], [None, None]] {
        let mut pair = pair(offers);
        pair.run();
        for engine in [&mut pair.initiator, &mut pair.responder] {
            assert_eq!(triple(engine.handle(&hex(MOVED))), Some((0, 2, 6)));
        }
    }
}

#[test]
fn payload_of_another_carrier_needs_exactly_the_ddp_header() {
    let write = hex("c140 00000001 0000000000001000 01020304");
    let read = hex("4141 00000000 00000001 00000002 00000000 \
                    0000000a 0000000000000000 00000004 00000001 0000000000001000");
    let send = hex("4143 00000000 00000000 00000001 00000000");
    let bad_length = Some((2, 0, 3));
    type Row<'a> = (&'a str, &'a [u8], usize, Option<(u8, u8, u8)>);
    let rows: [Row<'_>; 9] = [
        ("Write", &write[..14], 4, None),
        ("Write, all in one", &write, 0, None),
        ("Write, payload in two places", &write, 4, bad_length),
        ("Write, cut header", &write[..13], 4, bad_length),
        ("Read Request", &read, 0, None),
        ("Read Request as payload", &read[..18], 28, bad_length),
        ("Send, longer than any segment", &send, 1 << 31, bad_length),
        ("Send, longest number", &send, usize::MAX, bad_length),
        (
            "Write, outside of its region",
            &write[..14],
            (1 << 31) - 1,
            Some((1, 1, 1)),
        ),
    ];
    for (name, header, payload_len, expected) in rows {
        let Engine {
            mut conn,
            memory,
            mut receives,
            ..
        } = agreed().responder;
        let result = conn.handle_segment(header, payload_len, &memory, &mut receives);
        let length = |inbound: &Inbound<Grant>| match inbound {
            Inbound::Place(placement) => placement.payload.len(),
            _ => 0,
        };
        let placed = split(&write).1 * usize::from(name.starts_with("Write"));
        assert_eq!(result.as_ref().map_or(placed, length), placed, "{name}");
        assert_eq!(triple(result.map(drop)), expected, "{name}");
    }
}

#[test]
fn a_limit_of_retries_is_announced_between_own_ends_only() {
    for (offers, expected) in [(Some(true), Some(3)), (None, None)] {
        let mut pair = pair([offers; 2]);
        pair.run();
        let announce = |pair: &mut Pair, retries| {
            let kind = WorkKind::announce_retries(retries);
            pair.initiator.conn.post(request(9, kind, 0)).expect("room");
            pair.run();
        };
        announce(&mut pair, Some(3));
        assert_eq!(pair.responder.conn.peer_retries(), expected);
        assert_eq!(pair.initiator.conn.peer_retries(), None);
        announce(&mut pair, None);
        assert_eq!(pair.responder.conn.peer_retries(), None);
    }
}
