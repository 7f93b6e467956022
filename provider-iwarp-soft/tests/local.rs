//! Connections between processes of one host move to shared memory, here within one process: the
//! order of operations across the move, the resources that endpoints share while they move, and
//! that nothing is read or written after deregistration.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use provider_iwarp_soft::{SoftCq, SoftSrq};
use rnic::*;
use support::moved::{has_moved, move_on};
use support::testbed::{alone, mappings, wait_until};
use support::*;

/// Operations of one burst: the move happens somewhere within the first of them.
const BURST: u64 = 64;
const LEN: usize = 4096;

fn poll(side: &Side<'_>, cq: &SoftCq) -> Option<Completion> {
    let mut out = [Completion::EMPTY];
    side.node.rnic.drive();
    (side.poll(cq, &mut out) == 1).then(|| out[0])
}

#[test]
fn messages_of_all_lengths_are_received_in_order_across_the_move() {
    let _alone = alone();
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(4 << 20), b.memory(4 << 20));
    for round in 0..400_usize {
        let len = match round % 5 {
            0 => 1,
            1 => 64,
            2 => 4096,
            3 => 100_000,
            _ => 3 << 20,
        };
        from.fill(round);
        server.recv(round as u64, &[to.sge(0, len)]);
        client.send(round as u64, &[from.sge(0, len)]);
        let received = server.received();
        assert_eq!(
            (received.wr_id, received.byte_len),
            (round as u64, len as u32)
        );
        assert_eq!(received.status, WcStatus::Success);
        assert_eq!(client.sent().status, WcStatus::Success);
        assert!(to.copy(0, len) == patterned(round, len), "{round}");
    }
    has_moved(&client, &server);
}

#[test]
fn a_violation_ends_a_connection_that_has_moved_with_a_terminate_message() {
    let _alone = alone();
    let params = "lo 0 receive_wait_ms=0";
    let (a, b) = (Node::new(params), Node::new(params));
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
    let from = a.memory(64);
    // No receive is posted.
    client.send(1, &[from.sge(0, 64)]);
    assert_eq!(client.event(), Event::Broken);
    assert_eq!(server.event(), Event::Broken);
}

#[test]
fn a_send_finds_the_write_before_it_at_its_target() {
    let _alone = alone();
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(LEN * 64), b.memory(LEN));
    for burst in 0..40_u64 {
        let (mut posted, mut seen) = (0, 0);
        while seen < BURST {
            // The memory holds one write at a time, so each write is awaited before the next.
            if posted == seen {
                let number = (burst * BURST + posted) as u8;
                from.set((posted as usize % 64) * LEN, number);
                from.set((posted as usize % 64 + 1) * LEN - 1, number);
                server.recv(posted, &[]);
                let source = from.sge((posted as usize % 64) * LEN, LEN);
                client.write(posted, to.remote(0, LEN), &[source]);
                client.post(posted, SEND, &[]);
                posted += 1;
            }
            if let Some(done) = poll(&server, &server.recv_cq) {
                let number = (burst * BURST + done.wr_id) as u8;
                assert_eq!(done.status, WcStatus::Success);
                assert_eq!(to.copy(0, 1), [number], "first byte");
                assert_eq!(to.copy(LEN - 1, 1), [number], "last byte");
                seen += 1;
            }
            client.poll_all(&client.send_cq);
        }
    }
    has_moved(&client, &server);
}

#[test]
fn a_read_after_writes_returns_what_they_wrote_though_the_target_never_calls() {
    let _alone = alone();
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    for len in [8, 64, LEN, 200_000, 1 << 20] {
        let (from, back, to) = (a.memory(len), a.memory(len), b.memory(len));
        for round in 0..60_usize {
            from.fill(round);
            client.write(1, to.remote(0, len), &[from.sge(0, len)]);
            client.read(2, to.remote(0, len), &[back.sge(0, len)]);
            for wr_id in [1, 2] {
                client.expect_sent(wr_id);
            }
            assert!(
                back.copy(0, len) == patterned(round, len),
                "{round} of {len}"
            );
        }
    }
    has_moved(&client, &server);
}

