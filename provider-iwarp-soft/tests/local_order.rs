//! The order of operations across the move to shared memory, the resources that endpoints share
//! while they move, and that nothing is read or written after deregistration.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use access_layer::rnic::*;
use provider_iwarp_soft::SoftSrq;
use support::testbed::{alone, mappings, wait_until};
use support::*;

fn pair<'n>(a: &'n Node, b: &'n Node) -> (Side<'n>, Side<'n>) {
    let pair = (a.side(10), b.side(20));
    connect(&pair.0, &pair.1);
    pair
}

fn has_moved(before: usize) {
    wait_until("the connection stays on TCP", || mappings() >= before + 2);
}

#[test]
fn a_send_finds_the_write_before_it_at_its_target() {
    let _alone = alone();
    moved::a_send_finds_the_write_before_it_at_its_target(&moved::local);
}

#[test]
fn a_read_behind_writes_returns_what_they_wrote() {
    let _alone = alone();
    moved::a_read_behind_writes_returns_what_they_wrote(&moved::local);
}

#[test]
fn messages_of_every_kind_keep_their_order_across_the_move() {
    let _alone = alone();
    moved::messages_of_every_kind_keep_their_order_across_the_move(&moved::local);
}

#[test]
fn an_invalidation_by_the_peer_is_done_before_its_message_is_reported() {
    let _alone = alone();
    moved::an_invalidation_by_the_peer_is_done_before_its_message_is_reported(&moved::local);
}

#[test]
fn nothing_is_read_or_written_after_deregistration() {
    let _alone = alone();
    moved::nothing_is_read_or_written_after_deregistration(&moved::local);
}

#[test]
fn memory_that_a_sender_deregistered_is_no_longer_read() {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = pair(&a, &b);
    for _ in 0..100 {
        server.recv(1, &[]);
        client.send(1, &[]);
        server.received();
        client.sent();
    }
    has_moved(0);
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
        let token = 1050 + index * 100;
        let (sends, receives) = (Some(&send_cq), Some(&shared_cq));
        let qp = node.rnic.create_qp(
            &node.pd,
            sends,
            receives,
            Some(&srq),
            &QP_ATTR,
            QpToken(token),
        );
        let server = Side {
            qp: qp.unwrap(),
            send_cq: node.rnic.create_cq(16, CqToken(token + 1)).unwrap(),
            recv_cq: node.rnic.create_cq(16, CqToken(token + 2)).unwrap(),
            node: &node,
            token,
        };
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
    let (client, server) = pair(&a, &b);
    let before = mappings();
    for round in 0..100 {
        server.recv(round, &[]);
        client.send(round, &[]);
        assert_eq!(server.received().wr_id, round);
        assert_eq!(client.sent().status, WcStatus::Success);
    }
    has_moved(before);
}

#[test]
fn both_ends_may_end_at_every_step_of_the_move() {
    let _alone = alone();
    moved::both_ends_may_end_at_every_step_of_the_move(&moved::local);
    wait_until("mappings are left", || mappings() == 0);
}
