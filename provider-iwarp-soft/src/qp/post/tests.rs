//! Posts while another thread holds the connection.

use super::AtOnce;
use std::time::{Duration, Instant};

use rnic::*;

use crate::qp::{Effects, Link, Qp};
use crate::support::*;
use crate::work::SendSlot;

/// Waits for `count` completions of the send queue, without driving the connection. Returns those
/// that were added within a time limit.
fn await_sent(side: &Side<'_>, count: usize) -> Vec<(u64, WcStatus)> {
    let deadline = Instant::now() + DEADLINE;
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < deadline {
        let polled = side.poll_all(&side.send_cq);
        all.extend(statuses(&polled));
        std::thread::sleep(Duration::from_millis(1));
    }
    all
}

/// Waits until only the test drives the connection.
fn wait_for_timers(qp: &Qp) {
    while matches!(&*qp.lock_link(), Link::Up(conn) if conn.deadline.is_some()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_post_after_a_failed_post_is_flushed() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let reads_only = Access {
        local_write: false,
        remote_write: false,
        remote_atomic: false,
        ..ALL_RIGHTS
    };
    let sink = Memory::new(&a, vec![0; 8], reads_only);
    let source = b.memory(8);
    let qp = &client.qp.qp;
    wait_for_timers(qp);
    let link = qp.lock_link();
    std::thread::scope(|scope| {
        // This post is queued for the holder, which posts itself before it checks that queue.
        scope.spawn(|| client.post(1, SendOp::Read(source.remote(0, 8)), &[sink.sge(0, 8)]));
    });
    qp.post_holding(
        link,
        |_| AtOnce::No,
        || SendSlot::new(&send_wr(2, SEND, &[]), 0),
    )
    .unwrap();
    assert_eq!(
        await_sent(&client, 2),
        [(1, WcStatus::LocalProtection), (2, WcStatus::Flushed)]
    );
    assert_eq!(a.rnic.pending(&client.qp), (0, 0));
}

#[test]
fn a_post_without_room_submits_posts_that_found_the_connection_busy() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let attr = QpAttr {
        send_wr_max: 1,
        ..QP_ATTR
    };
    let (client, server) = (a.side_with(10, attr), b.side(20));
    server.recv(1, &[]);
    connect(&client, &server);
    let qp = &client.qp.qp;
    wait_for_timers(qp);
    let link = qp.lock_link();
    std::thread::scope(|scope| {
        scope.spawn(|| client.send(1, &[]));
    });
    let refused = qp.post_holding(
        link,
        |_| AtOnce::No,
        || SendSlot::new(&send_wr(2, SEND, &[]), 0),
    );
    assert!(matches!(refused, Err(RnicError::NoResources(_))));
    assert_eq!(await_sent(&client, 1), [(1, WcStatus::Success)]);
}

#[test]
fn a_queue_is_notified_of_completions_of_a_freed_queue_pair() {
    let node = Node::new("lo 0");
    let Side { qp, send_cq, .. } = node.side(10);
    let left = qp.qp.clone();
    assert!(!node.rnic.arm_cq(&send_cq, false));
    let done = SendSlot::new(&send_wr(1, SEND, &[]), 0).report();
    let mut batch = vec![done.completion(left.token, WcStatus::Success).unwrap()];
    let mut effects = Effects::default();
    left.publish(&mut batch, &mut Vec::new(), &mut effects);
    // The consumer frees the queue pair before the thread that drove it delivers the event.
    drop(qp);
    left.make_upcalls(&effects);
    node.recorder.expect(
        "notification",
        |event| matches!(event, Notification::CqReady(11)),
        drop,
    );
}

#[test]
fn a_request_keeps_its_place_until_its_completion_is_taken() {
    let (a, b) = (Node::new("lo 0"), Node::new("lo 0"));
    let (client, server) = (a.side(10), b.side(20));
    connect(&client, &server);
    let max = u64::from(client.qp.qp.attr.send_wr_max);
    let to = b.memory(8);
    let op = SendOp::Write(to.remote(0, 0));
    let post = |completion| {
        let wr = SendWr {
            completion,
            ..send_wr(1, op, &[])
        };
        a.rnic.post_send(&client.qp, &wr)
    };
    let is_full = || matches!(post(true), Err(RnicError::NoResources(_)));
    for _ in 0..4 * max {
        while post(false).is_err() {
            a.rnic.drive();
        }
    }
    for _ in 0..max {
        while post(true).is_err() {
            a.rnic.drive();
        }
    }
    let mut out = vec![Completion::EMPTY; max as usize];
    let deadline = Instant::now() + DEADLINE;
    while a.rnic.pending(&client.qp) != (0, 0) {
        assert!(Instant::now() < deadline);
        a.rnic.drive();
    }
    assert!(is_full(), "all have completed");
    assert_eq!(a.rnic.poll_cq(&client.send_cq, &mut out), max as usize);
    assert!(is_full(), "the consumer has taken none");
    a.rnic.on_taken(&client.qp, &out[0]);
    post(true).unwrap();
    assert!(is_full());
    out.iter()
        .skip(1)
        .for_each(|done| a.rnic.on_taken(&client.qp, done));
    a.rnic.disconnect(&client.qp, true);
    let max = max as usize;
    (0..max - 1).for_each(|_| post(true).unwrap());
    assert!(is_full(), "flushed requests take places too");
}
