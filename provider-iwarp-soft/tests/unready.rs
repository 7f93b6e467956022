//! Messages that are received before their receives are posted, over both carriers.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::time::{Duration, Instant};

use rnic::*;
use support::moved::move_on;
use support::testbed::alone;
use support::*;

/// The settings of an adapter, and true if its connections move to shared memory.
const CARRIERS: [(&str, bool); 3] = [
    ("lo 0 local=off", false),
    ("lo 0 local=off crc=off", false),
    ("lo 0", true),
];

/// Runs `test` with a connected pair on each carrier; the adapters also have these `settings`.
fn on_each_carrier(settings: &str, test: impl Fn(&Side<'_>, &Side<'_>)) {
    let _alone = alone();
    for (carrier, moves) in CARRIERS {
        let params = format!("{carrier} {settings}");
        let (a, b) = (Node::new(&params), Node::new(&params));
        let (client, server) = connected(&a, &b);
        match moves {
            true => move_on(&client, &server),
            false => exchange(&client, &server, 1),
        }
        test(&client, &server);
    }
}

/// Makes progress for a while at both ends, by the caller and by the engine.
fn idle(client: &Side<'_>, server: &Side<'_>) {
    for round in 0..400 {
        if round % 100 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        client.node.rnic.drive();
        server.node.rnic.drive();
    }
}

#[test]
fn a_message_waits_for_its_receive() {
    on_each_carrier("", |client, server| {
        for len in [0, 64, 8192, 200_000] {
            let (from, to) = (client.node.memory(len + 1), server.node.memory(2 * len + 1));
            from.fill(len);
            client.send(1, &[from.sge(0, len)]);
            client.send(2, &[from.sge(0, len)]);
            for wr_id in [1, 2] {
                idle(client, server);
                assert_eq!(server.poll_all(&server.recv_cq), []);
                let at = (wr_id as usize - 1) * len;
                server.recv(wr_id, &[to.sge(at, len)]);
                let done = server.received();
                let expected = (wr_id, WcStatus::Success, len as u32);
                assert_eq!((done.wr_id, done.status, done.byte_len), expected);
                assert!(to.copy(at, len) == patterned(len, len), "{wr_id} of {len}");
            }
            client.expect_sent(1);
            client.expect_sent(2);
        }
    });
}

/// An operation that the target carries out. Within a host, RDMA Writes and Reads do not need the
/// target and may overtake the message.
#[test]
fn later_operations_of_the_target_wait_behind_the_message() {
    on_each_carrier("", |client, server| {
        let (result, to) = (client.node.memory(8), server.node.memory(8));
        (0..8).for_each(|at| to.set(at, 0));
        client.send(1, &[]);
        let add = SendOp::FetchAdd(to.remote(0, 8), 3);
        client.post(2, add, &[result.sge(0, 8)]);
        idle(client, server);
        assert_eq!(to.copy(0, 8), [0; 8]);
        server.recv(1, &[]);
        server.received();
        let deadline = Instant::now() + DEADLINE;
        while to.copy(0, 8) != [3, 0, 0, 0, 0, 0, 0, 0] {
            assert!(Instant::now() < deadline);
            server.node.rnic.drive();
            client.node.rnic.drive();
        }
        exchange(client, server, 100);
    });
}

#[test]
fn the_other_direction_continues() {
    on_each_carrier("", |client, server| {
        client.send(1, &[]);
        idle(client, server);
        for wr_id in 0..200 {
            client.recv(wr_id, &[]);
            server.send(wr_id, &[]);
            assert_eq!(client.received().wr_id, wr_id);
            server.expect_sent(wr_id);
        }
        server.recv(1, &[]);
        assert_eq!(server.received().status, WcStatus::Success);
    });
}

#[test]
fn a_message_that_waits_too_long_ends_its_connection() {
    on_each_carrier("receive_wait_ms=60", |client, server| {
        client.send(1, &[]);
        assert_eq!(server.event(), Event::Broken);
        assert_eq!(client.event(), Event::Broken);
    });
    on_each_carrier("receive_wait_ms=0", |client, server| {
        client.send(1, &[]);
        assert_eq!(server.event(), Event::Broken);
        assert_eq!(client.event(), Event::Broken);
    });
}

#[test]
fn the_end_of_the_peer_ends_the_wait() {
    on_each_carrier("", |client, server| {
        client.send(1, &[]);
        idle(client, server);
        client.node.rnic.disconnect(&client.qp, true);
        assert_eq!(client.event(), Event::Disconnected);
        let ended = server.event();
        assert!(
            matches!(ended, Event::Broken | Event::Disconnected),
            "{ended:?}"
        );
    });
}

