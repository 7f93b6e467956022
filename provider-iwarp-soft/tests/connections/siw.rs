//! The rules for Linux siw, byte by byte, against a peer of plain TCP in its place.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::*;
use rnic::*;

/// The Request of siw.
const SIW_REQUEST: &str = "4d504120 49442052 65712046 72616d65 10020004 00040004";
/// The Reply of siw to a Request with CRC, peer-to-peer mode and 16 reads either way.
const SIW_REPLY: &str = "4d504120 49442052 65702046 72616d65 50020004 80108004";
/// A Send of no bytes, first of its queue, with CRC.
const SEND: &str = "00124143 00000000 00000000 00000001 00000000 587be8c4";

/// Makes a side connect to a socket of the test. Returns the side, the socket, and the Request that
/// the side has sent.
fn connecting<'n>(node: &'n Node) -> (Side<'n>, TcpStream, Vec<u8>) {
    let client = node.side(10);
    let mut raw = client.connect_to_raw(b"");
    raw.set_nodelay(true).unwrap();
    let request = read_startup(&mut raw);
    (client, raw, request)
}

/// Makes a side connect to a socket that replies as siw, and reads the side's first FPDU.
fn connected<'n>(node: &'n Node) -> (Side<'n>, TcpStream) {
    let (client, mut raw, _) = connecting(node);
    raw.write_all(&hex(SIW_REPLY)).unwrap();
    assert_eq!(read_exact(&mut raw, 20), hex(FIRST_WRITE));
    assert!(matches!(client.event(), Event::Established { .. }));
    (client, raw)
}