#[test]
fn messages_of_every_kind_keep_their_order_across_the_move() {
    let _alone = alone();
    for start in 0..8 {
        let (a, b) = nodes();
        let (client, server) = connected(&a, &b);
        let (from, to) = (a.memory(1 << 16), b.memory(1 << 16));
        for round in 0..200_u64 {
            server.recv(round, &[to.sge(0, 1 << 16)]);
        }
        let mut sent = 0;
        let mut received = 0;
        while received < 200 {
            if sent < 200 && sent - received < 24 {
                match (sent + start) % 4 {
                    0 => client.post(sent, SEND, &[from.sge(0, 1)]),
                    1 => {
                        let op = SendOp::WriteImmediate {
                            to: to.remote(64, 100),
                            value: sent as u32,
                            solicited: false,
                        };
                        client.post(sent, op, &[from.sge(0, 100)]);
                    }
                    2 => client.post(sent, SEND, &[from.sge(0, 40_000)]),
                    _ => {
                        let add = SendOp::FetchAdd(to.remote(8, 8), 1);
                        client.post(sent, add, &[from.sge(8, 8)]);
                        client.post(sent, SEND, &[]);
                    }
                }
                sent += 1;
            }
            if let Some(done) = poll(&server, &server.recv_cq) {
                assert_eq!(done.wr_id, received);
                assert_eq!(done.status, WcStatus::Success);
                let value = ((received + start) % 4 == 1).then_some(received as u32);
                assert_eq!(done.immediate, value, "{received}");
                received += 1;
            }
            for done in client.poll_all(&client.send_cq) {
                assert_eq!(done.status, WcStatus::Success);
            }
        }
        has_moved(&client, &server);
    }
}

#[test]
fn an_invalidation_by_the_peer_is_done_before_its_message_is_reported() {
    let _alone = alone();
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(64), b.memory(64));
    for round in 0..100_u64 {
        let window = b.rnic.create_mw(&b.pd).unwrap();
        let bind = BindMw {
            qp_only: true,
            ..bind_to(&to, round, 64)
        };
        let rkey = b.rnic.bind_mw(&server.qp, &window, &bind).unwrap();
        assert_eq!(server.sent().status, WcStatus::Success);
        let target = RemoteRange {
            addr: to.addr(),
            len: 8,
            rkey,
        };
        server.recv(round, &[]);
        client.write(1, target, &[from.sge(0, 8)]);
        let op = SendOp::Send {
            solicited: false,
            invalidate: Some(rkey),
        };
        client.post(2, op, &[]);
        let done = server.received();
        assert_eq!((done.wr_id, done.invalidated), (round, Some(rkey)));
        assert_eq!(client.sent().status, WcStatus::Success);
        assert_eq!(client.sent().status, WcStatus::Success);
        drop(window);
    }
    has_moved(&client, &server);
}

