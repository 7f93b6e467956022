//! Frames on the wire, byte by byte, against a peer of plain TCP (golden bytes of RFC 5044, 5040).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::*;
use provider_iwarp_soft::{SoftMw, SoftRnic};
use rnic::*;

const REPLY_REV1: &str = "4d504120 49442052 65702046 72616d65 40010000";
/// B3': a zero-length Read as first FPDU, and its answer.
const RTR_READ: &str = "002e4141 00000000 00000001 00000001 00000000 00000000 00000000 00000000 \
     00000000 00000001 00000000 00000000 ba10e3c9";
const RTR_READ_ANSWER: &str = "000ec142 00000000 00000000 00000000 6975d6ca";
/// B8: Terminate, MPA CRC error.
const CRC_TERMINATE: &str = "00164147 00000000 00000002 00000001 00000000 20020000 7fe42585";

/// A responder with a receive of 100 bytes posted, and a raw initiator that was accepted.
fn accepted<'n>(node: &'n Node, request: &str, memory: &Memory) -> (Side<'n>, TcpStream, Vec<u8>) {
    let server = node.side(20);
    for id in 0..4 {
        server.recv(id, &[memory.sge(0, 100)]);
    }
    let (raw, reply) = accept_on(&server, &hex(request));
    (server, raw, reply)
}

/// A bind to the front of `memory` that waits for the reads before it.
fn fenced(memory: &Memory, wr_id: u64, len: usize) -> BindMw<'_, SoftRnic> {
    BindMw {
        fence: true,
        ..bind_to(memory, wr_id, len)
    }
}

#[test]
fn revision_one_is_answered_in_revision_one_and_its_first_frame_is_received() {
    let b = Node::new("lo 0");
    let memory = b.memory(100);
    let (server, mut raw, reply) = accepted(&b, REQUEST_REV1, &memory);
    assert_eq!(reply, hex(REPLY_REV1));
    assert!(matches!(server.event(), Event::Established { .. }));
    // RFC 5044 section 7.1: the responder is silent until the first FPDU.
    server.send(1, &[]);
    raw.write_all(&hex(HELLO)).unwrap();
    assert_eq!(server.received().byte_len, 5);
    assert_eq!(memory.copy(0, 5), b"hello");
    let sent = read_exact(&mut raw, 24);
    assert_eq!(
        sent,
        hex("00124143 00000000 00000000 00000001 00000000 587be8c4")
    );
    assert_eq!(server.sent().status, WcStatus::Success);
}

#[test]
fn frames_byte_by_byte_and_many_in_one_segment_mean_the_same() {
    let second = "00154143 00000000 00000000 00000002 00000000 62796500";
    let mut second = hex(second);
    let crc = crc32c(&second);
    second.extend(crc.to_le_bytes());
    let stream = [hex(HELLO), second].concat();
    for piece in [1, 2, 5, 31, 32, 33, 1000] {
        let b = Node::new("lo 0");
        let memory = b.memory(100);
        let (server, mut raw, _) = accepted(&b, REQUEST_REV1, &memory);
        raw.set_nodelay(true).unwrap();
        for bytes in stream.chunks(piece) {
            raw.write_all(bytes).unwrap();
            b.rnic.drive();
        }
        assert_eq!(
            (server.received().byte_len, server.received().byte_len),
            (5, 3)
        );
        assert_eq!(memory.copy(0, 3), b"bye");
    }
}

#[test]
fn first_frames_of_peer_to_peer_establish_and_are_not_surfaced() {
    // A with C and D; A with D only, which requests a Read.
    let cases = [
        ("50020004 8004c004", FIRST_WRITE, ""),
        ("50020004 80044004", RTR_READ, RTR_READ_ANSWER),
    ];
    for (words, first, answer) in cases {
        let b = Node::new("lo 0");
        let memory = b.memory(100);
        let request = format!("4d504120 49442052 65712046 72616d65 {words}");
        let (server, mut raw, reply) = accepted(&b, &request, &memory);
        assert_eq!((reply[16], reply[17]), (0x50, 2));
        assert!(!b.recorder.has_connection_event(server.token));
        raw.write_all(&hex(first)).unwrap();
        assert!(matches!(server.event(), Event::Established { .. }));
        let answer = hex(answer);
        assert_eq!(read_exact(&mut raw, answer.len()), answer);
        raw.write_all(&hex(HELLO)).unwrap();
        assert_eq!(
            (server.received().wr_id, memory.copy(0, 5)),
            (0, b"hello".to_vec())
        );
    }
}

