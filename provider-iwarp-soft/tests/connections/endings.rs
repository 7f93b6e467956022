//! The ends of connections, and the completion of posted work.

use std::io::Read;
use std::net::Shutdown;
use std::time::Duration;

use crate::support::*;
use rnic::*;

#[test]
fn an_abrupt_disconnect_flushes_in_order_before_it_returns() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (local, remote) = (a.memory(4 << 20), b.memory(4 << 20));
    for id in 0..5 {
        client.recv(id, &[local.sge(0, 10)]);
    }
    for id in 0..10 {
        server.recv(id, &[remote.sge(0, 100_000)]);
    }
    // The first request needs an answer, so no later request can complete before the disconnect.
    client.read(100, remote.remote(0, 4 << 20), &[local.sge(0, 4 << 20)]);
    for id in 101..110 {
        client.send(id, &[local.sge(0, 100_000)]);
    }
    a.rnic.disconnect(&client.qp, true);
    let sends = client.poll_all(&client.send_cq);
    let ids: Vec<_> = sends.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, (100..110).collect::<Vec<_>>());
    assert!(
        sends
            .iter()
            .all(|c| c.status == WcStatus::Flushed || c.wr_id == 100),
        "{sends:?}"
    );
    assert!(
        sends
            .iter()
            .all(|c| c.notify == Notify::Solicited || c.status == WcStatus::Success)
    );
    let receives = client.poll_all(&client.recv_cq);
    let flushed = [0, 1, 2, 3, 4].map(|id| (id, WcStatus::Flushed));
    assert_eq!(statuses(&receives), flushed);
    assert!(receives.iter().all(|c| c.opcode == WcOpcode::Recv));
    assert_eq!(client.event(), Event::Disconnected);
    assert_eq!(server.event(), Event::Disconnected);
    assert_eq!(a.rnic.pending(&client.qp), (0, 0));
    assert_eq!(b.rnic.pending(&server.qp), (0, 0));
}

#[test]
fn an_idle_queue_pair_is_flushed_until_it_is_reset() {
    let (node, _) = nodes();
    let (side, memory) = (node.side(1), node.memory(64));
    side.recv(1, &[memory.sge(0, 8)]);
    node.rnic.flush_idle(&side.qp).unwrap();
    side.recv(2, &[memory.sge(0, 8)]);
    side.send(3, &[memory.sge(0, 8)]);
    let receives = side.poll_all(&side.recv_cq);
    let flushed = [1, 2].map(|id| (id, WcStatus::Flushed));
    assert_eq!(statuses(&receives), flushed);
    let sends = side.poll_all(&side.send_cq);
    assert_eq!(statuses(&sends), [(3, WcStatus::Flushed)]);
    node.rnic.reset_qp(&side.qp).unwrap();
    side.recv(4, &[memory.sge(0, 8)]);
    assert_eq!(side.poll_all(&side.recv_cq), []);
}

#[test]
fn a_flush_of_an_idle_queue_pair_does_not_end_a_connection() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    a.rnic.flush_idle(&client.qp).unwrap();
    exchange(&client, &server, 1);
}

#[test]
fn a_connected_queue_pair_cannot_be_reset_or_connected_again() {
    let (a, b) = nodes();
    let (client, _server) = connected(&a, &b);
    assert!(matches!(
        a.rnic.reset_qp(&client.qp),
        Err(RnicError::InvalidState(_))
    ));
    let again = a.rnic.connect(&client.qp, &a.connect_params(1, &[]));
    assert!(matches!(again, Err(RnicError::InvalidState(_))));
}

#[test]
fn a_graceful_disconnect_does_not_wait_for_ever_for_an_unanswered_read() {
    let node = Node::new("lo 0 close_timeout_ms=20");
    let client = node.side(10);
    // The peer is alive and does not read, answer or close.
    let (_raw, _) = raw_peer(&client);
    let memory = node.memory(100);
    let read = SendOp::Read(RemoteRange {
        addr: 0,
        len: 100,
        rkey: 0x1234,
    });
    client.post(1, read, &[memory.sge(0, 100)]);
    node.rnic.disconnect(&client.qp, false);
    assert_eq!(client.event(), Event::Disconnected);
    let ended = statuses(&client.poll_all(&client.send_cq));
    assert_eq!(ended, [(1, WcStatus::Flushed)]);
}

