//! Posted requests: their order, their notifications, and limits. The suites that every RNIC and
//! provider must pass cover the data of all kinds and sizes.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::*;
use rnic::*;

const ROOM: usize = 16 << 20;

/// Waits for the next completions of both sides, and drives both at the same time: a message larger
/// than the socket's buffers needs both.
fn both(client: &Side<'_>, server: &Side<'_>) -> (Completion, Completion) {
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| client.sent());
        let received = server.received();
        (sent.join().unwrap(), received)
    })
}

/// OFA's dtest does this: both ends write into the buffers that they write from. The consumers are
/// responsible for the bytes that are received; the connection must not end.
#[test]
fn memory_that_changes_while_it_is_sent_does_not_end_the_connection() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(ROOM), b.memory(ROOM));
    let is_sent = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut id = 0;
            while !is_sent.load(Ordering::Acquire) {
                from.fill(id);
                id += 1;
            }
        });
        for id in 0..8 {
            server.recv(id, &[to.sge(0, ROOM)]);
            client.send(id, &[from.sge(0, ROOM)]);
            let (sent, received) = both(&client, &server);
            assert_eq!(sent.status, WcStatus::Success);
            assert_eq!(
                (received.status, received.byte_len),
                (WcStatus::Success, ROOM as u32)
            );
        }
        is_sent.store(true, Ordering::Release);
    });
}

#[test]
fn many_outstanding_requests_complete_in_order() {
    const COUNT: u64 = 2000;
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(64 * 1024), b.memory(64 * 1024));
    from.fill(1);
    for id in 0..COUNT {
        server.recv(id, &[to.sge(0, 4096)]);
    }
    for id in 0..COUNT {
        match id % 5 {
            0 => client.read(id, to.remote(0, 512), &[from.sge(40_000, 512)]),
            1 => client.write(id, to.remote(8192, 20_000), &[from.sge(0, 20_000)]),
            _ => client.send(id, &[from.sge(0, (id % 4000) as usize)]),
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COUNT {
                client.expect_sent(id);
            }
        });
        for (n, id) in (0..COUNT).filter(|id| id % 5 > 1).enumerate() {
            let done = server.received();
            assert_eq!((done.wr_id, done.byte_len), (n as u64, (id % 4000) as u32));
        }
    });
}

#[test]
fn suppressed_requests_are_not_reported_and_notify_follows_the_flags() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    for id in 0..3 {
        server.recv(id, &[]);
    }
    let rows = [
        (1, false, true, false),
        (2, true, false, true),
        (3, true, true, false),
    ];
    for (wr_id, completion, signalled, solicited) in rows {
        let op = SendOp::Send {
            solicited,
            invalidate: None,
        };
        let wr = SendWr {
            completion,
            signalled,
            ..send_wr(wr_id, op, &[])
        };
        a.rnic.post_send(&client.qp, &wr).unwrap();
    }
    let (second, third) = (client.sent(), client.sent());
    assert_eq!((second.wr_id, second.notify), (2, Notify::Never));
    assert_eq!((third.wr_id, third.notify), (3, Notify::Always));
    let notify: Vec<_> = (0..3).map(|_| server.received().notify).collect();
    assert_eq!(notify, [Notify::Always, Notify::Solicited, Notify::Always]);
    assert_eq!(a.rnic.pending(&client.qp), (0, 0));
}

#[test]
fn immediate_data_are_solicited_if_requested() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (local, remote) = (a.memory(64), b.memory(64));
    for (solicited, notify) in [(true, Notify::Solicited), (false, Notify::Always)] {
        server.recv(7, &[]);
        let op = SendOp::WriteImmediate {
            to: remote.remote(8, 8),
            value: 1,
            solicited,
        };
        client.post(1, op, &[local.sge(0, 8)]);
        assert_eq!(server.received().notify, notify);
        client.sent();
    }
}

#[test]
fn a_send_with_immediate_data_is_one_message() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(60_000), b.memory(60_000));
    for len in [8, 60_000] {
        server.recv(7, &[to.sge(0, 60_000)]);
        let op = SendOp::SendImmediate {
            value: 0x0102_0304,
            solicited: true,
        };
        client.post(1, op, &[from.sge(0, len)]);
        let received = server.received();
        assert_eq!(received.opcode, WcOpcode::RecvSendImmediate);
        assert_eq!(received.immediate, Some(0x0102_0304));
        assert_eq!(received.byte_len as usize, len);
        assert_eq!(received.notify, Notify::Solicited);
        assert_eq!(client.sent().opcode, WcOpcode::Send);
    }
}

