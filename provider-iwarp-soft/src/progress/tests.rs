//! Arming in races with other threads, step by step.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rnic::{Arm, Phase, Rnic, SendOp};

use super::conn_set::Ready;
use super::conn_socket::{ConnSocket, Driver};
use super::tick_of;
use crate::conn::Conn;
use crate::engine::Source as _;
use crate::qp::Link;
use crate::support::moved::{has_moved, move_on};
use crate::support::{DEADLINE, Side, connected, nodes};

/// The rounds of a race.
const ROUNDS: u64 = 500;

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

#[test]
fn a_peer_that_polls_wakes_the_engine_of_a_consumer_that_has_stopped() {
    with_moved(|client, server| {
        let progress = &server.qp.qp.shared.progress;
        let deadline = Instant::now() + DEADLINE;
        let is_polled = || {
            progress.arbiter.is(Phase::Pollers) && with_conn(server, |conn| conn.place.is_polled())
        };
        let mut next = 0;
        loop {
            assert!(Instant::now() < deadline, "the connection is not polled");
            server.recv(next, &[]);
            client.send(next, &[]);
            assert_eq!(server.received().wr_id, next);
            client.expect_sent(next);
            next += 1;
            (0..1000).for_each(|_| server.node.rnic.drive());
            // A tick, and none after it.
            progress.clone().on_deadline(progress.key);
            progress.engine().set_deadline(progress.key, None);
            if is_polled() {
                break;
            }
        }
        server.recv(next, &[]);
        client.send(next, &[]);
        while !server.node.rnic.may_have_completions(&server.recv_cq) {
            assert!(Instant::now() < deadline, "the engine does not serve it");
            client.node.rnic.drive();
        }
        assert_eq!(server.received().wr_id, next);
    });
}

/// A consumer polls for a moment and stops while a request is received that only its process can
/// carry out: an atomic.
#[test]
fn a_request_is_carried_out_whenever_the_consumer_of_the_target_stops() {
    with_moved(|client, server| {
        let (from, to) = (client.node.memory(8), server.node.memory(8));
        std::thread::scope(|scope| {
            for round in 0..ROUNDS {
                let polls = round * 997 % 3000;
                let polling = scope.spawn(move || {
                    (0..polls).for_each(|_| server.node.rnic.drive());
                });
                if round % 3 == 0 {
                    (0..polls / 2).for_each(|_| client.node.rnic.drive());
                }
                client.post(
                    round,
                    SendOp::FetchAdd(to.remote(0, 8), 1),
                    &[from.sge(0, 8)],
                );
                client.expect_sent(round);
                polling.join().unwrap();
            }
        });
        assert_eq!(to.copy(0, 8), ROUNDS.to_ne_bytes());
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
