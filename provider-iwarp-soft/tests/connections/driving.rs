//! Which thread makes progress: the engine alone, blocked consumers, several threads at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::*;
use provider_iwarp_soft::SoftCq;
use rnic::*;

/// Spins until the condition is true, as programs do that poll memory for an RDMA Write.
fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn one_sided_work_completes_at_a_target_that_never_calls() {
    let (a, b) = nodes();
    let (client, _server) = connected(&a, &b);
    let (from, to) = (a.memory(1 << 20), b.memory(1 << 20));
    for round in 2..20 {
        from.fill(round);
        client.write(1, to.remote(0, 1 << 20), &[from.sge(0, 1 << 20)]);
        until("the last byte of a Write", || {
            to.copy((1 << 20) - 1, 1) == patterned(round + (1 << 20) - 1, 1)
        });
        assert!(
            to.copy(0, 1 << 20) == patterned(round, 1 << 20),
            "bytes appear in order"
        );
    }
}

#[test]
fn a_program_that_posts_and_polls_memory_only_is_served_by_the_engine() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (mine, theirs) = (a.memory(64), b.memory(64));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=100_u8 {
                until("ping", || theirs.copy(0, 1) == [round]);
                theirs.set(8, round);
                server.write(1, mine.remote(8, 1), &[theirs.sge(8, 1)]);
            }
        });
        for round in 1..=100_u8 {
            mine.set(0, round);
            // Each Write is posted twice, so that the second could be held back.
            for _ in 0..2 {
                client.write(1, theirs.remote(0, 1), &[mine.sge(0, 1)]);
            }
            until("pong", || mine.copy(8, 1) == [round]);
        }
    });
}

#[test]
fn a_program_that_polled_before_its_first_connection_is_served_by_the_engine() {
    let (a, b) = nodes();
    for _ in 0..1000 {
        a.rnic.drive();
        b.rnic.drive();
    }
    let (client, _server) = connected(&a, &b);
    let (from, to) = (a.memory(64), b.memory(64));
    from.fill(1);
    client.write(1, to.remote(0, 64), &[from.sge(0, 64)]);
    until("a Write", || to.copy(63, 1) == patterned(64, 1));
}

#[test]
fn a_program_that_checks_queues_without_driving_is_served_by_the_engine() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let (from, to) = (a.memory(64), b.memory(64));
    from.fill(1);
    let mut out = [Completion::EMPTY];
    let mut look = || {
        for side in [&client, &server] {
            side.poll(&side.recv_cq, &mut out);
        }
    };
    (0..1000).for_each(|_| look());
    client.write(1, to.remote(0, 64), &[from.sge(0, 64)]);
    let deadline = Instant::now() + DEADLINE;
    while to.copy(63, 1) != patterned(64, 1) {
        assert!(Instant::now() < deadline, "a Write");
        look();
    }
}

#[test]
fn delayed_requests_are_sent_even_if_their_consumer_never_polls_again() {
    let (a, b) = nodes();
    let (client, _server) = connected(&a, &b);
    let (mine, theirs) = (a.memory(64), b.memory(64));
    for round in 1..=20_u8 {
        // A polling consumer, to which requests are held back.
        for _ in 0..2000 {
            a.rnic.drive();
        }
        for part in 0..4 {
            mine.set(part, round);
            client.write(1, theirs.remote(part, 1), &[mine.sge(part, 1)]);
        }
        until("the last of a burst", || theirs.copy(3, 1) == [round]);
        client.poll_all(&client.send_cq);
    }
}

#[test]
fn blocked_consumers_play_ping_pong() {
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let play = |side: &Side<'_>, starts: bool, rounds: u64| {
        let waker = Arc::new(Waker::new());
        side.node.recorder.wake_on(side.token + 2, &waker);
        for round in 0..rounds {
            if starts {
                side.send(round, &[]);
            }
            assert_eq!(side.blocked(&side.recv_cq, &waker).wr_id, round);
            if !starts {
                side.send(round, &[]);
            }
        }
    };
    for side in [&client, &server] {
        for id in 0..500 {
            side.recv(id, &[]);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| play(&server, false, 500));
        play(&client, true, 500);
    });
}

