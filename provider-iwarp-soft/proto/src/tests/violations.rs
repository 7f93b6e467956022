//! Every fault of a peer has exactly one layer, type and code.

use super::{
    code,
    engine::{Engine, atomic, config, with_rtr},
    faults, hex, triple,
};
use crate::{
    Access, Config, Ends, MpaError, ProtectionFault, RemoteOperation, Role, Stag, StreamState,
    TerminateCode, TransmitPayload,
    wire::{
        mpa::RtrKind,
        rdmap::{AtomicOp, ReadRequest},
    },
};

// The tables name these segments.

const SEND: &str = "4143 00000000 00000000 00000001 00000000 6869";
const FIRST_HALF: &str = "0143 00000000 00000000 00000001 00000000 6869";
const READ: &str = "4141 00000000 00000001 00000001 00000000 \
                    0000000a 00000000 00000000 00000004 00000001 00000000 00001000";

const UNTAGGED: &str = "\
DDP version 0 | 4043 00000000 00000000 00000001 00000000 | 1/2/06
DDP version 2 | 4243 00000000 00000000 00000001 00000000 | 1/2/06
DDP version before RDMAP version | 4003 00000000 00000000 00000001 00000000 | 1/2/06
RDMAP version 0 | 4103 00000000 00000000 00000001 00000000 | 0/2/05
RDMAP version 2 | 4183 00000000 00000000 00000001 00000000 | 0/2/05
opcode C | 414c 00000000 00000000 00000001 00000000 | 0/2/06
opcode F | 414f 00000000 00000007 00000001 00000000 | 0/2/06
untagged Write | 4140 00000000 00000000 00000001 00000000 | 0/2/06
untagged Read Response | 4142 00000000 00000000 00000001 00000000 | 0/2/06
Send on the read queue | 4143 00000000 00000001 00000001 00000000 | 0/2/06
Read Request on the Send queue | 4141 00000000 00000000 00000001 00000000 | 0/2/06
queue 4 | 4143 00000000 00000004 00000001 00000000 | 1/2/01
queue 2^32-1 | 4143 00000000 ffffffff 00000001 00000000 | 1/2/01
MSN 0 | 4143 00000000 00000000 00000000 00000000 | 1/2/03
MSN too high | 4143 00000000 00000000 00000002 00000000 | 1/2/03
MSN repeated | SEND, SEND | 1/2/03
MO not 0 at the start | 4143 00000000 00000000 00000001 00000001 68 | 1/2/04
MO with a gap | FIRST_HALF, 4143 00000000 00000000 00000001 00000003 68 | 1/2/04
MO with an overlap | FIRST_HALF, 4143 00000000 00000000 00000001 00000001 68 | 1/2/04
longer than the receive | 4143 00000000 00000000 00000001 00000000 000102030405060708 | 1/2/05
longer than the receive in its second segment | FIRST_HALF, 4143 00000000 00000000 00000001 \
    00000002 00010203040506 | 1/2/05
no receive is left | SEND, 4143 00000000 00000000 00000002 00000000, 4143 00000000 00000000 \
    00000003 00000000 | 1/2/02
another kind of Send in the second segment | FIRST_HALF, 4145 00000000 00000000 00000001 \
    00000002 68 | 0/2/06
shorter than its header | 4143 00000000 00000000 00000001 000000 | 2/0/03
empty |  | 2/0/03
";

const INVALIDATE: &str = "\
unknown STag | 4144 0000dead 00000000 00000001 00000000 | 0/1/00
STag of another stream | 4144 00000002 00000000 00000001 00000000 | 0/1/03
shared region | 4146 00000003 00000000 00000001 00000000 | 0/1/09
";

