//! The order of operations across the move to shared memory, what endpoints share while they move,
//! and that nothing is read or written after deregistration.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use access_layer::rnic::*;
use provider_iwarp_soft::{SoftCq, SoftSrq};
use support::ground::{alone, mappings, wait_until};
use support::*;

const SEND: SendOp = SendOp::Send {
    solicited: false,
    invalidate: None,
};
/// Operations of one burst: the move happens somewhere within the first of them.
const BURST: u64 = 64;
const LEN: usize = 4096;

fn pair<'n>(a: &'n Node, b: &'n Node) -> (Side<'n>, Side<'n>) {
    let pair = (a.side(10), b.side(20));
    connect(&pair.0, &pair.1);
    pair
}

fn has_moved(before: usize) {
    wait_until("the connection stays on TCP", || mappings() >= before + 2);
}

fn poll(side: &Side<'_>, cq: &SoftCq) -> Option<Completion> {
    let mut out = [Completion::EMPTY];
    side.node.rnic.drive();
    (side.node.rnic.poll_cq(cq, &mut out) == 1).then(|| out[0])
}

#[test]
fn a_send_finds_the_write_before_it_at_its_target() {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = pair(&a, &b);
    let (from, to) = (a.memory(LEN * 64), b.memory(LEN));
    let before = mappings();
    for burst in 0..40_u64 {
        let (mut posted, mut seen) = (0, 0);
        while seen < BURST {
            // One write is in the memory at a time, so each is awaited before the next.
            if posted == seen {
                let number = (burst * BURST + posted) as u8;
                from.set((posted as usize % 64) * LEN, number);
                from.set((posted as usize % 64 + 1) * LEN - 1, number);
                server.recv(posted, &[]);
                let source = from.sge((posted as usize % 64) * LEN, LEN);
                client.post(posted, SendOp::Write(to.remote(0, LEN)), &[source]);
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
            client.resting(&client.send_cq);
        }
    }
    has_moved(before);
}

#[test]
fn a_read_behind_writes_returns_what_they_wrote() {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = pair(&a, &b);
    let before = mappings();
    for len in [8, LEN, 200_000] {
        let (from, back, to) = (a.memory(len), a.memory(len), b.memory(len));
        for round in 0..60_usize {
            from.fill(round);
            client.post(1, SendOp::Write(to.remote(0, len)), &[from.sge(0, len)]);
            client.post(2, SendOp::Read(to.remote(0, len)), &[back.sge(0, len)]);
            for wr_id in [1, 2] {
                let done = client.sent();
                assert_eq!((done.wr_id, done.status), (wr_id, WcStatus::Success));
            }
            assert!(
                back.copy(0, len) == patterned(round, len),
                "{round} of {len}"
            );
        }
    }
    has_moved(before);
    drop(server);
}

#[test]
fn messages_of_every_kind_keep_their_order_across_the_move() {
    let _alone = alone();
    for start in 0..8 {
        let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
        let (client, server) = pair(&a, &b);
        let (from, to) = (a.memory(1 << 16), b.memory(1 << 16));
        let before = mappings();
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
            for done in client.resting(&client.send_cq) {
                assert_eq!(done.status, WcStatus::Success);
            }
        }
        has_moved(before);
    }
}

#[test]
fn an_invalidation_by_the_peer_is_done_before_its_message_is_reported() {
    let _alone = alone();
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = pair(&a, &b);
    let (from, to) = (a.memory(64), b.memory(64));
    let before = mappings();
    for round in 0..100_u64 {
        let window = b.rnic.create_mw(&b.pd).unwrap();
        let bind = BindMw {
            wr_id: round,
            mr: Some(&to.mr),
            range: to.sge(0, 64),
            access: ALL_RIGHTS,
            zero_based: false,
            qp_only: true,
            completion: true,
            signalled: true,
            fence: false,
        };
        let rkey = b.rnic.bind_mw(&server.qp, &window, &bind).unwrap();
        assert_eq!(server.sent().status, WcStatus::Success);
        let target = RemoteRange {
            addr: to.addr(),
            len: 8,
            rkey,
        };
        server.recv(round, &[]);
        client.post(1, SendOp::Write(target), &[from.sge(0, 8)]);
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
    has_moved(before);
}

#[test]
fn nothing_is_read_or_written_after_deregistration() {
    let _alone = alone();
    for len in [64, 8192, 1 << 20] {
        for is_write in [true, false] {
            let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
            let (client, server) = pair(&a, &b);
            for _ in 0..100 {
                server.recv(1, &[]);
                client.send(1, &[]);
                server.received();
                client.sent();
            }
            has_moved(0);
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
                        client.resting(&client.send_cq);
                    }
                });
                std::thread::sleep(std::time::Duration::from_millis(20));
                drop(theirs);
                // Whatever is written from now on is seen.
                bytes.fill(7);
                std::thread::sleep(std::time::Duration::from_millis(20));
                assert!(bytes.copy(0, len) == patterned(7, len), "{len} {is_write}");
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            assert_eq!(client.event(), Event::Broken);
            assert_eq!(server.event(), Event::Broken);
        }
    }
}

#[test]
fn what_a_sender_deregisters_is_not_read_any_more() {
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

/// One connection of a queue pair to another of the same adapter, and their shared queue.
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
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
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
                assert_eq!(
                    client.event(),
                    Event::Disconnected,
                    "{count} {is_abrupt} {is_client}"
                );
                assert_eq!(
                    server.event(),
                    Event::Disconnected,
                    "{count} {is_abrupt} {is_client}"
                );
            }
        }
    }
    wait_until("mappings are left", || mappings() == 0);
}