#[test]
fn our_request_and_first_frames_are_what_hardware_accepts() {
    let a = Node::new("lo 0");
    let client = a.side_with(
        10,
        QpAttr {
            ird: 4,
            ord: 4,
            ..QP_ATTR
        },
    );
    let (mut raw, request) = raw_peer(&client);
    let words = "50020006 8004c004 6869";
    assert_eq!(
        request,
        hex(&format!("4d504120 49442052 65712046 72616d65 {words}"))
    );
    assert_eq!(read_exact(&mut raw, 20), hex(FIRST_WRITE));
    let memory = a.memory(100);
    memory.fill(0);
    client.send(1, &[memory.sge(0, 0)]);
    assert_eq!(
        read_after_first_frames(&mut raw, 24),
        hex("00124143 00000000 00000000 00000001 00000000 587be8c4")
    );
}

/// An FPDU with a good CRC around a DDP segment.
fn fpdu(segment: &[u8]) -> Vec<u8> {
    let mut bytes = (segment.len() as u16).to_be_bytes().to_vec();
    bytes.extend_from_slice(segment);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

#[test]
fn a_default_ird_follows_the_peers_request() {
    for (read_depth_is_consumers, announced) in [(true, 16_u16), (false, 32)] {
        let b = Node::new("lo 0");
        let server = b.side_with(
            20,
            QpAttr {
                read_depth_is_consumers,
                ..QP_ATTR
            },
        );
        let request = "4d504120 49442052 65712046 72616d65 50020004 00080020";
        let (_raw, reply) = accept_on(&server, &hex(request));
        assert_eq!(reply[20..24], [0, announced as u8, 0, 8]);
    }
}

#[test]
fn a_terminate_message_from_the_peer_breaks_the_connection_silently() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let (mut raw, _) = raw_peer(&client);
    assert_eq!(read_exact(&mut raw, 20), hex(FIRST_WRITE));
    raw.write_all(&hex(CRC_TERMINATE)).unwrap();
    read_first_frames_to_end(&mut raw);
    assert_eq!(client.event(), Event::Broken);
}

#[test]
fn a_terminate_message_fails_a_read_only_if_it_can_refer_to_one() {
    /// Lengths and headers of quoted segments, up to the MO.
    const SEND_INVALIDATE: &str = "0017 4144 0badc0de 00000000 00000001 00000000";
    const IMMEDIATE: &str = "001a 4148 00000000 00000000 00000001 00000000";
    const READ: &str = "002e 4141 00000000 00000001 00000001 00000000";
    const ATOMIC: &str = "0046 414a 00000000 00000001 00000001 00000000";
    use WcStatus::{Flushed, RemoteAccess, RemoteOperation};
    macro_rules! rows {
        ($($about:literal: $control:literal, $quote:expr => $status:expr,)+) => {
            [$(($about, $control, $quote, $status)),+]
        };
    }
    let rows = rows! {
        "invalid STag, of whatever": "01000000", "" => RemoteAccess,
        "invalid STag of a Read": "0100c000", READ => RemoteAccess,
        "unspecified, of an atomic": "01ffc000", ATOMIC => RemoteOperation,
        "invalid STag of an invalidation": "0100c000", SEND_INVALIDATE => Flushed,
        "the same in the layout of siw": "10000300", SEND_INVALIDATE => Flushed,
        "a Read in the layout of siw": "10000300", READ => RemoteAccess,
        "cannot be invalidated, protection": "01090000", "" => Flushed,
        "cannot be invalidated, operation": "02090000", "" => Flushed,
        "cannot be invalidated, quoted": "0109c000", SEND_INVALIDATE => Flushed,
        "unexpected opcode of an immediate": "0206c000", IMMEDIATE => Flushed,
        "too many Reads": "0207c000", READ => RemoteOperation,
    };
    for (about, control, quote, status) in rows {
        let a = Node::new("lo 0");
        let client = a.side(10);
        let memory = a.memory(100);
        let (mut raw, _) = raw_peer(&client);
        let read = SendOp::Read(memory.remote(0, 10));
        client.post(1, read, &[memory.sge(0, 10)]);
        let invalidating = SendOp::Send {
            solicited: false,
            invalidate: Some(0x0bad_c0de),
        };
        client.post(2, invalidating, &[]);
        let head = "4147 00000000 00000002 00000001 00000000";
        raw.write_all(&fpdu(&hex(&format!("{head} {control} {quote}"))))
            .unwrap();
        assert_eq!(client.event(), Event::Broken, "{about}");
        let sends = client.poll_all(&client.send_cq);
        assert_eq!((sends[0].wr_id, sends[0].status), (1, status), "{about}");
    }
}