const WRITE: &str = "\
DDP version | c240 00000001 00000000 00001000 00 | 1/1/04
DDP version without payload | c240 00000001 00000000 00001000 | 1/1/04
RDMAP version | c100 00000001 00000000 00001000 00 | 0/2/05
tagged Send | c143 00000001 00000000 00001000 00 | 0/2/06
unknown STag | c140 0000dead 00000000 00001000 00 | 1/1/00
STag of another stream | c140 00000002 00000000 00001000 00 | 1/1/02
no right | c140 00000003 00000000 00001000 00 | 1/1/00
below the range | c140 00000001 00000000 00000fff 00 | 1/1/01
above the range | c140 00000001 00000000 00001010 00 | 1/1/01
across the end | c140 00000001 00000000 0000100f 0000 | 1/1/01
wraps | c140 00000001 ffffffff ffffffff 0000 | 1/1/03
second segment out of range | 8140 00000001 00000000 0000100f 00, c140 00000001 00000000 \
    00001010 00 | 1/1/01
shorter than its header | c140 00000001 00000000 000010 | 2/0/03
";

const READS: &str = "\
unknown STag | 4141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 00000004 \
    0000dead 00000000 00001000 | 0/1/00
STag of another stream | 4141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 \
    00000004 00000002 00000000 00001000 | 0/1/03
no right | 4141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 00000004 \
    00000003 00000000 00001000 | 0/1/02
wraps | 4141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 00000004 00000001 \
    ffffffff fffffffe | 0/1/04
out of bounds | 4141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 00000011 \
    00000001 00000000 00001000 | 0/1/01
MSN repeated | READ, READ | 1/2/03
MO not 0 | 4141 00000000 00000001 00000001 00000001 0000000a 00000000 00000000 00000004 \
    00000001 00000000 00001000 | 1/2/04
too short | 4141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 00000004 \
    00000001 00000000 000010 | 2/0/03
too long | 4141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 00000004 \
    00000001 00000000 00001000 00 | 1/2/05
not the last segment | 0141 00000000 00000001 00000001 00000000 0000000a 00000000 00000000 \
    00000004 00000001 00000000 00001000 | 1/2/05
unrequested Read Response | c142 00000001 00000000 00001000 | 0/2/06
";

const RFC7306: &str = "\
Immediate Data too short | 4148 00000000 00000000 00000001 00000000 00 | 2/0/03
Immediate Data too long | 4148 00000000 00000000 00000001 00000000 000102030405060708 | 1/2/05
Immediate Data in the middle of a Send | FIRST_HALF, 4148 00000000 00000000 00000001 00000000 \
    0001020304050607 | 0/2/06
atomic on a misaligned address | 414a 00000000 00000001 00000001 00000000 00000000 00000000 \
    00000001 00000000 00001004 0000000000000000 0000000000000000 0000000000000000 \
    0000000000000000 | 0/2/07
atomic without right | 414a 00000000 00000001 00000001 00000000 00000000 00000000 00000003 \
    00000000 00001000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 | \
    0/1/02
unassigned atomic | 414a 00000000 00000001 00000001 00000000 00000001 00000000 00000001 \
    00000000 00001000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 | \
    0/2/06
unrequested Atomic Response | 414b 00000000 00000003 00000001 00000000 00000000 \
    0000000000000000 | 0/2/06
";

/// The sink is STag 1 from 1000, 8 bytes; 4 of them were received.
const READ_RESPONSES: &str = "\
wrong STag | c142 00000004 00000000 00001004 00000000 | 1/1/00
gap | c142 00000001 00000000 00001005 000000 | 1/1/01
overlap | c142 00000001 00000000 00001000 00000000 | 1/1/01
too long | c142 00000001 00000000 00001004 0000000000 | 1/1/01
too long, and not last | 8142 00000001 00000000 00001004 0000000000 | 1/1/01
ends early | c142 00000001 00000000 00001004 000000 | 1/1/01
empty end | c142 00000000 00000000 00000000 | 1/1/01
atomic instead | 414b 00000000 00000003 00000001 00000000 00000000 0000000000000000 | 0/2/06
";

