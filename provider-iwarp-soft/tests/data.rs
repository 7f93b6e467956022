//! Messages of all kinds and sizes over a connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use access_layer::rnic::*;
use support::*;

const SIZES: [usize; 16] = [
    0,
    1,
    3,
    4,
    64,
    1000,
    4096,
    16_384,
    16_385,
    32_768,
    32_769,
    65_536,
    100_000,
    1 << 20,
    (1 << 20) + 7,
    16 << 20,
];
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

fn send_every_size(params: &str) {
    let (a, b) = (Node::new(params), Node::new(params));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (from, to) = (a.memory(ROOM), b.memory(ROOM));
    for (id, len) in SIZES.into_iter().enumerate() {
        from.fill(id);
        server.recv(id as u64, &[to.sge(0, ROOM)]);
        client.send(id as u64, &[from.sge(0, len)]);
        let (sent, received) = both(&client, &server);
        assert_eq!((sent.wr_id, sent.status), (id as u64, WcStatus::Success));
        assert_eq!((sent.opcode, sent.byte_len), (WcOpcode::Send, len as u32));
        assert_eq!((received.wr_id, received.byte_len), (id as u64, len as u32));
        assert_eq!(
            (received.status, received.opcode),
            (WcStatus::Success, WcOpcode::Recv)
        );
        assert_eq!((sent.qp, received.qp), (QpToken(10), QpToken(20)));
        assert!(to.copy(0, len) == patterned(id, len), "{len}");
    }
    assert_eq!(
        (a.rnic.pending(&client.qp), b.rnic.pending(&server.qp)),
        ((0, 0), (0, 0))
    );
}

#[test]
fn sends_of_every_size_are_received() {
    send_every_size("lo 0");
}

#[test]
fn sends_are_received_without_crc_and_in_frames_of_one_segment() {
    send_every_size("lo 0 crc=off");
    send_every_size("lo 0 fpdu_max=1442");
}

/// OFA's dtest does this: both ends write into the buffers that they write from. The consumers are
/// responsible for the bytes that are received; the connection must not end.
#[test]
fn memory_that_changes_while_it_is_sent_does_not_end_the_connection() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
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

fn write_every_size(params: &str) {
    let (a, b) = (Node::new(params), Node::new(params));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (from, to) = (a.memory(ROOM), b.memory(ROOM));
    for (id, len) in SIZES.into_iter().enumerate() {
        from.fill(id * 3);
        server.recv(id as u64, &[]);
        client.post(1, SendOp::Write(to.remote(0, len)), &[from.sge(0, len)]);
        client.send(2, &[]);
        let (sent, received) = both(&client, &server);
        assert_eq!((sent.wr_id, sent.opcode), (1, WcOpcode::RdmaWrite));
        assert_eq!(
            (client.sent().wr_id, received.status),
            (2, WcStatus::Success)
        );
        assert!(to.copy(0, len) == patterned(id * 3, len), "{len}");
    }
}

#[test]
fn writes_of_every_size_are_complete_when_the_next_send_is_received() {
    write_every_size("lo 0");
    write_every_size("lo 0 crc=off");
}

fn read_every_size(params: &str) {
    let (a, b) = (Node::new(params), Node::new(params));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (to, from) = (a.memory(ROOM), b.memory(ROOM));
    for (id, len) in SIZES.into_iter().enumerate() {
        from.fill(id * 7);
        client.post(
            id as u64,
            SendOp::Read(from.remote(0, len)),
            &[to.sge(0, len)],
        );
        // The server's program does nothing: its engine answers.
        let done = client.sent();
        assert_eq!(
            (done.wr_id, done.status),
            (id as u64, WcStatus::Success),
            "{len}"
        );
        assert_eq!(
            (done.opcode, done.byte_len),
            (WcOpcode::RdmaRead, len as u32)
        );
        assert!(to.copy(0, len) == patterned(id * 7, len), "{len}");
    }
}

#[test]
fn reads_of_every_size_fetch_the_current_data() {
    read_every_size("lo 0");
    read_every_size("lo 0 crc=off");
}

#[test]
fn segment_lists_are_gathered_and_scattered() {
    for params in ["lo 0", "lo 0 crc=off"] {
        gather_and_scatter(params);
    }
}

