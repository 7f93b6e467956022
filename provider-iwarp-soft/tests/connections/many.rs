//! Consumers with more connections than the provider polls one by one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::*;
use provider_iwarp_soft::SoftCq;
use rnic::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Enough connections for the provider to wait on one set of them.
const MANY: u64 = 24;

fn sides(node: &Node) -> Vec<Side<'_>> {
    (1..=MANY).map(|n| node.side(10 * n)).collect()
}

fn receive_queues<'a>(sides: &'a [Side<'_>]) -> Vec<&'a SoftCq> {
    sides.iter().map(|side| &side.recv_cq).collect()
}

fn connected_sides<'n>(a: &'n Node, b: &'n Node) -> (Vec<Side<'n>>, Vec<Side<'n>>) {
    let (clients, servers) = (sides(a), sides(b));
    for (client, server) in clients.iter().zip(&servers) {
        connect(client, server);
    }
    (clients, servers)
}

/// Takes a completion from the first queue that has one, and returns the index of the queue.
fn take_any(node: &Node, cqs: &[&SoftCq]) -> Option<usize> {
    let mut out = [Completion::EMPTY];
    let has_one = |cq: &&SoftCq| node.rnic.poll_cq(cq, &mut out) == 1;
    cqs.iter().position(has_one)
}

fn drive_until_any(node: &Node, cqs: &[&SoftCq]) {
    let deadline = Instant::now() + DEADLINE;
    while take_any(node, cqs).is_none() {
        assert!(Instant::now() < deadline, "no completion");
        node.rnic.drive();
    }
}

/// Every index several times, never two neighbours one after the other.
fn in_turn() -> impl Iterator<Item = usize> {
    (0..5 * MANY).map(|round| (round * 7 % MANY) as usize)
}

/// Blocks until one of the queues may have a completion.
fn wait(node: &Node, cqs: &[&SoftCq], waker: &Arc<Waker>) {
    let is_empty = |cq: &&SoftCq| !node.rnic.arm_cq(cq, false);
    if cqs.iter().all(is_empty) {
        node.rnic.wait(cqs, waker, Some(DEADLINE));
    }
}

fn is_readable(fd: &mut PollFd<'_>, timeout: Duration) -> bool {
    let timeout = Timespec::try_from(timeout).unwrap();
    poll(std::slice::from_mut(fd), Some(&timeout)).unwrap() > 0
}

#[test]
fn a_blocked_consumer_receives_from_each_connection() {
    let (a, b) = nodes();
    let (clients, servers) = connected_sides(&a, &b);
    let cqs = receive_queues(&servers);
    let waker = Arc::new(Waker::new());
    for server in &servers {
        b.recorder.wake_on(server.token + 2, &waker);
    }
    for at in in_turn() {
        servers[at].recv(1, &[]);
        clients[at].send(1, &[]);
        let deadline = Instant::now() + DEADLINE;
        let receiver = loop {
            if let Some(receiver) = take_any(&b, &cqs) {
                break receiver;
            }
            assert!(Instant::now() < deadline, "nothing on {at}");
            wait(&b, &cqs, &waker);
        };
        assert_eq!(receiver, at);
        clients[at].sent();
    }
}

#[test]
fn a_polling_consumer_receives_from_each_connection() {
    let (a, b) = nodes();
    let (clients, servers) = connected_sides(&a, &b);
    let cqs = receive_queues(&servers);
    for at in in_turn() {
        servers[at].recv(1, &[]);
        clients[at].send(1, &[]);
        drive_until_any(&b, &cqs);
        clients[at].sent();
    }
}

/// Prepares a sleep on the RNIC's descriptor. The first attempts may find work.
fn arm(node: &Node) -> PollFd<'_> {
    let deadline = Instant::now() + DEADLINE;
    let waker = Arc::new(Waker::new());
    while node.rnic.arm(&waker) != Arm::Sleep {
        assert!(Instant::now() < deadline, "work without end");
        node.rnic.drive();
    }
    PollFd::from_borrowed_fd(node.rnic.descriptor().unwrap(), PollFlags::IN)
}

#[test]
fn a_sleeper_elsewhere_sleeps_on_one_descriptor_and_is_woken_by_each_of_them() {
    let (a, b) = nodes();
    let (clients, servers) = connected_sides(&a, &b);
    let cqs = receive_queues(&servers);
    for at in in_turn() {
        servers[at].recv(1, &[]);
        let mut fd = arm(&b);
        clients[at].send(1, &[]);
        assert!(is_readable(&mut fd, DEADLINE), "{at}");
        // The engine may be receiving the same message.
        drive_until_any(&b, &cqs);
        clients[at].sent();
    }
}

#[test]
fn ended_connections_wake_a_sleeper_once_and_the_others_continue() {
    let (a, b) = nodes();
    let (clients, servers) = connected_sides(&a, &b);
    let mut fd = arm(&b);
    for client in clients.iter().step_by(2) {
        a.rnic.disconnect(&client.qp, true);
    }
    let ended = || {
        let mut ended = servers.iter().step_by(2);
        ended.all(|server| b.recorder.has_connection_event(server.token))
    };
    let deadline = Instant::now() + DEADLINE;
    while !ended() || is_readable(&mut fd, Duration::ZERO) {
        assert!(Instant::now() < deadline, "the descriptor stays readable");
        b.rnic.drive();
        std::thread::sleep(Duration::from_millis(1));
    }
    let (client, server) = (&clients[1], &servers[1]);
    server.recv(1, &[]);
    let mut fd = arm(&b);
    client.send(1, &[]);
    assert!(is_readable(&mut fd, DEADLINE));
    server.received();
}

#[test]
fn a_blocked_sender_among_them_makes_room_for_itself() {
    let (a, b) = nodes();
    let (clients, _servers) = connected_sides(&a, &b);
    let (from, to) = (a.memory(4 << 20), b.memory(4 << 20));
    let cqs: Vec<&SoftCq> = clients.iter().map(|side| &side.send_cq).collect();
    let waker = Arc::new(Waker::new());
    for id in 0..8 {
        for side in clients.iter().step_by(7) {
            let op = SendOp::Write(to.remote(0, 4 << 20));
            side.post(id, op, &[from.sge(0, 4 << 20)]);
            a.recorder.wake_on(side.token + 1, &waker);
        }
    }
    let mut left = 8 * clients.iter().step_by(7).count();
    let deadline = Instant::now() + DEADLINE;
    while left > 0 {
        assert!(Instant::now() < deadline, "{left} left");
        match take_any(&a, &cqs) {
            Some(_) => left -= 1,
            None => wait(&a, &cqs, &waker),
        }
    }
}
