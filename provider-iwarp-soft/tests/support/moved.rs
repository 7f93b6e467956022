//! Connections that move from TCP to shared memory.

use std::time::Instant;

use access_layer::rnic::*;

use super::testbed::wait_until;
use super::*;

/// Operations of one burst: the move happens somewhere within the first of them.
const BURST: u64 = 64;
const LEN: usize = 4096;

/// Defines the tests of this file. Each test passes its function to `$run`.
#[allow(unused_macros, reason = "each test file uses its own part")]
macro_rules! moved_tests {
    ($run:expr) => {
        $crate::support::moved::moved_tests! { $run;
            messages_of_all_lengths_are_received_in_order_across_the_move
            one_sided_work_reaches_a_target_that_never_calls
            both_ends_report_the_end_of_a_connection_that_has_moved
            a_violation_ends_a_connection_that_has_moved_with_a_terminate_message
            a_send_finds_the_write_before_it_at_its_target
            a_read_after_writes_returns_what_they_wrote
            messages_of_every_kind_keep_their_order_across_the_move
            an_invalidation_by_the_peer_is_done_before_its_message_is_reported
            nothing_is_read_or_written_after_deregistration
            both_ends_may_end_at_every_step_of_the_move
        }
    };
    ($run:expr; $($name:ident)+) => {$(
        #[test]
        fn $name() {
            $run($crate::support::moved::$name);
        }
    )+};
}
#[allow(unused_imports, reason = "each test file uses its own part")]
pub(crate) use moved_tests;

/// Returns true if both directions of a connection have left TCP, as this side sees it.
pub fn is_moved(side: &Side<'_>) -> bool {
    let traffic = side.node.rnic.traffic(&side.qp).unwrap();
    (traffic.moved_sending, traffic.moved_receiving) == (1, 1)
}

/// Waits until both directions of the connection have left TCP at both ends.
pub fn has_moved(client: &Side<'_>, server: &Side<'_>) {
    wait_until("the connection stays on TCP", || {
        is_moved(client) && is_moved(server)
    });
}

/// Exchanges messages until the connection has moved, and some more.
pub fn move_on(client: &Side<'_>, server: &Side<'_>) {
    let deadline = Instant::now() + DEADLINE;
    let mut rounds = 0;
    while rounds < 100 || !(is_moved(client) && is_moved(server)) {
        assert!(Instant::now() < deadline, "the connection stays on TCP");
        server.recv(1, &[]);
        client.recv(1, &[]);
        client.send(1, &[]);
        server.received();
        server.send(1, &[]);
        client.received();
        client.sent();
        server.sent();
        rounds += 1;
    }
}

fn poll(side: &Side<'_>, cq: &SoftCq) -> Option<Completion> {
    let mut out = [Completion::EMPTY];
    side.node.rnic.drive();
    (side.node.rnic.poll_cq(cq, &mut out) == 1).then(|| out[0])
}

pub fn messages_of_all_lengths_are_received_in_order_across_the_move() {
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

pub fn one_sided_work_reaches_a_target_that_never_calls() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
    let (from, to) = (a.memory(1 << 20), b.memory(1 << 20));
    for round in 0..50_usize {
        let len = if round % 2 == 0 { 64 } else { 1 << 20 };
        from.fill(round);
        client.post(1, SendOp::Write(to.remote(0, len)), &[from.sge(0, len)]);
        assert_eq!(client.sent().status, WcStatus::Success);
        client.post(2, SendOp::Read(to.remote(0, len)), &[from.sge(0, len)]);
        assert_eq!(client.sent().status, WcStatus::Success);
        assert!(to.copy(0, len) == patterned(round, len));
    }
}

pub fn both_ends_report_the_end_of_a_connection_that_has_moved() {
    for abrupt in [false, true] {
        let (a, b) = nodes();
        let (client, server) = connected(&a, &b);
        move_on(&client, &server);
        server.recv(7, &[]);
        a.rnic.disconnect(&client.qp, abrupt);
        assert_eq!(client.event(), Event::Disconnected);
        assert_eq!(server.event(), Event::Disconnected);
        assert_eq!(server.received().status, WcStatus::Flushed);
    }
}

pub fn a_violation_ends_a_connection_that_has_moved_with_a_terminate_message() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
    let from = a.memory(64);
    // No receive is posted.
    client.send(1, &[from.sge(0, 64)]);
    assert_eq!(client.event(), Event::Broken);
    assert_eq!(server.event(), Event::Broken);
}

pub fn a_send_finds_the_write_before_it_at_its_target() {
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
            client.poll_all(&client.send_cq);
        }
    }
    has_moved(&client, &server);
}

pub fn a_read_after_writes_returns_what_they_wrote() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
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
    has_moved(&client, &server);
}

pub fn messages_of_every_kind_keep_their_order_across_the_move() {
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

pub fn an_invalidation_by_the_peer_is_done_before_its_message_is_reported() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(64), b.memory(64));
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
    has_moved(&client, &server);
}

pub fn nothing_is_read_or_written_after_deregistration() {
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

pub fn both_ends_may_end_at_every_step_of_the_move() {
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
}
