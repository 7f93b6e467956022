//! Captured frames, made and parsed by a complete connection, CRC included.

use super::{
    engine::{Engine, Event, SEND, atomic, request, with_rtr, write},
    hex,
};
use crate::{
    Delivery, Immediate, MpaError, Msn, PeerTerminate, ProtocolError, Role, Stag, TerminateCode,
    TransmitFpdu, WorkKind,
    wire::{
        mpa::RtrKind,
        rdmap::{AtomicOp, Opcode},
    },
};

const A3: &str = "00174143 00000000 00000000 00000001 00000000 68656c6c 6f000000 b990b10c";
const A4: &str = "001bc140 11223344 00000000 00001000 48656c6c 6f2c2069 57415250 21000000 b11d0e65";
const A5: &str = "002e4141 00000000 00000001 00000001 00000000 0a0b0c01 00000000 00002000 00000010 \
                  11223344 00000000 00001008 bf750ab4";
const A6: &str = "001ec142 0a0b0c01 00000000 00002000 00010203 04050607 08090a0b 0c0d0e0f 5f519b4e";
const A7: &str = "00154146 0a0b0c01 00000000 00000002 00000000 62796500 1e2583fe";
const A8: &str = "001a0143 00000000 00000000 00000003 00000000 41424344 45464748 a21220a3 \
                  00144143 00000000 00000000 00000003 00000008 494a0000 af6e4fbb";
const A9: &str = "00124143 00000000 00000000 00000001 00000000 587be8c4";
const A10: &str = "0013c140 deadbe00 00000000 00003000 6f6f7073 21000000 ffeb9fcc";
const A11: &str = "00264147 00000000 00000002 00000001 00000000 1100c000 0013c140 deadbe00 \
                   00000000 00003000 07f86cd6";
const B3: &str = "000ec140 00000001 00000000 00000000 ebd34c5f";
const B3_READ: &str = "002e4141 00000000 00000001 00000001 00000000 00000000 00000000 00000000 \
                       00000000 00000001 00000000 00000000 ba10e3c9";
const B3_ANSWER: &str = "000ec142 00000000 00000000 00000000 6975d6ca";
const B4: &str = "0046414a 00000000 00000001 00000002 00000000 00000000 00000077 11223344 00000000 \
                  00001000 00000000 00000005 00000000 00000000 00000000 00000000 ffffffff ffffffff \
                  53895caf";
/// B4 as the first request of one of our streams, with id 0.
const FETCH_ADD: &str = "0046414a 00000000 00000001 00000001 00000000 00000000 00000000 11223344 \
                         00000000 00001000 00000000 00000005 00000000 00000000 00000000 00000000 \
                         ffffffff ffffffff 7c19f3e9";
/// The second request: writes 7 to 1008 if the value there is 46.
const CMP_SWAP: &str = "0046414a 00000000 00000001 00000002 00000000 00000002 00000001 11223344 \
                        00000000 00001008 00000000 00000007 ffffffff ffffffff 00000000 0000002e \
                        ffffffff ffffffff 9ae48559";
const B5: &str = "001e414b 00000000 00000003 00000001 00000000 00000077 00000000 00000029 556671a6";
const B6: &str = "001a4148 00000000 00000000 00000001 00000000 01020304 05060708 06c22805";
/// B6 with a solicited event.
const IMMEDIATE_SOLICITED: &str =
    "001a4149 00000000 00000000 00000001 00000000 01020304 05060708 9b091c2b";
const B7: &str = "00464147 00000000 00000002 00000001 00000000 0101e000 002e4141 00000000 00000001 \
                  00000003 00000000 0a0b0c01 00000000 00002000 00001000 11223344 00000000 00fff000 \
                  10406111";
const B8: &str = "00164147 00000000 00000002 00000001 00000000 20020000 7fe42585";

fn initiator(rtr: Option<RtrKind>) -> Engine {
    let mut engine = Engine::new(with_rtr(Role::Initiator, rtr));
    engine.register(0x0a0b_0c01, 0x2000, vec![0; 0x1000]);
    engine
}

/// The memory that is read: 0 at offset 8, and so on.
fn source() -> Vec<u8> {
    (0..=255).map(|byte: u8| byte.wrapping_sub(8)).collect()
}

fn responder(rtr: Option<RtrKind>) -> Engine {
    let mut engine = Engine::new(with_rtr(Role::Responder, rtr));
    engine.register(0x0a0b_0c01, 0, vec![0; 1]);
    engine.register(0x1122_3344, 0x1000, source());
    for token in 0..4 {
        engine.post_receive(token, 16);
    }
    engine
}

fn on_wire(engine: &mut Engine) -> Vec<u8> {
    engine.transmit_all();
    engine.take_sent()
}