/// STag 1 grants every access to 1000..1010, 2 belongs to another stream, 3 grants nothing.
fn responder() -> Engine {
    let mut engine = Engine::new(config(Role::Responder));
    for stag in 1..=3 {
        engine.register(stag, 0x1000, vec![0; 16]);
    }
    if let Some(region) = engine.memory.regions.get_mut(&2) {
        region.foreign = true;
    }
    if let Some(region) = engine.memory.regions.get_mut(&3) {
        region.rights = &[];
        region.invalidatable = false;
    }
    engine.post_receive(1, 8);
    engine.post_receive(2, 8);
    engine
}

#[test]
fn every_fault_has_its_code() {
    let named = [("SEND", SEND), ("FIRST_HALF", FIRST_HALF), ("READ", READ)];
    let table = [UNTAGGED, INVALIDATE, WRITE, READS, RFC7306].concat();
    for (name, segments, expected) in faults(&table, &named) {
        let mut engine = responder();
        let before = engine.memory.regions[&1].bytes.clone();
        let (fault, legal) = segments.split_last().expect("a row has segments");
        for segment in legal {
            engine.handle(segment).expect(name);
        }
        let error = engine.handle(fault).expect_err(name);
        assert_eq!(code(&error), expected, "{name}");
        if legal.is_empty() {
            assert_eq!(
                engine.memory.regions[&1].bytes, before,
                "{name}: nothing was placed"
            );
        }
        assert_ends_once(&mut engine, name);
    }
}

/// The first fault ends the stream: later segments are ignored, and one Terminate is sent.
fn assert_ends_once(engine: &mut Engine, name: &str) {
    assert_eq!(engine.conn.state(), StreamState::TerminateOwed, "{name}");
    let deliveries = engine.deliveries().len();
    engine.handle(&hex("41ff")).expect("ignored");
    engine.handle(&hex(SEND)).expect("ignored");
    assert_eq!(engine.deliveries().len(), deliveries, "{name}");
    assert!(!engine.conn.has_transmit(), "{name}");
    let error = engine.conn.fail_local();
    let fpdu = engine
        .conn
        .terminate(&error)
        .expect("one Terminate is owed");
    assert_eq!(fpdu.ends, Some(Ends::Stream));
    assert_eq!(engine.conn.terminate(&error), None, "{name}");
}

#[test]
fn without_rfc_7306_its_messages_are_unexpected() {
    let config = Config {
        rfc7306: false,
        ..config(Role::Responder)
    };
    for opcode in [0x48, 0x49, 0x4a, 0x4b] {
        let mut segment = hex(SEND);
        segment[1] = opcode;
        let error = Engine::new(config).handle(&segment);
        assert_eq!(triple(error), Some((0, 2, 0x06)));
    }
    let error = Engine::new(config).handle(&hex("4143 00000000 00000003 00000001 00000000"));
    assert_eq!(triple(error), Some((1, 2, 0x01)));
}

#[test]
fn reads_beyond_ird_are_refused_at_the_next_power_of_two() {
    for (ird, accepted) in [(0, 0), (1, 1), (3, 4), (4, 4), (5, 8)] {
        let mut engine = responder();
        engine.conn = crate::Connection::new(Config {
            ird,
            ..config(Role::Responder)
        });
        let mut read = hex(READ);
        for msn in 1..=accepted {
            read[13] = msn;
            engine.handle(&read).expect("within the bound");
        }
        read[13] = accepted + 1;
        let error = engine.handle(&read).expect_err("beyond the bound");
        assert_eq!(error.code.to_triple(), (0, 2, 0x07), "IRD {ird}");
    }
}

#[test]
fn read_responses_must_continue_the_oldest_read_exactly() {
    for (name, segments, expected) in faults(READ_RESPONSES, &[]) {
        let mut engine = reader();
        let error = engine.handle(&segments[0]).expect_err(name);
        assert_eq!(code(&error), expected, "{name}");
        assert_eq!(engine.completed(), [], "{name}");
    }
    let mut engine = reader();
    engine
        .handle(&hex("8142 00000001 00000000 00001004 ffffffff"))
        .expect("legal");
    assert_eq!(engine.completed(), [], "the last segment is missing");
    engine
        .handle(&hex("c142 00000000 00000000 00000000"))
        .expect("an empty last segment");
    assert_eq!(engine.completed(), [1]);
}