fn gather_and_scatter(params: &str) {
    let (a, b) = (Node::new(params), Node::new(params));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (from, to) = (a.memory(200_000), b.memory(200_000));
    from.fill(5);
    let lists: [&[usize]; 4] = [&[1, 2, 3], &[0, 10, 0, 5], &[40_000, 1, 40_000], &[9; 8]];
    for lengths in lists {
        let total: usize = lengths.iter().sum();
        let mut at = 0;
        let gather: Vec<Sge> = lengths
            .iter()
            .map(|len| {
                at += len;
                from.sge(at - len, *len)
            })
            .collect();
        let scatter = [
            to.sge(0, 7),
            to.sge(7, 0),
            to.sge(7, 33_000),
            to.sge(33_007, 100_000),
        ];
        server.recv(1, &scatter);
        client.send(2, &gather);
        assert_eq!(server.received().byte_len as usize, total);
        client.sent();
        assert!(to.copy(0, total) == patterned(5, total));

        let mut back = gather.clone();
        back.reverse();
        client.post(3, SendOp::Read(to.remote(0, total)), &back);
        assert_eq!(client.sent().status, WcStatus::Success);
        let first = back[0].len as usize;
        let at = (back[0].addr - from.addr()) as usize;
        assert!(from.copy(at, first) == patterned(5, first));
        from.fill(5);
    }
}

#[test]
fn many_outstanding_requests_complete_in_order() {
    const COUNT: u64 = 2000;
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (from, to) = (a.memory(64 * 1024), b.memory(64 * 1024));
    from.fill(1);
    for id in 0..COUNT {
        server.recv(id, &[to.sge(0, 4096)]);
    }
    for id in 0..COUNT {
        match id % 5 {
            0 => client.post(
                id,
                SendOp::Read(to.remote(0, 512)),
                &[from.sge(40_000, 512)],
            ),
            1 => client.post(
                id,
                SendOp::Write(to.remote(8192, 20_000)),
                &[from.sge(0, 20_000)],
            ),
            _ => client.send(id, &[from.sge(0, (id % 4000) as usize)]),
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for id in 0..COUNT {
                let done = client.sent();
                assert_eq!((done.wr_id, done.status), (id, WcStatus::Success));
            }
        });
        for (n, id) in (0..COUNT).filter(|id| id % 5 > 1).enumerate() {
            let done = server.received();
            assert_eq!((done.wr_id, done.byte_len), (n as u64, (id % 4000) as u32));
        }
    });
}

#[test]
fn both_directions_carry_bulk_at_the_same_time() {
    const COUNT: u64 = 64;
    const LEN: usize = 300_000;
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (one, other) = (a.side(10), b.side(20));
    connect(&one, &other);
    other.recv(0, &[]);
    one.send(0, &[]);
    other.received();
    one.sent();
    // Receives must be posted before the peer sends, so each side posts before the other starts.
    let ready = std::sync::Barrier::new(2);
    let ready = &ready;
    std::thread::scope(|scope| {
        for side in [&one, &other] {
            scope.spawn(move || {
                let spare = side.node.memory(LEN);
                for id in 0..COUNT {
                    side.recv(1000 + id, &[spare.sge(0, LEN)]);
                }
                ready.wait();
                let from = side.node.memory(LEN);
                from.fill(9);
                for id in 0..COUNT {
                    side.send(id, &[from.sge(0, LEN)]);
                }
                for id in 0..COUNT {
                    assert_eq!(side.received().wr_id, 1000 + id);
                    assert_eq!(side.sent().wr_id, id);
                }
                assert!(spare.copy(0, LEN) == patterned(9, LEN));
            });
        }
    });
}

#[test]
fn suppressed_requests_are_not_reported_and_notify_follows_the_flags() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let wr = |wr_id, completion, signalled, solicited| SendWr {
        wr_id,
        op: SendOp::Send {
            solicited,
            invalidate: None,
        },
        sgl: &[],
        completion,
        signalled,
        fence: false,
        inline: false,
    };
    for id in 0..3 {
        server.recv(id, &[]);
    }
    a.rnic
        .post_send(&client.qp, &wr(1, false, true, false))
        .unwrap();
    a.rnic
        .post_send(&client.qp, &wr(2, true, false, true))
        .unwrap();
    a.rnic
        .post_send(&client.qp, &wr(3, true, true, false))
        .unwrap();
    let (second, third) = (client.sent(), client.sent());
    assert_eq!((second.wr_id, second.notify), (2, Notify::Never));
    assert_eq!((third.wr_id, third.notify), (3, Notify::Always));
    let notify: Vec<_> = (0..3).map(|_| server.received().notify).collect();
    assert_eq!(notify, [Notify::Always, Notify::Solicited, Notify::Always]);
    assert_eq!(a.rnic.pending(&client.qp), (0, 0));
}