#[test]
fn a_disconnect_of_this_end_ends_the_wait() {
    for abrupt in [false, true] {
        on_each_carrier("", |client, server| {
            client.send(1, &[]);
            idle(client, server);
            server.node.rnic.disconnect(&server.qp, abrupt);
            let ended = server.event();
            assert!(
                matches!(ended, Event::Broken | Event::Disconnected),
                "{ended:?}"
            );
            let ended = client.event();
            assert!(
                matches!(ended, Event::Broken | Event::Disconnected),
                "{ended:?}"
            );
        });
    }
}

#[test]
fn messages_wait_for_receives_of_a_shared_queue() {
    let _alone = alone();
    let (a, b) = nodes();
    let srq = b.rnic.create_srq(&b.pd, 16, 1, SrqToken(1)).unwrap();
    let clients = [10, 20].map(|token| a.side(token));
    let servers = [100, 200].map(|token| b.side_with_srq(token, &srq));
    for (client, server) in clients.iter().zip(&servers) {
        connect(client, server);
        client.send(1, &[]);
        client.send(2, &[]);
        idle(client, server);
    }
    for wr_id in 0..4 {
        let wr = RecvWr {
            wr_id,
            sgl: &[],
            signalled: true,
        };
        b.rnic.post_srq_recv(&srq, &wr).unwrap();
    }
    let mut received = [0; 2];
    let deadline = Instant::now() + DEADLINE;
    while received != [2, 2] {
        assert!(Instant::now() < deadline, "{received:?}");
        b.rnic.drive();
        for (count, server) in received.iter_mut().zip(&servers) {
            *count += server.poll_all(&server.recv_cq).len();
        }
    }
}

/// Runs `test` with a connected pair whose requests complete once the peer has executed them, on
/// each carrier.
fn acknowledged_on_each_carrier(test: impl Fn(&Side<'_>, &Side<'_>)) {
    let _alone = alone();
    for (carrier, moves) in CARRIERS {
        let (a, b) = (Node::new(carrier), Node::new(carrier));
        let attr = QpAttr {
            acknowledged: true,
            ..QP_ATTR
        };
        let (client, server) = (a.side_with(10, attr), b.side_with(20, attr));
        connect(&client, &server);
        match moves {
            true => move_on(&client, &server),
            false => exchange(&client, &server, 1),
        }
        test(&client, &server);
    }
}

fn set_waits(side: &Side<'_>, retries: Option<u8>, pause: Duration) {
    let waits = ReceiveWaits { retries, pause };
    side.node.rnic.set_receive_waits(&side.qp, waits).unwrap();
}

#[test]
fn a_message_fails_after_the_retries_that_its_sender_announces() {
    acknowledged_on_each_carrier(|client, server| {
        set_waits(server, None, Duration::from_millis(5));
        set_waits(client, Some(3), Duration::ZERO);
        client.send(1, &[]);
        client.send(2, &[]);
        let failed = client.sent();
        assert_eq!(
            (failed.wr_id, failed.status),
            (1, WcStatus::ReceiverNotReady)
        );
        let flushed = client.sent();
        assert_eq!((flushed.wr_id, flushed.status), (2, WcStatus::Flushed));
    });
}

#[test]
fn a_request_completes_once_the_peer_has_executed_it() {
    acknowledged_on_each_carrier(|client, server| {
        client.send(1, &[]);
        idle(client, server);
        assert_eq!(client.poll_all(&client.send_cq), []);
        // The other direction does not wait for acknowledgements behind the message.
        client.recv(3, &[]);
        server.send(2, &[]);
        assert_eq!(client.received().status, WcStatus::Success);
        server.expect_sent(2);
        server.recv(1, &[]);
        assert_eq!(server.received().status, WcStatus::Success);
        client.expect_sent(1);
    });
}

#[test]
fn a_refused_request_is_the_one_that_fails() {
    acknowledged_on_each_carrier(|client, server| {
        let (from, to) = (client.node.memory(64), server.node.memory(64));
        server.recv(1, &[to.sge(0, 64)]);
        server.recv(2, &[to.sge(0, 8)]);
        for wr_id in 1..=3 {
            client.send(wr_id, &[from.sge(0, 64)]);
        }
        let statuses = [1, 2, 3].map(|_| client.sent().status);
        let expected = [
            WcStatus::Success,
            WcStatus::RemoteInvalidRequest,
            WcStatus::Flushed,
        ];
        assert_eq!(statuses, expected);
    });
}

#[test]
fn a_queue_pair_denies_rights_that_memory_grants() {
    acknowledged_on_each_carrier(|client, server| {
        let granted = Access {
            remote_read: true,
            ..Access::default()
        };
        let (from, to) = (client.node.memory(8), server.node.memory(8));
        let rnic = &server.node.rnic;
        rnic.set_remote_access(&server.qp, granted).unwrap();
        let add = SendOp::FetchAdd(to.remote(0, 8), 3);
        client.post(1, add, &[from.sge(0, 8)]);
        assert_eq!(client.sent().status, WcStatus::RemoteAccess);
        assert_eq!(
            server.node.recorder.asynchronous(),
            AsyncEvent::AccessViolation(QpToken(20))
        );
    });
}
