//! The start-up of connections, and each way in which it fails.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use crate::support::*;
use rnic::*;
use rustix::thread::{UnshareFlags, unshare_unsafe};

const REJECT: &str = "4d504120 49442052 65702046 72616d65 60010002 6e6f";

#[test]
fn private_data_beyond_a_lowered_limit_is_truncated_and_reported_as_truncated() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0 private_data=16"));
    let (_listener, port) = b.listen();
    let client = a.side(10);
    a.rnic
        .connect(&client.qp, &a.connect_params(port, &[5; 100]))
        .unwrap();
    let (len, truncated) = b.recorder.expect(
        "request",
        |upcall| matches!(upcall, Notification::Request { .. }),
        |upcall| match upcall {
            Notification::Request {
                private_data,
                truncated,
                ..
            } => (private_data.len(), truncated),
            _ => unreachable!(),
        },
    );
    assert_eq!((len, truncated), (16, true));
}

#[test]
fn a_connect_before_the_listen_succeeds_after_the_listen() {
    let (a, b) = nodes();
    let (client, server) = (a.side(10), b.side(20));
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    client.connect(port, &[]);
    let (_listener, _) = b
        .rnic
        .listen(&ListenAddress { port }, ListenToken(7))
        .unwrap();
    let (request, _) = b.recorder.request(7);
    server.accept(request, &[]);
    assert!(matches!(client.event(), Event::Established { .. }));
}

#[test]
fn an_ipv6_peer_without_a_source_address_is_unreachable() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    // The engine's thread starts with the first connection, in the network namespace of the calling
    // thread.
    let in_an_empty_network = || {
        // SAFETY: the thread leaves its network namespace, and shares its descriptors as before.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.ok()?;
        let params = ConnectParams {
            remote: "[::1]:9".parse().unwrap(),
            timeout: Some(DEADLINE),
            private_data: &[],
        };
        Some(a.rnic.connect(&client.qp, &params))
    };
    let connect = std::thread::scope(|scope| scope.spawn(in_an_empty_network).join().unwrap());
    match connect {
        // Written directly to standard error: the test harness would capture `eprintln!`, and the
        // message would not be counted.
        None => std::io::stderr()
            .write_all(b"\nNOT RUN: a peer without source: network namespaces are not permitted\n")
            .unwrap(),
        Some(connect) => {
            connect.unwrap();
            assert_eq!(client.event(), Event::Unreachable);
        }
    }
}

#[test]
fn an_attempt_can_be_cancelled() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for abrupt in [true, false] {
        client.connect(port, &[]);
        a.rnic.disconnect(&client.qp, abrupt);
        assert_eq!(client.event(), Event::Disconnected);
        a.rnic.reset_qp(&client.qp).unwrap();
    }
}

#[test]
fn replies_in_pieces_and_with_frames_after_them_are_parsed() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let memory = a.memory(100);
    client.recv(1, &[memory.sge(0, 100)]);
    let mut raw = client.connect_to_raw(&[]);
    raw.set_nodelay(true).unwrap();
    read_startup(&mut raw);
    let bytes = hex(&format!("{REPLY} {HELLO}"));
    for piece in bytes[..30].chunks(7) {
        raw.write_all(piece).unwrap();
        std::thread::yield_now();
    }
    raw.write_all(&bytes[30..]).unwrap();
    assert!(matches!(client.event(), Event::Established { .. }));
    assert_eq!(client.received().byte_len, 5);
    assert_eq!(memory.copy(0, 5), b"hello");
}

#[test]
fn replies_that_we_cannot_meet_are_answered_by_a_terminate_message() {
    // RFC 6581: the first Reply permits only a Send as the first FPDU, which this initiator does
    // not support. The second Reply has an ORD above the IRD of the consumer.
    let rows = [
        ("50020004 c0040004", "20070000"),
        ("50020004 8004804d", "20060000"),
    ];
    for (n, (words, control)) in rows.into_iter().enumerate() {
        for (marker, flags) in [("", "50"), ("00000000", "d0")] {
            let a = Node::new("lo 0");
            let attr = QpAttr {
                read_depth_is_consumers: true,
                ..QP_ATTR
            };
            let client = a.side_with(10 + n as u64, attr);
            let mut raw = client.connect_to_raw(&[]);
            read_startup(&mut raw);
            // Bytes that no thread reads any more must not turn the close into a reset.
            let words = &words[2..];
            let key = "4d504120 49442052 65702046 72616d65";
            raw.write_all(&hex(&format!("{key} {flags}{words} {HELLO}")))
                .unwrap();
            let mut received = Vec::new();
            raw.read_to_end(&mut received).unwrap();
            let start = "00164147 00000000 00000002 00000001 00000000";
            let expected = hex(&format!("{marker} {start} {control}"));
            let len = received.len() - 4;
            assert_eq!(received[..len], expected, "{words} {flags}");
            drop(raw);
            assert_eq!(client.event(), Event::NonPeerRejected);
        }
    }
}

#[test]
fn an_initiator_without_ready_message_fails_the_accept() {
    let b = Node::new("lo 0 mpa_timeout_ms=20");
    let server = b.side(20);
    server.recv(1, &[]);
    let (_listener, port) = b.listen();
    let mut raw = raw_client(port);
    let request = "4d504120 49442052 65712046 72616d65 50020004 8004c004";
    raw.write_all(&hex(request)).unwrap();
    let (request, _) = b.recorder.request(7);
    server.accept(request, &[]);
    read_startup(&mut raw);
    assert_eq!(server.event(), Event::AcceptFailed);
    assert_eq!(server.received().status, WcStatus::Flushed);
    assert_eq!(raw.read(&mut [0; 1]).unwrap(), 0, "the stream is closed");
}

