//! Connections between processes of one host move to shared memory, here within one process.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use access_layer::rnic::*;
use support::*;

/// Takes a lock that each test holds, because the mappings of the process are counted.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Returns the number of mappings of rings in this process.
fn rings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.matches("memfd:dat-rs-ring").count()
}

/// Exchanges messages until the connection has moved.
fn move_to_shared_memory(client: &Side<'_>, server: &Side<'_>) {
    let before = rings();
    moved::move_on(client, server);
    assert!(rings() >= before + 2, "it has not moved to shared memory");
}

#[test]
fn messages_of_all_lengths_are_received_in_order_across_the_move() {
    let _alone = alone();
    moved::messages_of_all_lengths_are_received_in_order_across_the_move(&moved::local);
}

#[test]
fn one_sided_work_reaches_a_target_that_never_calls() {
    let _alone = alone();
    moved::one_sided_work_reaches_a_target_that_never_calls(&moved::local);
}

#[test]
fn both_ends_report_the_end_of_a_connection_that_has_moved() {
    let _alone = alone();
    moved::both_ends_report_the_end_of_a_connection_that_has_moved(&moved::local);
}

#[test]
fn a_connection_stays_on_tcp_if_one_end_requires_it() {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0 local=off"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
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
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
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
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
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
            op: SendOp::Send {
                solicited: false,
                invalidate: None,
            },
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
fn a_violation_ends_a_connection_that_has_moved_with_a_terminate_message() {
    let _alone = alone();
    moved::a_violation_ends_a_connection_that_has_moved_with_a_terminate_message(&moved::local);
}