#[test]
fn a_terminate_message_fails_the_read_that_it_quotes() {
    use WcStatus::{Flushed, RemoteAccess};
    // The MSN that is quoted of three Reads, the second in two parts, and the request that fails. 0
    // and 9 belong to none of them, so the oldest unanswered request fails.
    let rows = [
        (1, [RemoteAccess, Flushed, Flushed]),
        (2, [Flushed, RemoteAccess, Flushed]),
        (3, [Flushed, RemoteAccess, Flushed]),
        (4, [Flushed, Flushed, RemoteAccess]),
        (0, [RemoteAccess, Flushed, Flushed]),
        (9, [RemoteAccess, Flushed, Flushed]),
    ];
    for (msn, charged) in rows {
        let a = Node::new("lo 0");
        let client = a.side(10);
        let memory = a.memory(8192);
        let (mut raw, _) = raw_peer(&client);
        // The read does not cross a page, which would split it into two Reads.
        let page = memory.addr().next_multiple_of(4096) - memory.addr();
        let read = SendOp::Read(memory.remote(page as usize, 20));
        let sinks = [memory.sge(0, 10), memory.sge(20, 10)];
        client.post(1, read, &sinks[..1]);
        client.post(2, read, &sinks);
        client.post(3, read, &sinks[1..]);
        let segment = format!(
            "4147 00000000 00000002 00000001 00000000 0100c000 \
             002e 4141 00000000 00000001 {msn:08x} 00000000"
        );
        raw.write_all(&fpdu(&hex(&segment))).unwrap();
        assert_eq!(client.event(), Event::Broken);
        let sends = client.poll_all(&client.send_cq);
        let statuses: Vec<WcStatus> = sends.iter().map(|done| done.status).collect();
        assert_eq!(statuses, charged, "MSN {msn}");
    }
}

/// A time in which bytes in flight are received.
const SILENCE: Duration = Duration::from_millis(100);

/// Makes `raw` a peer that has sent something: the first frame is not repeated for it any more.
fn send_hello(raw: &mut TcpStream, client: &Side<'_>, memory: &Memory) {
    client.recv(0, &[memory.sge(0, 100)]);
    raw.write_all(&hex(HELLO)).unwrap();
    assert_eq!(client.received().byte_len, 5);
    raw.set_read_timeout(Some(SILENCE)).unwrap();
    while raw.read(&mut [0; 20]).is_ok() {}
    raw.set_read_timeout(Some(DEADLINE)).unwrap();
}