/// Regardless of the timeout, bytes are sent for as long as the peer receives them. On a busy
/// machine the peer may not run for the whole timeout. The test is then repeated with a longer
/// timeout.
#[test]
fn a_graceful_disconnect_waits_for_a_peer_that_continues() {
    let timeouts = [20, 500, 10_000];
    assert!(
        timeouts.into_iter().any(disconnect_from_a_slow_peer),
        "the peer receives, and the disconnect ends at its timeout"
    );
}

/// Disconnects from a peer that takes twice the timeout to receive all bytes. Returns true if the
/// peer has received all of them.
fn disconnect_from_a_slow_peer(timeout_ms: u64) -> bool {
    const LEN: usize = 16 << 20;
    const READS: usize = 80;
    let time = Duration::from_millis(2 * timeout_ms);
    let node = Node::new(&format!("lo 0 close_timeout_ms={timeout_ms}"));
    let client = node.side(10);
    let (mut raw, _) = raw_peer(&client);
    let memory = node.memory(LEN);
    client.send(1, &[memory.sge(0, LEN)]);
    node.rnic.disconnect(&client.qp, false);
    let mut some = vec![0; LEN / READS];
    let mut received = 0;
    // An abrupt disconnect resets the connection.
    while let Ok(len @ 1..) = raw.read(&mut some) {
        received += len;
        std::thread::sleep(time.mul_f64(len as f64 / LEN as f64));
    }
    drop(raw);
    let event = client.event();
    let sent = client.poll_all(&client.send_cq)[0].status;
    let is_complete = received > LEN;
    if is_complete {
        assert_eq!((event, sent), (Event::Disconnected, WcStatus::Success));
    }
    is_complete
}

#[test]
fn both_sides_may_disconnect_at_once() {
    for abrupt in [true, false] {
        let (a, b) = nodes();
        let (client, server) = connected(&a, &b);
        std::thread::scope(|scope| {
            scope.spawn(|| a.rnic.disconnect(&client.qp, abrupt));
            scope.spawn(|| b.rnic.disconnect(&server.qp, abrupt));
        });
        assert_eq!(
            (client.event(), server.event()),
            (Event::Disconnected, Event::Disconnected)
        );
        a.rnic.disconnect(&client.qp, abrupt);
        assert!(!a.recorder.has_connection_event(10));
    }
}

#[test]
fn local_memory_that_may_not_be_used_fails_its_own_request() {
    for len in [10, 100_000] {
        let (a, b) = nodes();
        let (client, server) = connected(&a, &b);
        let memory = a.memory(len);
        let wrong = Sge {
            lkey: memory.keys.lkey ^ 1,
            ..memory.sge(0, len)
        };
        client.send(1, &[wrong]);
        client.send(2, &[]);
        assert_eq!(
            (client.event(), server.event()),
            (Event::Broken, Event::Broken)
        );
        let ended = statuses(&client.poll_all(&client.send_cq));
        let expected = [(1, WcStatus::LocalProtection), (2, WcStatus::Flushed)];
        assert_eq!(ended, expected, "{len}");
    }
}

#[test]
fn memory_deregistered_under_a_request_is_not_touched() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (local, remote) = (a.memory(1000), b.memory(1000));
    server.recv(1, &[remote.sge(0, 1000)]);
    local.fill(1);
    let Memory { mr, bytes, .. } = remote;
    drop(mr);
    client.send(1, &[local.sge(0, 1000)]);
    assert_eq!(server.event(), Event::Broken);
    assert_eq!(
        server.poll_all(&server.recv_cq)[0].status,
        WcStatus::LocalProtection
    );
    assert_eq!(bytes.copy(0, 1000), vec![0; 1000]);
}