/// Returns true if the peer of `raw` receives bytes and does not reset the connection.
fn is_not_reset(raw: &mut TcpStream) -> bool {
    let mut scrap = [0; 64];
    for _ in 0..5 {
        if raw.write_all(&hex(SIW_REPLY)).is_err() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    raw.set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    match raw.peek(&mut scrap) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

#[test]
fn a_reply_that_would_crash_the_kernel_of_siw_is_not_sent() {
    let b = Node::new("lo 0");
    let (_listener, port) = b.listen();
    for (len, is_accepted) in [(252, true), (253, false)] {
        let server = b.side(20 + len as u64 * 10);
        let mut raw = raw_client(port);
        raw.write_all(&hex(SIW_REQUEST)).unwrap();
        let (request, _) = b.recorder.request(7);
        let params = AcceptParams {
            private_data: &vec![7; len],
        };
        let accepted = b.rnic.accept(request, &server.qp, &params);
        assert_eq!(accepted.is_ok(), is_accepted, "{len} bytes");
        if is_accepted {
            assert_eq!(read_startup(&mut raw)[18..20], [1, 0]);
        }
    }
}

#[test]
fn a_cancelled_attempt_ends_by_a_fin_and_not_by_a_reset() {
    let a = Node::new("lo 0");
    let (client, mut raw, _) = connecting(&a);
    a.rnic.disconnect(&client.qp, true);
    assert_eq!(client.event(), Event::Disconnected);
    assert_eq!(raw.read(&mut [0; 1]).unwrap(), 0, "our FIN");
    assert!(is_not_reset(&mut raw));
}

#[test]
fn a_reply_with_a_length_that_has_wrapped_is_answered_by_a_fin_and_not_by_a_reset() {
    let a = Node::new("lo 0");
    let (client, mut raw, _) = connecting(&a);
    // A consumer of siw has passed 252 bytes: siw sends the bytes, and a length that has wrapped.
    let mut reply = hex("4d504120 49442052 65702046 72616d65 50020000 80108004");
    reply.extend([0; 252]);
    raw.write_all(&reply).unwrap();
    assert_eq!(client.event(), Event::NonPeerRejected);
    assert_eq!(raw.read(&mut [0; 1]).unwrap(), 0, "our FIN");
    assert!(is_not_reset(&mut raw));
}

#[test]
fn the_first_frame_is_repeated_while_the_peer_is_silent() {
    let a = Node::new("lo 0");
    let (client, mut raw) = connected(&a);
    for _ in 0..3 {
        assert_eq!(read_exact(&mut raw, 20), hex(FIRST_WRITE));
    }
    raw.set_read_timeout(Some(Duration::from_millis(1500)))
        .unwrap();
    assert!(raw.read(&mut [0; 1]).is_err(), "then no more");
    drop(client);
}

/// Siw may permit only an empty Read as the first frame, and leave that Read unanswered.
#[test]
fn a_first_read_that_is_not_answered_is_followed_by_an_empty_write() {
    let a = Node::new("lo 0 peer_to_peer=read");
    let (client, mut raw, _) = connecting(&a);
    let reply = "4d504120 49442052 65702046 72616d65 50020004 80104004";
    raw.write_all(&hex(reply)).unwrap();
    let first = read_exact(&mut raw, 52);
    assert_eq!(first[..4], hex("002e4141"), "a Read Request");
    assert_eq!(first[32..36], [0; 4], "of no bytes");
    assert_eq!(read_exact(&mut raw, 20), hex(FIRST_WRITE));
    assert!(matches!(client.event(), Event::Established { .. }));
}

#[test]
fn the_first_frame_is_not_repeated_to_a_peer_that_has_sent_a_frame() {
    let a = Node::new("lo 0");
    let (client, mut raw) = connected(&a);
    client.recv(0, &[]);
    raw.write_all(&hex(SEND)).unwrap();
    assert_eq!(client.received().byte_len, 0);
    // The client has repeated the frame if this test was slow.
    raw.set_nonblocking(true).unwrap();
    while raw.read(&mut [0; 20]).is_ok() {}
    raw.set_nonblocking(false).unwrap();
    raw.set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    assert!(raw.read(&mut [0; 1]).is_err());
    drop(client);
}

#[test]
fn our_fin_follows_a_repeated_first_frame() {
    for abrupt in [false, true] {
        let a = Node::new("lo 0");
        let (client, mut raw) = connected(&a);
        a.rnic.disconnect(&client.qp, abrupt);
        let repetitions = read_first_frames_to_end(&mut raw);
        assert!(repetitions > 0, "abrupt: {abrupt}");
        drop(raw);
        assert_eq!(client.event(), Event::Disconnected);
    }
}

#[test]
fn small_reads_are_cut_at_the_pages_of_their_source() {
    let a = Node::new("lo 0");
    let (client, mut raw) = connected(&a);
    let memory = a.memory(100);
    let source = RemoteRange {
        addr: 4096 * 9 - 6,
        rkey: 0x1234,
        len: 16,
    };
    client.read(1, source, &[memory.sge(0, 16)]);
    // Sink TO, length and source TO of both Read Requests.
    let fields = |fpdu: Vec<u8>| {
        let number = |at: usize, len| {
            (fpdu[at..at + len].iter()).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        (number(24, 8), number(32, 4), number(40, 8))
    };
    let (to, from) = (memory.addr(), source.addr);
    let mut next = || fields(read_after_first_frames(&mut raw, 52));
    assert_eq!(next(), (to, 6, from));
    assert_eq!(next(), (to + 6, 10, from + 6));
}

#[test]
fn a_request_has_the_configured_flags() {
    // Flags and revision, and the enhanced words if there are any.
    let rows: [(&str, &[u8]); 6] = [
        ("lo 0", &[0x50, 2, 0, 4, 0x80, 16, 0xc0, 16]),
        ("lo 0 crc=off", &[0x10, 2, 0, 4, 0x80, 16, 0xc0, 16]),
        ("lo 0 peer_to_peer=off", &[0x50, 2, 0, 4, 0, 16, 0, 16]),
        (
            "lo 0 peer_to_peer=read",
            &[0x50, 2, 0, 4, 0x80, 16, 0x40, 16],
        ),
        ("lo 0 peer=siw", &[0x50, 2, 0, 4, 0, 16, 0, 16]),
        ("lo 0 mpa_revision=1", &[0x40, 1, 0, 0]),
    ];
    for (settings, expected) in rows {
        let a = Node::new(settings);
        let (_client, _raw, request) = connecting(&a);
        assert_eq!(request[16..], *expected, "{settings}");
    }
}