#[test]
fn without_a_limit_a_request_is_received_late_and_in_pieces() {
    let b = Node::new("lo 0 mpa_timeout_ms=0");
    let server = b.side(20);
    let (_listener, port) = b.listen();
    let mut raw = raw_client(port);
    let request = hex(REQUEST_REV1);
    let (first, rest) = request.split_at(10);
    for piece in [first, rest] {
        std::thread::sleep(Duration::from_millis(50));
        raw.write_all(piece).unwrap();
    }
    let (request, _) = b.recorder.request(7);
    server.accept(request, &[]);
    read_startup(&mut raw);
    raw.write_all(&hex(HELLO)).unwrap();
    assert!(matches!(server.event(), Event::Established { .. }));
}

#[test]
fn a_rejection_of_revision_one_is_reported() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let mut raw = client.connect_to_raw(&[]);
    read_startup(&mut raw);
    raw.write_all(&hex(REJECT)).unwrap();
    let private_data = b"no".to_vec();
    assert_eq!(client.event(), Event::PeerRejected { private_data });
}

#[test]
fn a_peer_that_resets_is_asked_again_in_revision_one() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    client.connect(listener.local_addr().unwrap().port(), b"pd");
    let (mut raw, _) = listener.accept().unwrap();
    assert_eq!(read_startup(&mut raw)[17], 2);
    socket2::SockRef::from(&raw)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(raw);
    let (mut raw, _) = listener.accept().unwrap();
    let request = read_startup(&mut raw);
    assert_eq!(
        (request[16], request[17], &request[20..]),
        (0x40, 1, &b"pd"[..])
    );
    raw.write_all(&hex("4d504120 49442052 65702046 72616d65 40010000"))
        .unwrap();
    assert!(matches!(client.event(), Event::Established { .. }));
}

/// All peers connect before the first peer sends its Request. A program that connects many
/// endpoints in a row has this effect.
#[test]
fn more_simultaneous_peers_than_half_open_slots_are_all_served() {
    const COUNT: usize = 40;
    let b = Node::new("lo 0 half_open_max=4 half_open_ms=60000");
    let (_listener, port) = b.listen();
    let mut peers: Vec<_> = (0..COUNT).map(|_| raw_client(port)).collect();
    for peer in &mut peers {
        peer.write_all(&hex(REQUEST_REV1)).unwrap();
    }
    for _ in 0..COUNT {
        drop(b.recorder.request(7));
    }
}

#[test]
fn a_peer_that_has_been_silent_for_long_loses_its_slot() {
    let b = Node::new("lo 0 half_open_max=4 half_open_ms=20 mpa_timeout_ms=3600000");
    let (_listener, port) = b.listen();
    let mut silent: Vec<_> = (0..5).map(|_| raw_client(port)).collect();
    assert_eq!(silent[0].read(&mut [0; 1]).unwrap(), 0);
    silent[1].write_all(&hex(REQUEST_REV1)).unwrap();
    drop(b.recorder.request(7));
}

#[test]
fn a_peer_that_leaves_before_the_accept_or_before_its_first_frame_fails_the_accept() {
    let b = Node::new("lo 0");
    let (_listener, port) = b.listen();
    let request_bytes = hex("4d504120 49442052 65712046 72616d65 50020008 8004c004 44415421");
    for early in [true, false] {
        let server = b.side(20);
        server.recv(1, &[]);
        let mut raw = raw_client(port);
        raw.write_all(&request_bytes).unwrap();
        let (request, private_data) = b.recorder.request(7);
        assert_eq!(private_data, b"DAT!");
        if early {
            drop(raw);
            server.accept(request, &[]);
        } else {
            server.accept(request, &[]);
            read_startup(&mut raw);
            drop(raw);
        }
        assert_eq!(server.event(), Event::AcceptFailed);
        assert_eq!(
            server.poll_all(&server.recv_cq)[0].status,
            WcStatus::Flushed
        );
    }
}

#[test]
fn a_failed_accept_reports_the_receives_that_it_flushes() {
    let b = Node::new("lo 0");
    let (_listener, port) = b.listen();
    let server = b.side(20);
    let mut raw = raw_client(port);
    raw.write_all(&hex(REQUEST_REV1)).unwrap();
    let (request, _) = b.recorder.request(7);
    server.recv(1, &[]);
    assert!(!b.rnic.arm_cq(&server.recv_cq, false));
    let linger = Some(Duration::ZERO);
    socket2::SockRef::from(&raw).set_linger(linger).unwrap();
    drop(raw);
    server.accept(request, &[]);
    assert_eq!(server.event(), Event::AcceptFailed);
    b.recorder.expect(
        "notification of the flushed receive",
        |upcall| matches!(upcall, Notification::CqReady(22)),
        drop,
    );
    assert_eq!(
        server.poll_all(&server.recv_cq)[0].status,
        WcStatus::Flushed
    );
}

#[test]
fn a_refusal_is_reported_although_the_timeout_ends_before_the_retries() {
    let a = Node::new("lo 0");
    // The port was free a moment ago.
    let bound = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = bound.local_addr().unwrap().port();
    drop(bound);
    for (token, timeout_ms) in [(10, 1), (20, 150)] {
        let client = a.side(token);
        let params = ConnectParams {
            timeout: Some(Duration::from_millis(timeout_ms)),
            ..a.connect_params(port, b"")
        };
        a.rnic.connect(&client.qp, &params).unwrap();
        let event = client.event();
        // A timeout that ends before the kernel has answered is a timeout.
        let is_refused = event == Event::NonPeerRejected;
        assert!(
            is_refused || event == Event::TimedOut && timeout_ms == 1,
            "{event:?}"
        );
    }
}
