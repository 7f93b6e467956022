//! Long frames without CRC, whose payload is received straight into its target. The peer is a TCP
//! socket of the test, which splits the frames at any position.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::support::*;
use provider_iwarp_soft::SoftMr;
use rnic::*;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};

/// Request of revision 2: no CRC, IRD and ORD 4, no peer-to-peer mode.
const REQUEST: &str = "4d504120 49442052 65712046 72616d65 10020004 00040004";
/// Reply without CRC and without peer-to-peer mode.
const REPLY_PLAIN: &str = "4d504120 49442052 65702046 72616d65 10020004 00040004";
/// The length of a long payload, which is not a multiple of four.
const LONG: usize = 50_003;
/// The length of pad and CRC field after the payload of an untagged segment of that length.
const TRAILER: usize = 1 + 4;
/// Bytes between the pieces of scattered memory.
const PITCH: usize = 16_384;
/// Length field and untagged header.
const HEADER: usize = 2 + 18;

/// Returns a responder that has received a first, short Send, and the socket of its peer.
fn accepted(node: &Node) -> (Side<'_>, TcpStream) {
    let server = node.side(20);
    let first = node.memory(8);
    server.recv(0, &[first.sge(0, 8)]);
    let (mut raw, _) = accept_on(&server, &hex(REQUEST));
    assert!(matches!(server.event(), Event::Established { .. }));
    raw.write_all(&send_frame(1, 0, true, b"first")).unwrap();
    assert_eq!(server.received().byte_len, 5);
    (server, raw)
}

fn frame(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let ulpdu = header.len() + payload.len();
    let mut frame = (ulpdu as u16).to_be_bytes().to_vec();
    frame.extend_from_slice(header);
    frame.extend_from_slice(payload);
    frame.resize(frame.len().next_multiple_of(4), 0);
    frame.extend_from_slice(b"none");
    frame
}

fn send_frame(msn: u32, offset: usize, last: bool, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![if last { 0x41 } else { 0x01 }, 0x43];
    for word in [0, 0, msn, offset as u32] {
        header.extend_from_slice(&u32::to_be_bytes(word));
    }
    frame(&header, payload)
}

fn write_frame(to: RemoteRange, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![0xc1, 0x40];
    header.extend_from_slice(&to.rkey.to_be_bytes());
    header.extend_from_slice(&to.addr.to_be_bytes());
    frame(&header, payload)
}

/// Writes the front of a frame, and the rest after the receiver has taken the front.
fn write_in_two(server: &Side<'_>, raw: &mut TcpStream, frame: &[u8]) {
    let (front, back) = frame.split_at(HEADER + 7);
    raw.write_all(front).unwrap();
    drive_for_a_while(server);
    raw.write_all(back).unwrap();
}