#[test]
fn a_fenced_bind_and_later_work_wait_for_the_answer_of_the_read_before() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let memory = a.memory(100);
    let (mut raw, _) = raw_peer(&client);
    send_hello(&mut raw, &client, &memory);
    memory.set(0, 0);
    let window = a.rnic.create_mw(&a.pd).unwrap();
    let bind = |wr_id, len| {
        let bind = fenced(&memory, wr_id, len);
        a.rnic.bind_mw(&client.qp, &window, &bind).unwrap()
    };
    let rkey = bind(1, 10);
    assert_eq!(client.sent().wr_id, 1, "nothing is before it");
    let local = RemoteRange {
        addr: memory.addr(),
        len: 5,
        rkey,
    };
    let remote = RemoteRange {
        addr: 0,
        len: 5,
        rkey: 7,
    };
    client.post(2, SendOp::ReadToWindow { local, remote }, &[]);
    bind(3, 0);
    client.send(4, &[]);
    assert_eq!(read_exact(&mut raw, 52)[2..4], [0x41, 0x41]);
    raw.set_read_timeout(Some(SILENCE)).unwrap();
    assert!(raw.read(&mut [0]).is_err(), "nothing passes the fence");
    raw.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut answer = hex("c142");
    answer.extend(rkey.to_be_bytes());
    answer.extend(memory.addr().to_be_bytes());
    answer.extend(b"hello");
    raw.write_all(&fpdu(&answer)).unwrap();
    for id in 2..=4 {
        client.expect_sent(id);
    }
    assert_eq!(memory.copy(0, 5), b"hello");
    assert_eq!(read_exact(&mut raw, 24)[2..4], [0x41, 0x43]);
}

#[test]
fn a_bind_of_a_freed_window_fails_after_its_slot_was_reused() {
    let a = Node::new("lo 0");
    let (client, heir_side) = (a.side(10), a.side(20));
    let memory = a.memory(100);
    let (mut raw, _) = raw_peer(&client);
    let (_heir_raw, _) = raw_peer(&heir_side);
    send_hello(&mut raw, &client, &memory);
    // Slots of the table are reused when many of them are free, the longest free first.
    let create = || a.rnic.create_mw(&a.pd).unwrap();
    let windows: Vec<SoftMw> = (0..100).map(|_| create()).collect();
    client.read(1, memory.remote(0, 5), &[memory.sge(0, 5)]);
    let bind = fenced(&memory, 2, 10);
    a.rnic.bind_mw(&client.qp, &windows[0], &bind).unwrap();
    drop(windows);
    let heir = create();
    let bind = bind_to(&memory, 3, 10);
    a.rnic.bind_mw(&heir_side.qp, &heir, &bind).unwrap();
    assert_eq!(heir_side.sent().status, WcStatus::Success);
    let request = read_exact(&mut raw, 52);
    let mut answer = hex("c142");
    answer.extend(&request[20..32]); // the sink's STag and offset
    answer.extend(b"hello");
    raw.write_all(&fpdu(&answer)).unwrap();
    let ends = statuses(&[client.sent(), client.sent()]);
    assert_eq!(ends, [(1, WcStatus::Success), (2, WcStatus::BindFailed)]);
}

#[test]
fn work_that_waits_for_a_fence_is_flushed_in_order() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let memory = a.memory(100);
    let (_raw, _) = raw_peer(&client);
    let window = a.rnic.create_mw(&a.pd).unwrap();
    client.read(1, memory.remote(0, 5), &[memory.sge(0, 5)]);
    let bind = fenced(&memory, 2, 10);
    a.rnic.bind_mw(&client.qp, &window, &bind).unwrap();
    client.send(3, &[]);
    a.rnic.disconnect(&client.qp, true);
    let flushed = statuses(&client.poll_all(&client.send_cq));
    assert_eq!(flushed, [1, 2, 3].map(|id| (id, WcStatus::Flushed)));
    assert_eq!(a.rnic.pending(&client.qp), (0, 0));
}

#[test]
fn peers_without_crc_get_and_may_send_anything_in_its_field() {
    let b = Node::new("lo 0 crc=off");
    let memory = b.memory(100);
    let request = "4d504120 49442052 65712046 72616d65 10020004 00040004";
    let (server, mut raw, reply) = accepted(&b, request, &memory);
    assert_eq!(
        reply,
        hex("4d504120 49442052 65702046 72616d65 10020004 00100004")
    );
    let hello = hex(HELLO);
    raw.write_all(&hello[..28]).unwrap();
    raw.write_all(&[1, 2, 3, 4]).unwrap();
    assert_eq!(server.received().byte_len, 5);
    server.send(1, &[]);
    let sent = read_exact(&mut raw, 24);
    assert_eq!(
        sent,
        hex("00124143 00000000 00000000 00000001 00000000 00000000")
    );
}