/// A thread that arms the adapter and one that finds its connection ready at the same moment: the
/// connection is either armed or polled afterwards, and no waiting thread misses its data.
#[test]
fn no_message_is_lost_between_a_sleeper_and_a_poller() {
    const ROUNDS: u64 = 5_000;
    let (a, b) = nodes();
    let (client, server) = connected(&a, &b);
    let is_over = AtomicBool::new(false);
    let new_waker = || Arc::new(Waker::new());
    let (asleep, short) = (new_waker(), new_waker());
    b.recorder.wake_on(22, &asleep);
    client.recv(0, &[]);
    std::thread::scope(|scope| {
        // Waits for short times without a queue. The time limit ends a test that has failed.
        scope.spawn(|| {
            let end = Instant::now() + 4 * DEADLINE;
            while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
                for _ in 0..200 {
                    b.rnic.drive();
                }
                b.rnic.wait(&[], &short, Some(Duration::from_micros(20)));
            }
        });
        scope.spawn(|| {
            for round in 0..ROUNDS {
                server.recv(round, &[]);
                server.recv(round, &[]);
                server.send(round, &[]);
                for _ in 0..2 {
                    assert_eq!(server.blocked(&server.recv_cq, &asleep).wr_id, round);
                }
                server.poll_all(&server.send_cq);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for round in 0..ROUNDS {
            assert_eq!(client.received().wr_id, round);
            client.recv(round + 1, &[]);
            client.send(round, &[]);
            client.send(round, &[]);
            client.poll_all(&client.send_cq);
        }
    });
}

#[test]
fn a_blocked_sender_makes_room_for_itself() {
    let (a, b) = nodes();
    let (client, _server) = connected(&a, &b);
    let (from, to) = (a.memory(4 << 20), b.memory(4 << 20));
    let waker = Arc::new(Waker::new());
    a.recorder.wake_on(11, &waker);
    for id in 0..8 {
        client.write(id, to.remote(0, 4 << 20), &[from.sge(0, 4 << 20)]);
    }
    for id in 0..8 {
        assert_eq!(client.blocked(&client.send_cq, &waker).wr_id, id);
    }
}

#[test]
fn a_waiter_is_woken_by_its_waker_and_by_its_timeout() {
    let (a, b) = nodes();
    let (client, _server) = connected(&a, &b);
    let waker = Arc::new(Waker::new());
    waker.wake();
    a.rnic.wait(&[&client.recv_cq], &waker, None);
    let start = Instant::now();
    a.rnic
        .wait(&[&client.recv_cq], &waker, Some(Duration::from_millis(30)));
    assert!(start.elapsed() >= Duration::from_millis(30));
    let other = waker.clone();
    let thread = std::thread::spawn(move || other.wake());
    a.rnic.wait(&[&client.recv_cq], &waker, None);
    thread.join().unwrap();
}

#[test]
fn a_consumer_blocked_before_the_connection_exists_gets_its_first_message() {
    let (a, b) = nodes();
    let (client, server) = (a.side(10), b.side(20));
    server.recv(9, &[]);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let waker = Arc::new(Waker::new());
            b.recorder.wake_on(22, &waker);
            server.blocked(&server.recv_cq, &waker).wr_id
        });
        connect(&client, &server);
        client.send(1, &[]);
        assert_eq!(waiter.join().unwrap(), 9);
    });
}