#[test]
fn a_window_is_invalidated_locally_and_bound_under_a_chosen_key() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (region, far) = (a.memory(64), b.memory(64));
    let window = a.rnic.create_mw(&a.pd).unwrap();
    let key = a.rnic.mw_key(&window).unwrap();
    let bind = |key| BindMw {
        key: Some(key),
        is_first: true,
        ..bind_to(&region, 1, 64)
    };
    let foreign = a.rnic.bind_mw(&client.qp, &window, &bind(!key));
    assert!(foreign.is_err(), "a key of another window");
    for round in 0..3 {
        let key = key ^ round;
        let bound = a.rnic.bind_mw(&client.qp, &window, &bind(key)).unwrap();
        assert_eq!(bound, key);
        assert_eq!(client.sent().opcode, WcOpcode::BindMw);
        let at = RemoteRange {
            addr: region.addr(),
            len: 64,
            rkey: key,
        };
        server.post(2, SendOp::Read(at), &[far.sge(0, 64)]);
        assert_eq!(server.sent().status, WcStatus::Success);
        client.post(3, SendOp::LocalInvalidate(key), &[]);
        let done = client.sent();
        assert_eq!((done.wr_id, done.opcode), (3, WcOpcode::LocalInvalidate));
        assert_eq!(done.status, WcStatus::Success);
    }
    a.rnic.bind_mw(&client.qp, &window, &bind(key)).unwrap();
    client.sent();
    a.rnic.bind_mw(&client.qp, &window, &bind(key ^ 9)).unwrap();
    assert_eq!(client.sent().status, WcStatus::BindFailed, "it is bound");
}

#[test]
fn a_bind_completes_after_what_was_posted_before_it() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let region = a.memory(100);
    let window = a.rnic.create_mw(&a.pd).unwrap();
    for round in 0..20 {
        server.recv(1, &[]);
        server.recv(2, &[]);
        // A consumer that polls has its second request held back for a moment.
        assert!(client.poll_all(&client.send_cq).is_empty());
        client.send(1, &[]);
        client.send(2, &[]);
        let bind = bind_to(&region, 3, 20);
        a.rnic.bind_mw(&client.qp, &window, &bind).unwrap();
        let ids: Vec<u64> = (0..3).map(|_| client.sent().wr_id).collect();
        assert_eq!(ids, [1, 2, 3], "round {round}");
        assert_eq!((server.received().wr_id, server.received().wr_id), (1, 2));
    }
}

#[test]
fn limits_are_kept() {
    let (a, b) = nodes();
    let attr = QpAttr {
        recv_wr_max: 2,
        send_wr_max: 2,
        send_sge_max: 2,
        recv_sge_max: 1,
        ..QP_ATTR
    };
    let (client, server) = (a.side_with(10, attr), b.side_with(20, attr));
    let memory = a.memory(100);
    let full = |result| matches!(result, Err(RnicError::NoResources(Resource::WorkRequest)));
    let recv = |sgl: &[Sge]| {
        a.rnic.post_recv(
            &client.qp,
            &RecvWr {
                wr_id: 0,
                sgl,
                signalled: true,
            },
        )
    };
    assert!(recv(&[]).is_ok() && recv(&[memory.sge(0, 1)]).is_ok());
    assert!(full(recv(&[])));
    assert!(matches!(
        recv(&[memory.sge(0, 1); 2]),
        Err(RnicError::Length(_))
    ));
    let idle = client.try_post(1, SEND, &[]);
    assert!(matches!(idle, Err(RnicError::InvalidState(_))));
    connect(&client, &server);
    let remote = b.memory(100);
    let write = SendOp::Write(remote.remote(0, 10));
    assert!(matches!(
        client.try_post(1, write, &[memory.sge(0, 11)]),
        Err(RnicError::Length(_))
    ));
    assert!(matches!(
        client.try_post(1, write, &[memory.sge(0, 1); 3]),
        Err(RnicError::Length(_))
    ));
    assert_eq!(a.rnic.pending(&client.qp), (2, 0));
}