/// Drives the connection for a while, during which nothing completes.
fn drive_for_a_while(server: &Side<'_>) {
    for _ in 0..20 {
        server.node.rnic.drive();
        assert!(server.poll_all(&server.recv_cq).is_empty());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns lists of positions at which a stream of two long frames and a short frame is split.
fn cuts() -> Vec<Vec<usize>> {
    let long = HEADER + LONG + TRAILER;
    let inner = [
        1,
        2,
        15,
        HEADER - 1,
        HEADER,
        HEADER + 1,
        HEADER + 10_000,
        HEADER + LONG - 9,
        HEADER + LONG - 8,
        HEADER + LONG - 1,
        HEADER + LONG,
        long - 5,
        long - 1,
        long,
    ];
    let mut all: Vec<Vec<usize>> = inner.iter().map(|at| vec![*at]).collect();
    all.extend(inner.iter().map(|at| vec![*at, long + *at]));
    all.push((1..long).step_by(7_001).collect());
    all.push(
        (1..HEADER + 40)
            .chain(long - 12..long + HEADER + 40)
            .collect(),
    );
    all.push(Vec::new());
    all
}

#[test]
fn long_messages_are_received_wherever_their_frames_are_split() {
    let node = Node::new("lo 0 crc=off");
    let (server, mut raw) = accepted(&node);
    let memory = node.memory(3 * LONG);
    let mut msn = 2;
    for cuts in cuts() {
        let seed = msn as usize;
        for part in 0..3 {
            server.recv(part as u64, &[memory.sge(part * LONG, LONG)]);
        }
        memory.fill(0);
        let bytes = patterned(seed, 2 * LONG);
        let mut stream = send_frame(msn, 0, true, &bytes[..LONG]);
        stream.extend(send_frame(msn + 1, 0, true, &bytes[LONG..]));
        stream.extend(send_frame(msn + 2, 0, true, b"short"));
        msn += 3;
        let mut from = 0;
        for to in cuts.iter().copied().chain([stream.len()]) {
            raw.write_all(&stream[from..to]).unwrap();
            from = to;
            for _ in 0..if cuts.len() < 20 { 3 } else { 1 } {
                std::thread::sleep(Duration::from_micros(300));
                node.rnic.drive();
            }
        }
        let lens = [0, 1, 2].map(|_| server.received().byte_len as usize);
        assert_eq!(lens, [LONG, LONG, 5], "{cuts:?}");
        assert!(memory.copy(0, 2 * LONG) == bytes, "{cuts:?}");
        assert_eq!(memory.copy(2 * LONG, 5), b"short");
    }
}

#[test]
fn a_message_of_several_frames_fills_scattered_memory() {
    let node = Node::new("lo 0 crc=off");
    let (server, mut raw) = accepted(&node);
    let memory = node.memory(8 * PITCH);
    // More pieces than one system call takes, in descending order.
    for (msn, len, frames) in [(2, 6_000, &[48_000][..]), (3, 12_345, &[40_000, 1, 58_759])] {
        let offsets = (0..8).rev().map(|i| i * PITCH);
        let sgl: Vec<Sge> = offsets.clone().map(|at| memory.sge(at, len)).collect();
        server.recv(1, &sgl);
        let bytes = patterned(len, 8 * len);
        let mut at = 0;
        for frame_len in frames {
            let part = &bytes[at..at + frame_len];
            at += frame_len;
            let frame = send_frame(msn, at - frame_len, at == bytes.len(), part);
            match *frame_len {
                1 => raw.write_all(&frame).unwrap(),
                _ => write_in_two(&server, &mut raw, &frame),
            }
        }
        let received = server.received();
        assert_eq!(received.byte_len as usize, bytes.len());
        for (piece, at) in bytes.chunks(len).zip(offsets) {
            assert!(memory.copy(at, len) == piece, "{at}");
        }
    }
}

#[test]
fn writes_are_stored_in_their_range_and_nowhere_else() {
    let node = Node::new("lo 0 crc=off");
    let (server, mut raw) = accepted(&node);
    let memory = node.memory(LONG + 200);
    server.recv(1, &[]);
    let bytes = patterned(9, LONG);
    let frame = write_frame(memory.remote(100, LONG), &bytes);
    write_in_two(&server, &mut raw, &frame);
    raw.write_all(&send_frame(2, 0, true, b"")).unwrap();
    assert_eq!(server.received().byte_len, 0);
    assert!(memory.copy(100, LONG) == bytes);
    assert_eq!(memory.copy(0, 100), [0; 100]);
    assert_eq!(memory.copy(100 + LONG, 100), [0; 100]);
}

/// Reads the Terminate message that the peer receives. Returns its layer, type and code.
fn terminate(raw: &mut TcpStream) -> [u8; 3] {
    let frame = read_exact(raw, 2 + 18 + 4);
    assert_eq!(frame[2..4], [0x41, 0x47], "{frame:02x?}");
    [frame[20] >> 4, frame[20] & 15, frame[21]]
}

#[test]
fn refused_segments_place_no_byte() {
    let long = patterned(1, LONG);
    for (case, reason) in [
        ("an unknown STag", [1, 1, 0]),
        ("a range that ends too late", [1, 1, 1]),
        ("a message that is too long", [1, 2, 5]),
        ("a message out of order", [1, 2, 3]),
        ("a message that does not begin at offset 0", [1, 2, 4]),
    ] {
        let node = Node::new("lo 0 crc=off");
        let (server, mut raw) = accepted(&node);
        let memory = node.memory(LONG);
        server.recv(1, &[memory.sge(0, LONG - 1)]);
        let to = memory.remote(0, LONG);
        let frame = match case {
            "an unknown STag" => write_frame(RemoteRange { rkey: 0, ..to }, &long),
            "a range that ends too late" => write_frame(memory.remote(1, LONG), &long),
            "a message that is too long" => send_frame(2, 0, true, &long),
            "a message out of order" => send_frame(3, 0, true, &long),
            _ => send_frame(2, 4, true, &long),
        };
        let (front, back) = frame.split_at(20_000);
        raw.write_all(front).unwrap();
        drive_for_a_while(&server);
        assert!(memory.copy(0, LONG) == vec![0; LONG], "{case}");
        raw.write_all(back).unwrap();
        let failed = server.received();
        let expected = match case {
            "a message that is too long" => WcStatus::LocalLength,
            _ => WcStatus::Flushed,
        };
        assert_eq!((failed.wr_id, failed.status), (1, expected), "{case}");
        assert_eq!(terminate(&mut raw), reason, "{case}");
        assert!(memory.copy(0, LONG) == vec![0; LONG], "{case}");
    }
}

#[test]
fn memory_that_is_deregistered_during_a_write_receives_no_more_bytes() {
    let node = Node::new("lo 0 crc=off");
    let (server, mut raw) = accepted(&node);
    server.recv(1, &[]);
    let memory = node.memory(LONG);
    let request = RegisterMr {
        addr: memory.addr(),
        len: LONG as u64,
        access: ALL_RIGHTS,
        iova: None,
    };
    let mr = node.rnic.register_mr(&node.pd, &request).unwrap();
    let to = RemoteRange {
        rkey: node.rnic.mr_keys(&mr).rkey,
        ..memory.remote(0, LONG)
    };
    let frame = write_frame(to, &patterned(3, LONG));
    raw.write_all(&frame[..20_000]).unwrap();
    drive_for_a_while(&server);
    let so_far = memory.copy(0, LONG);
    assert!(so_far[..10_000] == patterned(3, 10_000));
    drop(mr);
    raw.write_all(&frame[20_000..]).unwrap();
    assert_eq!(server.received().status, WcStatus::Flushed);
    assert_eq!(terminate(&mut raw), [1, 1, 0]);
    assert!(memory.copy(0, LONG) == so_far);
}

#[test]
fn a_peer_that_disconnects_within_a_payload_leaves_a_broken_connection() {
    let node = Node::new("lo 0 crc=off");
    let (server, mut raw) = accepted(&node);
    let memory = node.memory(LONG);
    server.recv(1, &[memory.sge(0, LONG)]);
    server.recv(2, &[]);
    let frame = send_frame(2, 0, true, &patterned(3, LONG));
    raw.write_all(&frame[..30_000]).unwrap();
    drive_for_a_while(&server);
    drop(raw);
    for id in [1, 2] {
        let flushed = server.received();
        assert_eq!((flushed.wr_id, flushed.status), (id, WcStatus::Flushed));
    }
    assert!(matches!(server.event(), Event::Broken));
}

#[test]
fn a_peer_may_disconnect_at_every_byte_of_its_messages() {
    const LEN: usize = 10;
    let frame = send_frame(2, 0, true, &[7; LEN]).len();
    for count in 0..=2 * frame {
        let node = Node::new("lo 0 crc=off");
        let (server, mut raw) = accepted(&node);
        let memory = node.memory(LEN);
        for id in 0..3 {
            server.recv(id, &[memory.sge(0, LEN)]);
        }
        let frames = [2, 3].map(|msn| send_frame(msn, 0, true, &[7; LEN]));
        raw.write_all(&frames.concat()[..count]).unwrap();
        raw.shutdown(Shutdown::Write).unwrap();
        for id in 0..3 {
            let is_complete = (id as usize) < count / frame;
            let received = server.received();
            let status = match is_complete {
                true => WcStatus::Success,
                false => WcStatus::Flushed,
            };
            assert_eq!((received.wr_id, received.status), (id, status), "{count}");
        }
        let event = match count % frame {
            0 => Event::Disconnected,
            _ => Event::Broken,
        };
        assert_eq!(server.event(), event, "{count}");
    }
}

/// Registered memory with a mapping of its own.
fn mapped(node: &Node) -> (SoftMr, Sge) {
    let len = LONG.next_multiple_of(4_096);
    // SAFETY: a new mapping, to which no other pointer exists.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            len,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    }
    .unwrap();
    let request = RegisterMr {
        addr: start.expose_provenance() as u64,
        len: len as u64,
        access: ALL_RIGHTS,
        iova: None,
    };
    let mr = node.rnic.register_mr(&node.pd, &request).unwrap();
    let sge = Sge {
        addr: request.addr,
        len: len as u32,
        lkey: node.rnic.mr_keys(&mr).lkey,
    };
    (mr, sge)
}

/// Removes all access to a mapping, with the effect of an unmap. The test does not unmap the range,
/// because another thread could map it again, and the RNIC would then write to that mapping.
fn protect(of: &Sge) {
    let start = std::ptr::with_exposed_provenance_mut(of.addr as usize);
    // SAFETY: the range is a complete mapping of this test, which the test no longer accesses.
    unsafe { mprotect(start, of.len as usize, MprotectFlags::empty()) }.unwrap();
}

#[test]
fn memory_that_the_consumer_unmapped_ends_the_connection_and_not_the_process() {
    let node = Node::new("lo 0 crc=off");
    let (server, mut raw) = accepted(&node);
    let (_mr, sge) = mapped(&node);
    server.recv(1, &[sge]);
    let frame = send_frame(2, 0, true, &patterned(3, LONG));
    raw.write_all(&frame[..10_000]).unwrap();
    drive_for_a_while(&server);
    protect(&sge);
    raw.write_all(&frame[10_000..]).unwrap();
    let failed = server.received();
    assert_eq!(
        (failed.wr_id, failed.status),
        (1, WcStatus::LocalProtection)
    );
    let mut answer = Vec::new();
    raw.read_to_end(&mut answer).unwrap();
    assert_eq!(answer[2..4], [0x41, 0x47], "a Terminate message");
}

#[test]
fn a_read_whose_sink_the_consumer_unmapped_fails_with_local_protection() {
    let node = Node::new("lo 0 crc=off peer_to_peer=off");
    let client = node.side(10);
    let mut raw = client.connect_to_raw(b"");
    read_startup(&mut raw);
    raw.write_all(&hex(REPLY_PLAIN)).unwrap();
    assert!(matches!(client.event(), Event::Established { .. }));
    let (_mr, sge) = mapped(&node);
    let from = RemoteRange {
        len: LONG as u32,
        ..RemoteRange::default()
    };
    for (id, len) in [(1, 4), (2, LONG)] {
        let sink = Sge {
            len: len as u32,
            ..sge
        };
        client.read(id, from, &[sink]);
        client.node.rnic.drive();
        // Length field, header, Read Request, CRC field.
        let request = read_after_first_frames(&mut raw, 2 + 18 + 28 + 4);
        let mut header = vec![0xc1, 0x42];
        header.extend_from_slice(&request[20..32]);
        let response = frame(&header, &patterned(1, len));
        if len == LONG {
            raw.write_all(&response[..10_000]).unwrap();
            for _ in 0..20 {
                node.rnic.drive();
                std::thread::sleep(Duration::from_millis(1));
            }
            protect(&sge);
            raw.write_all(&response[10_000..]).unwrap();
            assert_eq!(client.sent().status, WcStatus::LocalProtection);
        } else {
            raw.write_all(&response).unwrap();
            assert_eq!(client.sent().status, WcStatus::Success);
        }
    }
}