#[test]
fn two_threads_poll_and_two_post_on_one_queue_pair() {
    const COUNT: u64 = 3000;
    let (a, b) = nodes();
    let attr = QpAttr {
        recv_wr_max: 16384,
        send_wr_max: 16384,
        ..QP_ATTR
    };
    let (client, server) = (a.side_with(10, attr), b.side_with(20, attr));
    connect(&client, &server);
    for id in 0..2 * COUNT {
        server.recv(id, &[]);
    }
    let over = AtomicBool::new(false);
    let count = |cq: &SoftCq, node: &Node, all: &std::sync::atomic::AtomicU64| {
        let mut out = [Completion::EMPTY; 7];
        while !over.load(Ordering::Acquire) {
            node.rnic.drive();
            let taken = node.rnic.poll_cq(cq, &mut out);
            assert!(out[..taken].iter().all(|c| c.status == WcStatus::Success));
            all.fetch_add(taken as u64, Ordering::AcqRel);
        }
    };
    let (sent, received) = (Default::default(), Default::default());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| count(&client.send_cq, &a, &sent));
            scope.spawn(|| count(&server.recv_cq, &b, &received));
            scope.spawn(|| (0..COUNT).for_each(|id| client.send(id, &[])));
        }
        let deadline = Instant::now() + DEADLINE;
        while sent.load(Ordering::Acquire) + received.load(Ordering::Acquire) < 4 * COUNT
            && Instant::now() < deadline
        {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Release);
    });
    let counts = (sent.into_inner(), received.into_inner());
    assert_eq!(counts, (2 * COUNT, 2 * COUNT));
}

#[test]
fn one_queue_fed_by_many_queue_pairs_gets_all_of_their_messages() {
    for count in [8, 20, 100] {
        let (a, b) = nodes();
        let shared = b.rnic.create_cq(4096, CqToken(1)).unwrap();
        let clients: Vec<_> = (0..count).map(|n| a.side(1000 + n * 10)).collect();
        let servers: Vec<_> = (0..count)
            .map(|n| b.side_with_cqs(5000 + n * 10, None, [&shared; 2]))
            .collect();
        for (client, server) in clients.iter().zip(&servers) {
            server.recv(server.token, &[]);
            connect(client, server);
            client.send(1, &[]);
        }
        let mut ids: Vec<_> = (0..count).map(|_| servers[0].next(&shared).wr_id).collect();
        ids.sort_unstable();
        assert_eq!(ids, servers.iter().map(|s| s.token).collect::<Vec<_>>());
    }
}

#[test]
fn a_consumer_blocked_on_many_queue_pairs_gets_each_message() {
    const COUNT: u64 = 40;
    let (a, b) = nodes();
    let shared = b.rnic.create_cq(4096, CqToken(1)).unwrap();
    let clients: Vec<_> = (0..COUNT).map(|n| a.side(1000 + n * 10)).collect();
    let unused = b.rnic.create_cq(16, CqToken(2)).unwrap();
    let servers: Vec<_> = (0..COUNT)
        .map(|n| b.side_with_cqs(5000 + n * 10, None, [&unused, &shared]))
        .collect();
    for (client, server) in clients.iter().zip(&servers) {
        connect(client, server);
    }
    let waker = Arc::new(Waker::new());
    b.recorder.wake_on(1, &waker);
    for round in 0..3 {
        for (client, server) in clients.iter().zip(&servers) {
            server.recv(round, &[]);
            client.send(round, &[]);
            let done = server.blocked(&shared, &waker);
            assert_eq!((done.qp, done.wr_id), (server.qp_token(), round));
        }
    }
}

#[test]
fn a_full_completion_queue_is_reported() {
    let (a, b) = nodes();
    let client = a.side(10);
    let small = b.rnic.create_cq(2, CqToken(77)).unwrap();
    let unused = b.rnic.create_cq(16, CqToken(78)).unwrap();
    let server = b.side_with_cqs(20, None, [&unused, &small]);
    for id in 0..3 {
        server.recv(id, &[]);
    }
    connect(&client, &server);
    for id in 0..3 {
        client.send(id, &[]);
    }
    assert_eq!(
        b.recorder.asynchronous(),
        AsyncEvent::CqOverflow(CqToken(77))
    );
    assert_eq!(server.poll_all(&small).len(), 2);
}
