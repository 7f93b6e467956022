//! Connections between processes of one host move to shared memory, here within one process: the
//! order of operations across the move, the resources that endpoints share while they move, and
//! that nothing is read or written after deregistration.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use access_layer::rnic::*;
use provider_iwarp_soft::SoftSrq;
use support::testbed::{alone, mappings, wait_until};
use support::*;

/// Runs a test over the local carrier, alone. No mapping must be left.
fn run(test: fn()) {
    let _alone = alone();
    test();
    wait_until("mappings are left", || mappings() == 0);
}

moved::moved_tests!(run);

fn has_moved(before: usize) {
    wait_until("the connection stays on TCP", || mappings() >= before + 2);
}

/// Exchanges messages until the connection has moved.
fn move_to_shared_memory(client: &Side<'_>, server: &Side<'_>) {
    let before = mappings();
    moved::move_on(client, server);
    assert!(
        mappings() >= before + 2,
        "it has not moved to shared memory"
    );
}

#[test]
fn a_connection_stays_on_tcp_if_one_end_requires_it() {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0 local=off"), Node::new("lo 0"));
    let (client, server) = connected(&a, &b);
    for _ in 0..200 {
        server.recv(1, &[]);
        client.send(1, &[]);
        server.received();
        client.sent();
    }
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
    move_to_shared_memory(&client, &server);
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
    move_to_shared_memory(&client, &server);
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
        let wr = SendWr {
            wr_id: 1,
            op: SEND,
            sgl: &[from.sge(0, len)],
            completion: true,
            signalled: true,
            fence: false,
            inline: true,
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
    move_to_shared_memory(&client, &server);
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
    let before = mappings();
    for round in 0..100 {
        server.recv(round, &[]);
        client.send(round, &[]);
        assert_eq!(server.received().wr_id, round);
        assert_eq!(client.sent().status, WcStatus::Success);
    }
    has_moved(before);
}