#[test]
fn a_fenced_write_waits_for_the_read_before_it() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (local, remote) = (a.memory(1 << 20), b.memory(1 << 20));
    for round in 0..20 {
        remote.fill(round);
        client.post(
            1,
            SendOp::Read(remote.remote(0, 1 << 20)),
            &[local.sge(0, 1 << 20)],
        );
        let fenced = SendWr {
            wr_id: 2,
            op: SendOp::Write(remote.remote(0, 1 << 20)),
            sgl: &[local.sge(0, 1 << 20)],
            completion: true,
            signalled: true,
            fence: true,
            inline: false,
        };
        a.rnic.post_send(&client.qp, &fenced).unwrap();
        assert_eq!(client.sent().wr_id, 1);
        assert_eq!(client.sent().wr_id, 2);
        assert!(local.copy(0, 1 << 20) == patterned(round, 1 << 20));
        // The Write is placed once a Read after it is answered.
        client.post(3, SendOp::Read(remote.remote(0, 1)), &[local.sge(0, 1)]);
        assert_eq!(client.sent().status, WcStatus::Success);
        assert!(remote.copy(0, 1 << 20) == patterned(round, 1 << 20));
    }
}

#[test]
fn immediate_data_are_solicited_if_requested() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
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
fn immediate_data_and_atomics_follow_rfc_7306() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let (local, remote) = (a.memory(64), b.memory(64));
    local.fill(3);
    server.recv(7, &[]);
    client.post(
        1,
        SendOp::WriteImmediate {
            to: remote.remote(8, 8),
            value: 0xCAFE_F00D,
            solicited: false,
        },
        &[local.sge(0, 8)],
    );
    let received = server.received();
    assert_eq!(
        (received.wr_id, received.opcode),
        (7, WcOpcode::RecvImmediate)
    );
    assert_eq!(received.immediate, Some(0xCAFE_F00D));
    assert_eq!(received.byte_len, 8, "the length of the Write before it");
    assert_eq!(remote.copy(8, 8), patterned(3, 8));
    assert_eq!(client.sent().opcode, WcOpcode::RdmaWriteImmediate);

    let word = |memory: &Memory, at| u64::from_ne_bytes(memory.copy(at, 8).try_into().unwrap());
    let before = word(&remote, 16);
    client.post(
        2,
        SendOp::FetchAdd(remote.remote(16, 8), 5),
        &[local.sge(32, 8)],
    );
    let done = client.sent();
    assert_eq!(
        (done.opcode, done.status),
        (WcOpcode::FetchAdd, WcStatus::Success)
    );
    assert_eq!(
        (word(&local, 32), word(&remote, 16)),
        (before, before.wrapping_add(5))
    );

    let swap = |compare| SendOp::CompareSwap {
        remote: remote.remote(16, 8),
        compare,
        swap: 77,
    };
    client.post(3, swap(1), &[local.sge(32, 8)]);
    assert_eq!(client.sent().status, WcStatus::Success);
    assert_eq!(
        (word(&local, 32), word(&remote, 16)),
        (before + 5, before + 5)
    );
    client.post(4, swap(before + 5), &[local.sge(32, 8)]);
    assert_eq!(client.sent().opcode, WcOpcode::CompareSwap);
    assert_eq!((word(&local, 32), word(&remote, 16)), (before + 5, 77));
}