fn terminate(engine: &mut Engine, error: &ProtocolError) -> Vec<u8> {
    let fpdu = engine.conn.terminate(error).expect("the first Terminate");
    assert_eq!(engine.conn.terminate(error), None, "only one");
    engine.assemble(&fpdu)
}

#[test]
fn initiator_of_group_a_makes_the_frames() {
    let mut engine = initiator(None);
    engine.post_send(1, b"hello".to_vec());
    assert_eq!(on_wire(&mut engine), hex(A3));
    let write = write(0x1122_3344, 0x1000);
    engine.post(2, write, b"Hello, iWARP!".to_vec(), false);
    assert_eq!(on_wire(&mut engine), hex(A4));
    engine.post_read(3, (0x1122_3344, 0x1008), (0x0a0b_0c01, 0x2000), 16, false);
    assert_eq!(on_wire(&mut engine), hex(A5));
    let bye = WorkKind::Send {
        solicited: true,
        invalidate: Some(Stag(0x0a0b_0c01)),
    };
    engine.post(4, bye, b"bye".to_vec(), false);
    assert_eq!(on_wire(&mut engine), hex(A7));
}

#[test]
fn responder_of_group_a_understands_and_answers() {
    let mut engine = responder(None);
    for frame in [A3, A4, A5, A7, A8] {
        engine.receive(&hex(frame)).expect("a legal frame");
    }
    assert_eq!(engine.received(), [(0, 5), (1, 3), (2, 10)]);
    assert_eq!(engine.buffers[&0][..5], *b"hello");
    assert_eq!(engine.buffers[&2][..10], *b"ABCDEFGHIJ");
    assert_eq!(
        engine.memory.slice(Stag(0x1122_3344), 0x1000, 13),
        b"Hello, iWARP!"
    );
    // The read was requested after the write, and returns the written value.
    engine.register(0x1122_3344, 0x1000, source());
    assert_eq!(on_wire(&mut engine), hex(A6));
    engine.post_send(9, Vec::new());
    assert_eq!(on_wire(&mut engine), hex(A9));
}

#[test]
fn initiator_of_group_a_takes_the_read_response() {
    let mut engine = initiator(None);
    engine.post_read(3, (0x1122_3344, 0x1008), (0x0a0b_0c01, 0x2000), 16, false);
    engine.transmit_all();
    engine.receive(&hex(A6)).expect("a legal frame");
    assert_eq!(engine.deliveries(), [Delivery::Read { token: 3 }]);
    assert_eq!(engine.completed(), [3]);
    let expected: Vec<u8> = (0..16).collect();
    assert_eq!(engine.memory.slice(Stag(0x0a0b_0c01), 0x2000, 16), expected);
}

#[test]
fn write_to_a_bad_stag_ends_with_the_terminate_of_group_a() {
    let mut engine = responder(None);
    let error = engine.receive(&hex(A10)).expect_err("no such STag");
    assert_eq!(terminate(&mut engine, &error), hex(A11));

    let mut peer = initiator(None);
    peer.receive(&hex(A11))
        .expect("a Terminate is not a violation");
    let terminate = PeerTerminate {
        code: error.code,
        about: Some(Opcode::Write),
        request: None,
    };
    assert_eq!(peer.terminated(), Some(Some(terminate)));
    peer.post_expect_ended();
}

#[test]
fn ready_to_receive_messages_of_group_b() {
    assert_eq!(on_wire(&mut initiator(Some(RtrKind::Write))), hex(B3));
    let mut engine = initiator(Some(RtrKind::Read));
    assert_eq!(on_wire(&mut engine), hex(B3_READ));
    engine.receive(&hex(B3_ANSWER)).expect("a legal frame");
    assert!(engine.conn.is_idle() && engine.completions.is_empty());

    let mut engine = responder(Some(RtrKind::Write));
    engine.receive(&hex(B3)).expect("a legal frame");
    assert_eq!(engine.count(&Event::ReadyToReceive), 1);
    // Whatever kind the Reply named, the zero-length read is accepted and answered.
    let mut engine = responder(Some(RtrKind::Write));
    engine.receive(&hex(B3_READ)).expect("a legal frame");
    assert_eq!(engine.count(&Event::ReadyToReceive), 1);
    assert_eq!(on_wire(&mut engine), hex(B3_ANSWER));
}

#[test]
fn immediate_data_of_group_b() {
    let data = [1, 2, 3, 4, 5, 6, 7, 8];
    for (solicited, frame) in [(false, B6), (true, IMMEDIATE_SOLICITED)] {
        let mut engine = initiator(None);
        let kind = WorkKind::ImmediateData { data, solicited };
        engine.post(1, kind, Vec::new(), false);
        assert_eq!(on_wire(&mut engine), hex(frame));

        let mut engine = responder(None);
        engine.receive(&hex(frame)).expect("a legal frame");
        let delivered = Delivery::Receive {
            token: 0,
            len: 0,
            solicited,
            invalidate: None,
            immediate: Some(Immediate::OfWrite(data)),
        };
        assert_eq!(engine.deliveries(), [delivered]);
    }
}