#[test]
fn atomic_response_must_carry_the_id_of_the_oldest_request() {
    let mut engine = Engine::new(config(Role::Initiator));
    let op = AtomicOp::FetchAdd { add: 1, mask: 0 };
    for token in [1, 2] {
        let kind = atomic(op, 9, 0);
        engine.post(token, kind, Vec::new(), false);
    }
    engine.transmit_all();
    // The second request has id 1.
    let answer = "414b 00000000 00000003 00000001 00000000 00000001 0000000000000000";
    let error = engine.handle(&hex(answer)).expect_err("not the oldest");
    assert_eq!(error.code.to_triple(), (0, 2, 0x07));
    assert_eq!(engine.completed(), []);
}

#[test]
fn a_deregistered_sink_is_a_tagged_error() {
    let mut engine = reader();
    engine.memory.regions.remove(&1);
    let error = engine.handle(&hex("c142 00000001 00000000 00001004 00000000"));
    assert_eq!(triple(error), Some((1, 1, 0x00)));
}

fn reader() -> Engine {
    let mut engine = Engine::new(config(Role::Initiator));
    engine.register(1, 0x1000, vec![0; 16]);
    engine.register(4, 0x1000, vec![0; 16]);
    engine.post_read(1, (9, 0), (1, 0x1000), 8, false);
    engine.transmit_all();
    engine
        .handle(&hex("8142 00000001 00000000 00001000 01020304"))
        .expect("legal");
    engine
}

#[test]
fn the_receive_of_a_broken_message_is_returned_to_the_queue() {
    let mut engine = responder();
    engine.handle(&hex(FIRST_HALF)).expect("legal");
    assert_eq!(
        engine.conn.take_partial_receive(),
        None,
        "not while the stream lives"
    );
    engine.conn.on_llp_closed();
    assert_eq!(engine.conn.take_partial_receive(), Some(1));
    assert_eq!(engine.conn.take_partial_receive(), None);

    let mut engine = responder();
    let too_long = hex("4143 00000000 00000000 00000001 00000000 000102030405060708");
    engine.handle(&too_long).expect_err("too long");
    assert_eq!(engine.conn.take_partial_receive(), Some(1));
    assert_eq!(
        engine.receives.posted.len(),
        1,
        "only one receive was taken"
    );
}

#[test]
fn faults_of_the_engine_end_the_stream_too() {
    let mut engine = responder();
    let error = engine.conn.handle_llp_error(MpaError::Length);
    assert_eq!((error.code.to_triple(), error.offender), ((2, 0, 3), None));
    assert_ends_once(&mut engine, "length");

    let mut engine = responder();
    let error = engine.conn.fail_local();
    assert_eq!((error.code.to_triple(), error.offender), ((0, 0, 0), None));
    assert_ends_once(&mut engine, "local");

    let mut engine = responder();
    let ulpdu = hex("c140 00000001 00000000 00001000 00");
    engine.handle(&ulpdu).expect("legal");
    let error = engine
        .conn
        .refuse_placement(&ulpdu, ulpdu.len(), ProtectionFault::InvalidStag);
    assert_eq!(error.code.to_triple(), (1, 1, 0x00));
    assert_eq!(
        error.offender.map(|offender| offender.segment_len()),
        Some(15)
    );
    assert_ends_once(&mut engine, "placement");

    let mut engine = responder();
    let error = engine.conn.handle_llp_error(MpaError::Closed);
    assert_eq!(
        engine.conn.terminate(&error),
        None,
        "there is no way to send it"
    );
}