#[test]
fn a_killed_peer_is_a_clean_disconnect_and_a_reset_one_is_not() {
    for reset in [false, true] {
        let a = Node::new("lo 0");
        let client = a.side(10);
        let (mut raw, _) = raw_peer(&client);
        client.recv(1, &[]);
        if reset {
            let linger = Some(Duration::ZERO);
            socket2::SockRef::from(&raw).set_linger(linger).unwrap();
        } else {
            raw.shutdown(Shutdown::Write).unwrap();
        }
        if reset {
            drop(raw);
            assert_eq!(client.event(), Event::Broken);
        } else {
            // The initiator's first FPDU (RFC 6581), then nothing but its FIN.
            let mut rest = Vec::new();
            raw.read_to_end(&mut rest).unwrap();
            assert_eq!(rest.len(), 20);
            assert_eq!(client.event(), Event::Disconnected);
        }
        assert_eq!(
            client.poll_all(&client.recv_cq)[0].status,
            WcStatus::Flushed
        );
    }
}

#[test]
fn bytes_before_a_reset_are_received_even_if_a_send_detects_the_reset_first() {
    for round in 0..50 {
        let a = Node::new("lo 0");
        let client = a.side(10);
        let (mut raw, _) = raw_peer(&client);
        let memory = a.memory(100);
        client.recv(1, &[memory.sge(0, 100)]);
        std::io::Write::write_all(&mut raw, &hex(HELLO)).unwrap();
        // Our first message is unread, so the close is a reset.
        drop(raw);
        client.send(2, &[memory.sge(0, 100)]);
        assert_eq!(client.event(), Event::Broken);
        let received = &client.poll_all(&client.recv_cq)[0];
        assert_eq!(received.status, WcStatus::Success, "round {round}");
    }
}

#[test]
fn an_abrupt_disconnect_within_a_message_ends_between_frames() {
    let a = Node::new("lo 0");
    let client = a.side(10);
    let (mut raw, _) = raw_peer(&client);
    let memory = a.memory(16 << 20);
    // More than the socket takes: the peer does not read.
    client.send(1, &[memory.sge(0, 16 << 20)]);
    a.rnic.disconnect(&client.qp, true);
    assert_eq!(
        client.poll_all(&client.send_cq)[0].status,
        WcStatus::Flushed
    );
    assert_eq!(client.event(), Event::Disconnected);
    let mut stream = Vec::new();
    raw.read_to_end(&mut stream).unwrap();
    let mut rest = &stream[..];
    while !rest.is_empty() {
        let ulpdu_len = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
        let len = iwarp_proto::wire::fpdu::total_len(ulpdu_len);
        assert!(len <= rest.len(), "the last frame is cut");
        rest = &rest[len..];
    }
    assert!(stream.len() > 60_000);
}

#[test]
fn small_requests_that_the_socket_has_not_taken_are_flushed_in_order() {
    const LEN: usize = 4096;
    let node = Node::new("lo 0");
    let client = node.side(10);
    // The peer does not read: the socket fills, then the staging buffer, then the queues.
    let (_peer, _) = raw_peer(&client);
    let memory = node.memory(LEN);
    let mut ended = Vec::new();
    let mut posted = 0;
    while posted < 1 << 16 {
        let send = SEND;
        if client
            .try_post(posted, send, &[memory.sge(0, LEN)])
            .is_err()
        {
            break;
        }
        posted += 1;
        ended.extend(client.poll_all(&client.send_cq));
    }
    node.rnic.disconnect(&client.qp, true);
    ended.extend(client.poll_all(&client.send_cq));
    let ids: Vec<u64> = ended.iter().map(|c| c.wr_id).collect();
    assert_eq!(ids, (0..posted).collect::<Vec<_>>());
    let first_flushed = ended.partition_point(|c| c.status == WcStatus::Success);
    assert!(first_flushed > 0, "the socket took the first ones");
    let flushed = &ended[first_flushed..];
    assert!(!flushed.is_empty(), "the last ones found no room");
    assert!(flushed.iter().all(|c| c.status == WcStatus::Flushed));
}
