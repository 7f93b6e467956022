//! Arming in races with other threads, step by step.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rnic::{Arm, Phase, Rnic, SendOp};

use super::conn_set::Ready;
use super::conn_socket::{ConnSocket, Driver};
use super::tick_of;
use crate::conn::Conn;
use crate::qp::Link;
use crate::support::moved::{has_moved, move_on};
use crate::support::{DEADLINE, Side, connected, nodes};

/// Calls with the connection of a side, which is established and held until the call returns.
fn with_conn<T>(side: &Side<'_>, call: impl FnOnce(&mut Conn) -> T) -> T {
    match &mut *side.qp.qp.lock_link() {
        Link::Up(conn) => call(conn),
        other => panic!("{other:?}"),
    }
}

fn socket(side: &Side<'_>) -> Arc<ConnSocket> {
    with_conn(side, |conn| conn.socket.clone())
}

/// Runs with both ends of a connection that uses shared memory.
fn with_moved(run: impl FnOnce(&Side<'_>, &Side<'_>)) {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    move_on(&client, &server);
    has_moved(&client, &server);
    run(&client, &server);
}

/// Two threads arm the connections of one list. The second thread finds a record that was published
/// meanwhile. If it took the connection for a polled one and withdrew the announcement of the
/// sleep, no thread would process the record: no thread polls the connection, and the peer does not
/// ring.
#[test]
fn an_armed_connection_is_not_armed_again() {
    with_moved(|client, server| {
        let progress = &server.qp.qp.shared.progress;
        while !progress.arm_polled() {}
        server.recv(7, &[]);
        let has_work = with_conn(server, |conn| {
            assert!(conn.place.is_armed());
            client.send(7, &[]);
            conn.arm().unwrap()
        });
        assert!(!has_work, "the bell is on its way");
        assert_eq!(server.received().wr_id, 7);
    });
}

/// Two threads arm a connection before one of them drives it. Each of them must find that the
/// record that was refused has room now, because the peer does not ring for a release before the
/// first wait.
#[test]
fn room_for_a_refused_record_is_found_until_the_record_is_sent() {
    const LEN: usize = 8192;
    const MOST: u64 = 64;
    with_moved(|client, server| {
        let (from, to) = (client.node.memory(LEN), server.node.memory(LEN));
        (0..MOST).for_each(|id| server.recv(id, &[to.sge(0, LEN)]));
        let (mut sent, mut found) = (0, [false; 2]);
        with_conn(server, |receiving| {
            while !with_conn(client, |conn| conn.is_tx_pending()) {
                client.send(sent, &[from.sge(0, LEN)]);
                sent += 1;
                client.node.rnic.drive();
            }
            with_conn(client, |conn| {
                while receiving.receive(&*server.qp.qp).unwrap() {}
                found = [(); 2].map(|()| conn.arm_local().unwrap());
            });
        });
        assert_eq!(found, [true; 2], "{sent} were sent");
        // A thread that finds work drives the connection, and arms it again. Both may be armed.
        for side in [client, server] {
            while !socket(side).drive(Driver::Consumer, Ready::None) {}
        }
        (0..sent).for_each(|id| assert_eq!(server.received().wr_id, id));
    });
}

/// A poller adopts a connection when a thread that has armed all connections is about to sleep.
#[test]
fn a_connection_adopted_before_a_sleep_is_armed() {
    with_moved(|_, server| {
        let progress = &server.qp.qp.shared.progress;
        let socket = socket(server);
        let is_armed = || with_conn(server, |conn| conn.place.is_armed());
        // The tick may end the polling state at any moment.
        while is_armed() {
            (0..100).for_each(|_| server.node.rnic.drive());
            socket.service.start_polling(&socket);
        }
        while progress.begin_sleep() == Arm::HasWork {}
        assert!(is_armed());
        assert!(progress.polled.load().is_empty());
    });
}

/// Changes a byte of a target that makes no calls, and waits until the change is visible. The
/// request is an atomic, which the target's engine executes.
fn write_and_wait(client: &Side<'_>, server: &Side<'_>, rounds: u8) {
    write_and_observe(client, server, rounds, || ());
}

/// As [`write_and_wait`]; calls `observe` when the byte is visible. The thread that has written it
/// has had no time to sleep by then.
fn write_and_observe(client: &Side<'_>, server: &Side<'_>, rounds: u8, mut observe: impl FnMut()) {
    let (from, to) = (client.node.memory(8), server.node.memory(8));
    (0..8).for_each(|at| to.set(at, 0));
    for round in 1..=rounds {
        client.post(1, SendOp::FetchAdd(to.remote(0, 8), 1), &[from.sge(0, 8)]);
        let deadline = Instant::now() + DEADLINE;
        while to.copy(0, 1) != [round] {
            assert!(Instant::now() < deadline, "round {round}");
            std::thread::yield_now();
        }
        observe();
        client.expect_sent(1);
    }
}

#[test]
fn the_engine_polls_for_a_target_that_makes_no_calls_and_then_sleeps() {
    with_moved(|client, server| {
        let progress = &server.qp.qp.shared.progress;
        progress.may_spin.store(true, Ordering::Relaxed);
        let is_armed = || with_conn(server, |conn| conn.place.is_armed());
        let deadline = Instant::now() + DEADLINE;
        let mut has_spun = false;
        while !has_spun {
            assert!(Instant::now() < deadline, "the engine does not poll");
            write_and_observe(client, server, 20, || {
                has_spun |= progress.arbiter.is(Phase::Spinner) && !is_armed();
            });
        }
        while !(progress.arbiter.is(Phase::Engine) && is_armed()) {
            assert!(Instant::now() < deadline, "the engine does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
        write_and_wait(client, server, 1);
    });
}

#[test]
fn the_engine_does_not_poll_without_a_free_processor() {
    with_moved(|client, server| {
        let progress = &server.qp.qp.shared.progress;
        progress.may_spin.store(false, Ordering::Relaxed);
        // The engine may have decided to poll while the connection moved. It polls before it serves
        // the first of these rounds.
        write_and_wait(client, server, 1);
        while progress.arbiter.is(Phase::Spinner) {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            write_and_wait(client, server, 10);
            assert!(!progress.arbiter.is(Phase::Spinner));
        }
    });
}

#[test]
fn a_consumer_takes_over_from_an_engine_that_polls() {
    with_moved(|client, server| {
        let progress = &server.qp.qp.shared.progress;
        progress.may_spin.store(true, Ordering::Relaxed);
        for round in 0..10 {
            write_and_wait(client, server, 20);
            server.recv(round, &[]);
            client.send(round, &[]);
            assert_eq!(server.received().wr_id, round);
            client.expect_sent(round);
        }
    });
}

#[test]
fn a_tick_is_short_after_a_short_burst_of_polls() {
    let ticks = [0, 30, 400, 2_000, 4_000, 1_000_000].map(|us| tick_of(Duration::from_micros(us)));
    assert_eq!(
        ticks.map(|tick| tick.as_micros()),
        [50, 50, 100, 500, 1_000, 1_000]
    );
}