#[test]
fn windows_are_bound_used_invalidated_and_rebound() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    server.recv(0, &[]);
    client.send(0, &[]);
    server.received();
    client.sent();

    let (from, region) = (a.memory(100), b.memory(100));
    from.fill(1);
    let window = b.rnic.create_mw(&b.pd).unwrap();
    let bind = |wr_id| BindMw {
        wr_id,
        mr: Some(&region.mr),
        range: region.sge(10, 20),
        access: Access {
            remote_write: true,
            ..Access::default()
        },
        zero_based: true,
        qp_only: false,
        completion: true,
        signalled: true,
        fence: false,
    };
    let first = b.rnic.bind_mw(&server.qp, &window, &bind(5)).unwrap();
    let done = server.sent();
    assert_eq!(
        (done.wr_id, done.opcode, done.status),
        (5, WcOpcode::BindMw, WcStatus::Success)
    );
    let to = |rkey| {
        SendOp::Write(RemoteRange {
            addr: 0,
            len: 20,
            rkey,
        })
    };
    client.post(1, to(first), &[from.sge(0, 20)]);
    server.recv(1, &[]);
    let invalidate = SendOp::Send {
        solicited: false,
        invalidate: Some(first),
    };
    client.post(2, invalidate, &[]);
    let done = server.received();
    assert_eq!(
        (done.opcode, done.invalidated),
        (WcOpcode::RecvInvalidate, Some(first))
    );
    assert_eq!(region.copy(10, 20), patterned(1, 20));
    assert_eq!(region.copy(30, 1), [0]);

    let second = b.rnic.bind_mw(&server.qp, &window, &bind(6)).unwrap();
    assert_ne!(first, second);
    assert_eq!(server.sent().wr_id, 6);
    client.post(3, to(second), &[from.sge(20, 20)]);
    server.recv(2, &[]);
    client.send(4, &[]);
    assert_eq!(server.received().status, WcStatus::Success);
    assert_eq!(region.copy(10, 20), patterned(21, 20));
    client.post(5, to(first), &[from.sge(0, 20)]);
    assert_eq!(server.event(), Event::Broken);
    assert_eq!(client.event(), Event::Broken);
}

#[test]
fn a_bind_completes_after_what_was_posted_before_it() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let region = a.memory(100);
    let window = a.rnic.create_mw(&a.pd).unwrap();
    for round in 0..20 {
        server.recv(1, &[]);
        server.recv(2, &[]);
        // A consumer that polls has its second request held back for a moment.
        assert!(client.poll_all(&client.send_cq).is_empty());
        client.send(1, &[]);
        client.send(2, &[]);
        let bind = BindMw {
            wr_id: 3,
            mr: Some(&region.mr),
            range: region.sge(10, 20),
            access: ALL_RIGHTS,
            zero_based: false,
            qp_only: false,
            completion: true,
            signalled: true,
            fence: false,
        };
        a.rnic.bind_mw(&client.qp, &window, &bind).unwrap();
        let ids: Vec<u64> = (0..3).map(|_| client.sent().wr_id).collect();
        assert_eq!(ids, [1, 2, 3], "round {round}");
        assert_eq!((server.received().wr_id, server.received().wr_id), (1, 2));
    }
}

#[test]
fn a_shared_receive_queue_serves_several_queue_pairs() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let srq = b.rnic.create_srq(&b.pd, 16, 2, SrqToken(1)).unwrap();
    let clients: Vec<_> = (0..3).map(|i| a.side(100 + 10 * i)).collect();
    let servers: Vec<_> = (0..3)
        .map(|i| b.side_with_srq(200 + 10 * i, &srq))
        .collect();
    let to = b.memory(1000);
    for id in 0..6 {
        let sgl = [to.sge(id * 100, 100)];
        let wr = RecvWr {
            wr_id: id as u64,
            sgl: &sgl,
            signalled: true,
        };
        b.rnic.post_srq_recv(&srq, &wr).unwrap();
    }
    let from = a.memory(100);
    for (client, server) in clients.iter().zip(&servers) {
        connect(client, server);
    }
    for round in 0..2 {
        for (n, (client, server)) in clients.iter().zip(&servers).enumerate() {
            client.send(1, &[from.sge(0, 10 + n)]);
            let done = server.received();
            assert_eq!(
                (done.wr_id, done.byte_len),
                (round * 3 + n as u64, 10 + n as u32)
            );
            assert_eq!(done.qp, server.qp_token());
        }
    }
    // No receive is left: the next message ends its own connection only.
    clients[1].send(2, &[]);
    assert_eq!(servers[1].event(), Event::Broken);
    assert!(!b.recorder.has_connection_event(servers[0].token));
}

#[test]
fn limits_are_kept() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
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
    let idle = client.try_post(
        1,
        SendOp::Send {
            solicited: false,
            invalidate: None,
        },
        &[],
    );
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