#[test]
fn a_read_from_a_revoked_region_reports_its_progress() {
    for first_refused in 0..3 {
        let mut engine = Engine::new(config(Role::Responder));
        engine.register(1, 0x1000, vec![0; 400]);
        let read = "4141 00000000 00000001 00000001 00000000 \
                    0000000a 00000000 00000000 00000108 00000001 00000000 00001000";
        engine.handle(&hex(read)).expect("legal");
        let mut second = hex(read);
        second[13] = 2;
        engine.handle(&second).expect("legal");
        for _ in 0..first_refused {
            engine.transmit_one(128);
        }
        let fpdu = engine.conn.poll_transmit_limited(128).expect("a response");
        assert!(matches!(
            fpdu.payload,
            TransmitPayload::ReadResponse { stag: Stag(1), .. }
        ));
        let error = engine
            .conn
            .refuse_response(&fpdu, ProtectionFault::InvalidStag);
        assert_eq!(error.code.to_triple(), (0, 1, 0x00));
        let offender = error.offender.expect("the read is quoted");
        assert_eq!(
            offender.headers()[..18],
            hex(read)[..18],
            "the first read, MSN 1"
        );
        let done = first_refused * 114;
        let whole = hex(read)[18..]
            .first_chunk()
            .map(ReadRequest::parse)
            .expect("28 bytes");
        let quoted = offender.headers()[18..]
            .first_chunk()
            .map(ReadRequest::parse);
        assert_eq!(quoted, Some(whole.after(done)));
        assert_ends_once(&mut engine, "revoked");
    }
}

#[test]
fn terminate_that_cannot_be_read_still_ends_the_stream() {
    for segment in [
        "4147 00000000 00000002 00000001 00000000",
        "4147 00000000 00000002 00000009 00000000 2002",
    ] {
        let mut engine = responder();
        engine
            .handle(&hex(segment))
            .expect("no violation to report");
        assert_eq!(engine.terminated(), Some(None));
        assert_eq!(engine.conn.state(), StreamState::TerminateReceived);
    }
}

#[test]
fn ambiguous_terminates_are_interpreted_by_the_messages_before() {
    use TerminateCode::{Mpa, RemoteOperation as Operation};
    let interpret = |mut engine: Engine, control: &str| {
        let segment = hex(&format!(
            "4147 00000000 00000002 00000001 00000000 {control}"
        ));
        engine
            .handle(&segment)
            .expect("a Terminate is not a violation");
        engine
            .terminated()
            .flatten()
            .map(|terminate| terminate.code)
    };
    let new_engine = || Engine::new(config(Role::Responder));
    let after_a_send = || {
        let mut engine = responder();
        engine.handle(&hex(SEND)).expect("legal");
        engine
    };
    let mut after_the_rtr = Engine::new(with_rtr(Role::Initiator, Some(RtrKind::Write)));
    after_the_rtr.transmit_all();
    let mut after_own_work = Engine::new(config(Role::Initiator));
    after_own_work.post_send(1, Vec::new());
    after_own_work.transmit_all();
    // As initiator siw refuses a Reply before its first FPDU; later 02 06 has the meaning of the
    // RFC only.
    assert_eq!(
        interpret(new_engine(), "02060000"),
        Some(Mpa(MpaError::InsufficientIrd))
    );
    let unexpected = Some(Operation(RemoteOperation::UnexpectedOpcode));
    assert_eq!(interpret(after_a_send(), "02060000"), unexpected);
    // The RFC refuses a Reply with 20 06; siw rejects an opcode of ours with the same bytes.
    assert_eq!(
        interpret(new_engine(), "20060000"),
        Some(Mpa(MpaError::InsufficientIrd))
    );
    assert_eq!(interpret(after_the_rtr, "20060000"), unexpected);
    assert_eq!(interpret(after_own_work, "20060000"), unexpected);
}

#[test]
fn only_the_right_of_the_operation_is_required() {
    for (right, segment) in [
        (&[Access::RemoteWrite], "c140 00000001 00000000 00001000 00"),
        (&[Access::RemoteRead], READ),
    ] {
        let mut engine = responder();
        if let Some(region) = engine.memory.regions.get_mut(&1) {
            region.rights = right;
        }
        engine
            .handle(&hex(segment))
            .expect("the right that is required");
    }
}