#[test]
fn nothing_is_read_or_written_after_deregistration() {
    let _alone = alone();
    for len in [64, 8192, 1 << 20] {
        for is_write in [true, false] {
            let (a, b) = nodes();
            let (client, server) = connected(&a, &b);
            move_on(&client, &server);
            let (ours, theirs) = (a.memory(len), b.memory(len));
            let (target, bytes) = (theirs.remote(0, len), theirs.bytes);
            let stop = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (ours, client, stop) = (&ours, &client, &stop);
                scope.spawn(move || {
                    let mut number = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let op = match is_write {
                            true => SendOp::Write(target),
                            false => SendOp::Read(target),
                        };
                        let _ = client.try_post(number, op, &[ours.sge(0, len)]);
                        number += 1;
                        client.node.rnic.drive();
                        client.poll_all(&client.send_cq);
                    }
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                drop(theirs);
                // Any byte that is written from now on is detected.
                bytes.fill(7);
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(bytes.copy(0, len) == patterned(7, len), "{len} {is_write}");
                // On a busy machine the thread may have posted nothing so far.
                wait_until("the connection outlives the registration", || {
                    a.recorder.has_connection_event(10)
                });
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            assert_eq!(client.event(), Event::Broken);
            assert_eq!(server.event(), Event::Broken);
        }
    }
}

#[test]
fn both_ends_may_end_at_every_step_of_the_move() {
    let _alone = alone();
    let (a, b) = nodes();
    for count in 10..40 {
        for is_abrupt in [true, false] {
            for is_client in [true, false] {
                let token = count * 1000 + u64::from(is_abrupt) * 100 + u64::from(is_client) * 200;
                let (client, server) = (a.side(token), b.side(token + 10));
                connect(&client, &server);
                for round in 0..count {
                    server.recv(round, &[]);
                }
                for round in 0..count {
                    client.send(round, &[]);
                }
                for round in 0..count {
                    assert_eq!(server.received().wr_id, round);
                }
                let ender = if is_client { &client } else { &server };
                ender.node.rnic.disconnect(&ender.qp, is_abrupt);
                for event in [client.event(), server.event()] {
                    let name = format!("{count} {is_abrupt} {is_client}");
                    assert_eq!(event, Event::Disconnected, "{name}");
                }
            }
        }
    }
}

#[test]
fn a_connection_stays_on_tcp_if_one_end_requires_it() {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0 local=off"), Node::new("lo 0"));
    let (client, server) = connected(&a, &b);
    exchange(&client, &server, 200);
    for (node, side, why) in [(&a, &client, WhyTcp::Off), (&b, &server, WhyTcp::PeerOff)] {
        let traffic = node.rnic.traffic(&side.qp).unwrap();
        assert_eq!(traffic.on_tcp[why as usize], 1, "{traffic:?}");
        assert_eq!((traffic.ring, traffic.reference), Default::default());
    }
}

#[test]
fn traffic_is_counted_by_carrier() {
    let _alone = alone();
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let counted = |node: &Node, side: &Side<'_>| node.rnic.traffic(&side.qp).unwrap();
    let start = counted(&a, &client);
    assert_eq!(start.on_tcp[WhyTcp::LittleTraffic as usize], 1, "{start:?}");
    move_on(&client, &server);
    let (from, to) = (a.memory(1 << 20), b.memory(1 << 20));
    let before = [counted(&a, &client), counted(&b, &server)];
    let mut bytes = 0;
    for len in [64, 1 << 20] {
        server.recv(1, &[to.sge(0, len)]);
        client.send(1, &[from.sge(0, len)]);
        server.received();
        client.sent();
        bytes += len as u64;
    }
    // The end of a connection does not change what was counted.
    a.rnic.disconnect(&client.qp, true);
    assert_eq!(server.event(), Event::Disconnected);
    let after = [counted(&a, &client), counted(&b, &server)];
    for traffic in after {
        assert_eq!(traffic.on_tcp, [0; WhyTcp::ALL.len()], "{traffic:?}");
        assert_eq!((traffic.moved_sending, traffic.moved_receiving), (1, 1));
        assert!(traffic.tcp.sent.segments > 0 && traffic.tcp.received.segments > 0);
    }
    let ways = |traffic: Traffic| [traffic.ring, traffic.reference];
    let sum = |flows: [Flow; 2], of: fn(Flow) -> Amount| flows.map(|flow| of(flow).bytes);
    let sent = |traffic| sum(ways(traffic), |flow| flow.sent);
    let received = |traffic| sum(ways(traffic), |flow| flow.received);
    let (sent_before, sent_after) = (sent(before[0]), sent(after[0]));
    assert_eq!(sent_after, received(after[1]));
    assert_eq!(
        sent_after.iter().sum::<u64>() - sent_before.iter().sum::<u64>(),
        bytes
    );
    assert!(sent_after[0] >= sent_before[0] + 64, "{after:?}");
    assert_eq!(after[0].tcp.sent.bytes, before[0].tcp.sent.bytes);
    assert_eq!(after[1].tcp.received.bytes, after[0].tcp.sent.bytes);
}

#[test]
fn the_sender_copies_a_payload_that_is_to_be_sent_inline() {
    let _alone = alone();
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
    let (from, to) = (a.memory(1 << 20), b.memory(1 << 20));
    let sent = || {
        let traffic = a.rnic.traffic(&client.qp).unwrap();
        [traffic.ring, traffic.reference].map(|flow| flow.sent.bytes)
    };
    // The last ones are longer than a record of the ring.
    for (seed, len) in [64, 8193, 65_552, 98_304, 1 << 20].into_iter().enumerate() {
        from.fill(seed);
        let before = sent();
        server.recv(1, &[to.sge(0, len)]);
        let sgl = [from.sge(0, len)];
        let wr = SendWr {
            inline: true,
            ..send_wr(1, SEND, &sgl)
        };
        a.rnic.post_send(&client.qp, &wr).unwrap();
        assert_eq!(server.received().byte_len as usize, len);
        client.sent();
        assert!(to.copy(0, len) == from.copy(0, len), "{len}");
        let after = sent();
        let [ring, reference] = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(ring + reference, len as u64);
        if len <= 65_552 {
            assert_eq!(reference, 0, "{len}");
        }
    }
}

#[test]
fn memory_that_a_sender_deregistered_is_no_longer_read() {
    let _alone = alone();
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
    let len = 1 << 20;
    let (from, to) = (a.memory(len), b.memory(len));
    for round in 0..8 {
        server.recv(round, &[to.sge(0, len)]);
        client.send(round, &[from.sge(0, len)]);
    }
    let bytes = from.bytes;
    drop(from);
    bytes.fill(99);
    for round in 0..8 {
        let received = server.received();
        assert_eq!(received.wr_id, round);
        if received.status == WcStatus::Success {
            assert!(to.copy(0, len).iter().all(|byte| *byte == 0), "{round}");
        }
        let sent = client.sent();
        assert_eq!(sent.wr_id, round);
    }
}

/// A shared receive queue for the queue pairs of an adapter.
fn srq(node: &Node) -> SoftSrq {
    node.rnic
        .create_srq(&node.pd, 4096, 1, SrqToken(5))
        .unwrap()
}

#[test]
fn a_process_connected_to_itself_many_times_shares_queues() {
    let _alone = alone();
    let node = Node::new("lo 0");
    let srq = srq(&node);
    let shared_cq = node.rnic.create_cq(16_384, CqToken(6)).unwrap();
    let send_cq = node.rnic.create_cq(16_384, CqToken(7)).unwrap();
    let mut pairs = Vec::new();
    for index in 0..20 {
        let client = node.side(1000 + index * 100);
        let shared = [&send_cq, &shared_cq];
        let server = node.side_with_cqs(1050 + index * 100, Some(&srq), shared);
        connect(&client, &server);
        pairs.push((client, server));
    }
    let before = mappings();
    for round in 0..60 {
        for _ in &pairs {
            let wr = RecvWr {
                wr_id: round,
                sgl: &[],
                signalled: true,
            };
            node.rnic.post_srq_recv(&srq, &wr).unwrap();
        }
        for (client, _) in &pairs {
            client.send(round, &[]);
        }
        for (client, _) in &pairs {
            assert_eq!(client.next(&shared_cq).status, WcStatus::Success);
            assert_eq!(client.sent().status, WcStatus::Success);
        }
    }
    wait_until("connections stay on TCP", || mappings() >= before + 40);
    drop(pairs);
    wait_until("mappings are left", || mappings() == before);
}

#[test]
fn connections_over_ipv6_move() {
    let _alone = alone();
    let (a, b) = (Node::new("::1 0"), Node::new("::1 0"));
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
}