#[test]
fn atomic_requests_are_made_to_the_byte() {
    let mut engine = initiator(None);
    let atomic = |op, to| atomic(op, 0x1122_3344, to);
    let add = AtomicOp::FetchAdd { add: 5, mask: 0 };
    engine.post(1, atomic(add, 0x1000), Vec::new(), false);
    assert_eq!(on_wire(&mut engine), hex(FETCH_ADD));
    let swap = AtomicOp::CmpSwap {
        swap: 7,
        swap_mask: u64::MAX,
        compare: 46,
        compare_mask: u64::MAX,
    };
    engine.post(2, atomic(swap, 0x1008), Vec::new(), false);
    assert_eq!(on_wire(&mut engine), hex(CMP_SWAP));
}

#[test]
fn responder_of_group_b_executes_and_answers() {
    let mut engine = responder(Some(RtrKind::Read));
    engine.register(0x1122_3344, 0x1000, 41_u64.to_be_bytes().to_vec());
    engine.receive(&hex(B3_READ)).expect("a legal frame");
    assert_eq!(on_wire(&mut engine), hex(B3_ANSWER));
    engine.receive(&hex(B4)).expect("a legal frame");
    assert_eq!(on_wire(&mut engine), hex(B5));
    let cell = engine.memory.slice(Stag(0x1122_3344), 0x1000, 8);
    assert_eq!(cell, 46_u64.to_be_bytes());
}

#[test]
fn atomic_response_of_group_b_matches_its_request() {
    let mut engine = initiator(None);
    let add = AtomicOp::FetchAdd { add: 5, mask: 0 };
    let kind = atomic(add, 0x1122_3344, 0x1000);
    // The capture's request has id 0x77; ours count from 0.
    for token in 0..=0x77 {
        engine.post(token, kind, Vec::new(), false);
        engine.transmit_all();
        if token < 0x77 {
            let answer = answer_to(token as u32);
            engine.handle(&answer).expect("a legal answer");
        }
    }
    let mut ulpdu = hex(B5)[2..32].to_vec();
    ulpdu[10..14].copy_from_slice(&0x78_u32.to_be_bytes());
    engine.handle(&ulpdu).expect("a legal answer");
    assert_eq!(engine.atomic_results().last(), Some(&(0x77, 41)));
}

fn answer_to(request_id: u32) -> Vec<u8> {
    let mut ulpdu = hex("414b 00000000 00000003 00000000 00000000 00000000 00000000 00000000");
    ulpdu[10..14].copy_from_slice(&(request_id + 1).to_be_bytes());
    ulpdu[18..22].copy_from_slice(&request_id.to_be_bytes());
    ulpdu
}

#[test]
fn read_out_of_bounds_ends_with_the_terminate_of_group_b() {
    let mut engine = responder(None);
    let mut read = hex(A5)[2..48].to_vec();
    for msn in 1..=2 {
        read[13] = msn;
        engine.handle(&read).expect("a legal read");
    }
    read[13] = 3;
    read[30..34].copy_from_slice(&0x1000_u32.to_be_bytes());
    read[38..46].copy_from_slice(&0x00ff_f000_u64.to_be_bytes());
    let error = engine.handle(&read).expect_err("out of bounds");
    assert_eq!(terminate(&mut engine, &error), hex(B7));
}

#[test]
fn crc_error_ends_with_the_terminate_of_group_b() {
    let mut engine = responder(None);
    let mut frame = hex(A3);
    frame[25] ^= 1;
    let error = engine.receive(&frame).expect_err("the CRC is wrong");
    assert_eq!(error.code, TerminateCode::Mpa(MpaError::Crc));
    assert_eq!(terminate(&mut engine, &error), hex(B8));
    assert_eq!(engine.received(), [], "nothing is delivered");
}

#[test]
fn terminate_of_the_start_up_needs_no_connection() {
    let code = TerminateCode::Mpa(MpaError::Crc);
    let fpdu = TransmitFpdu::terminate(&ProtocolError::without_segment(code));
    assert_eq!(fpdu.header(), &hex(B8)[..24]);
    assert_eq!(Msn::FIRST, Msn(1));
}

impl Engine {
    fn post_expect_ended(&mut self) {
        let late = request(0, SEND, 0);
        assert_eq!(self.conn.post(late), Err(crate::PostError::Ended));
        assert!(!self.conn.has_transmit());
        let error = self.conn.fail_local();
        assert_eq!(
            self.conn.terminate(&error),
            None,
            "a Terminate is not answered"
        );
    }
}
