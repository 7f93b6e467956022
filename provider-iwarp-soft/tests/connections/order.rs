//! Events of different connections are delivered in the order in which their peers caused them.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::support::testbed::wait_until;
use crate::support::*;
use rnic::*;

const LISTENER: u64 = 7;
const BLOCKER: u64 = 8;
/// Revision 2, peer-to-peer: a zero-length Write establishes the connection.
const REQUEST_REV2: &str = "4d504120 49442052 65712046 72616d65 50020004 8004c004";

/// Accepts a raw initiator of `request` on each side.
fn accept_all(node: &Node, sides: &[Side<'_>], request: &str) -> Vec<TcpStream> {
    let address = ListenAddress { port: 0 };
    let (_listener, port) = node.rnic.listen(&address, ListenToken(LISTENER)).unwrap();
    let mut streams = Vec::new();
    let mut requests = Vec::new();
    for _ in sides {
        let mut raw = raw_client(port);
        raw.write_all(&hex(request)).unwrap();
        requests.push(node.recorder.request(LISTENER).0);
        streams.push(raw);
    }
    // From here on the engine does nothing until the caller lets it continue.
    node.recorder.hold(Gate::Request(BLOCKER));
    let (blocker, port) = node.rnic.listen(&address, ListenToken(BLOCKER)).unwrap();
    let mut raw = raw_client(port);
    raw.write_all(&hex(REQUEST_REV1)).unwrap();
    drop(node.recorder.request(BLOCKER));
    std::mem::forget(blocker);
    for (side, request) in sides.iter().zip(requests) {
        side.accept(request, &[]);
    }
    for raw in &mut streams {
        read_startup(raw);
    }
    streams
}

#[test]
fn a_disconnect_event_follows_the_established_events_that_its_peer_caused_before() {
    for (request, first) in [(REQUEST_REV1, ""), (REQUEST_REV2, FIRST_WRITE)] {
        let node = Node::new("lo 0");
        let sides: Vec<_> = (1..=8).map(|n| node.side(100 * n)).collect();
        let mut streams = accept_all(&node, &sides, request);
        for raw in &mut streams {
            raw.write_all(&hex(first)).unwrap();
        }
        for raw in &streams[..4] {
            raw.shutdown(Shutdown::Write).unwrap();
        }
        node.recorder.release(Gate::Request(BLOCKER));
        let events: Vec<_> = (0..12).map(|_| node.recorder.any_connection()).collect();
        let (first, last) = events.split_at(8);
        let is_beginning = |event: &Event| matches!(event, Event::Established { .. });
        assert!(
            first.iter().all(|(_, event)| is_beginning(event)),
            "{events:?}"
        );
        assert!(
            last.iter().all(|(_, event)| *event == Event::Disconnected),
            "{events:?}"
        );
    }
}

#[test]
fn a_silent_connection_delays_no_disconnect_event() {
    let node = Node::new("lo 0");
    let sides: Vec<_> = (1..=3).map(|n| node.side(100 * n)).collect();
    let mut streams = accept_all(&node, &sides, REQUEST_REV2);
    for raw in &mut streams[..2] {
        raw.write_all(&hex(FIRST_WRITE)).unwrap();
        raw.shutdown(Shutdown::Write).unwrap();
    }
    node.recorder.release(Gate::Request(BLOCKER));
    for side in &sides[..2] {
        assert!(matches!(side.event(), Event::Established { .. }));
        assert_eq!(side.event(), Event::Disconnected);
    }
    assert!(!node.recorder.has_connection_event(300));
    streams[2].write_all(&hex(FIRST_WRITE)).unwrap();
    assert!(matches!(sides[2].event(), Event::Established { .. }));
}

/// Releases the other threads, also if the test fails.
struct Release<'n>(&'n Node);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.recorder.release_all();
    }
}

/// Two connections. The second is established: a consumer's thread has read its first frame and is
/// delivering the event. Then the peer establishes and ends the first. `then` runs when the engine
/// has read that.
fn while_an_established_is_held(then: impl FnOnce(&Node, &[Side<'_>])) {
    let node = Node::new("lo 0");
    let sides: Vec<_> = (1..=2).map(|n| node.side(100 * n)).collect();
    let mut streams = accept_all(&node, &sides, REQUEST_REV2);
    node.recorder.hold(Gate::Established(200));
    streams[1].write_all(&hex(FIRST_WRITE)).unwrap();
    std::thread::scope(|scope| {
        let _release = Release(&node);
        scope.spawn(|| node.rnic.drive());
        node.recorder.wait_until_held();
        streams[0].write_all(&hex(FIRST_WRITE)).unwrap();
        streams[0].shutdown(Shutdown::Write).unwrap();
        node.recorder.release(Gate::Request(BLOCKER));
        assert!(matches!(sides[0].event(), Event::Established { .. }));
        // The engine closes its side when it has read the end.
        let mut rest = Vec::new();
        streams[0].read_to_end(&mut rest).unwrap();
        then(&node, &sides);
        node.recorder.release(Gate::Established(200));
    });
}

#[test]
fn a_disconnect_event_waits_for_an_established_event_of_another_thread() {
    while_an_established_is_held(|node, _| {
        std::thread::sleep(Duration::from_millis(50));
        assert!(!node.recorder.has_connection_event(100));
        node.recorder.release(Gate::Established(200));
        let events = [0; 2].map(|_| node.recorder.any_connection());
        assert!(
            matches!(events[0], (200, Event::Established { .. })),
            "{events:?}"
        );
        assert_eq!(events[1], (100, Event::Disconnected));
    });
}

#[test]
fn an_abrupt_disconnect_delivers_a_delayed_disconnect_event() {
    while_an_established_is_held(|node, sides| {
        node.rnic.disconnect(&sides[0].qp, true);
        assert_eq!(sides[0].event(), Event::Disconnected);
        node.rnic.reset_qp(&sides[0].qp).unwrap();
        node.recorder.release(Gate::Established(200));
        assert!(matches!(sides[1].event(), Event::Established { .. }));
        assert!(!node.recorder.has_connection_event(100));
    });
}

#[test]
fn a_disconnect_event_is_not_delayed_for_ever() {
    while_an_established_is_held(|_, sides| {
        assert_eq!(sides[0].event(), Event::Disconnected);
    });
}

/// Receives on `side`, whose `Established` is held in its upcall, until no more than `left`
/// receives are posted. Their completions must not be in the queue yet.
fn receive_before_established(side: &Side<'_>, left: u32) {
    let rnic = &side.node.rnic;
    side.node.recorder.wait_until_held();
    let deadline = std::time::Instant::now() + DEADLINE;
    while rnic.pending(&side.qp).0 > left {
        rnic.drive();
        assert!(std::time::Instant::now() < deadline, "nothing is received");
    }
    assert_eq!(side.poll_all(&side.recv_cq).len(), 0, "before Established");
    assert!(!rnic.arm_cq(&side.recv_cq, false));
    assert!(!side.node.recorder.has_connection_event(side.token));
}

/// Expects the upcalls of `side` in this order: `Established`, then the nudge of its receive queue,
/// which holds a completion by then.
fn expect_established_then_received(side: &Side<'_>) {
    let recorder = &side.node.recorder;
    let next = || recorder.expect("upcall", |_| true, |it| it);
    let first = next();
    let Notification::Connection {
        qp,
        event: Event::Established { .. },
    } = &first
    else {
        panic!("{first:?}");
    };
    assert_eq!(*qp, side.token);
    let second = next();
    assert!(
        matches!(second, Notification::CqReady(cq) if cq == side.token + 2),
        "{second:?}"
    );
    let received = side.poll_all(&side.recv_cq);
    let first = received.first().map(|done| (done.wr_id, done.status));
    assert_eq!(first, Some((1, WcStatus::Success)));
}

#[test]
fn a_message_to_an_accepting_side_completes_after_the_established_event() {
    for (request, first) in [(REQUEST_REV1, ""), (REQUEST_REV2, FIRST_WRITE)] {
        let node = Node::new("lo 0");
        let memory = node.memory(64);
        let server = node.side(100);
        let _release = Release(&node);
        node.recorder.hold(Gate::Established(100));
        server.recv(1, &[memory.sge(0, 64)]);
        let (mut raw, _) = accept_on(&server, &hex(request));
        raw.write_all(&[hex(first), hex(HELLO)].concat()).unwrap();
        receive_before_established(&server, 0);
        node.recorder.release(Gate::Established(100));
        expect_established_then_received(&server);
        // The gate stays open: the next completion needs no upcall.
        server.send(2, &[memory.sge(0, 5)]);
        assert_eq!(server.sent().wr_id, 2);
    }
}

#[test]
fn a_message_to_a_connecting_side_completes_after_the_established_event() {
    let node = Node::new("lo 0");
    let memory = node.memory(64);
    let client = node.side(100);
    let _release = Release(&node);
    node.recorder.hold(Gate::Established(100));
    client.recv(1, &[memory.sge(0, 64)]);
    let mut raw = client.connect_to_raw(b"");
    read_startup(&mut raw);
    raw.write_all(&hex(REPLY)).unwrap();
    assert_eq!(read_exact(&mut raw, 20), hex(FIRST_WRITE));
    raw.write_all(&hex(HELLO)).unwrap();
    receive_before_established(&client, 0);
    node.recorder.release(Gate::Established(100));
    expect_established_then_received(&client);
}

#[test]
fn a_connection_that_ends_during_its_established_event_completes_its_work_in_between() {
    for (request, first) in [(REQUEST_REV1, ""), (REQUEST_REV2, FIRST_WRITE)] {
        let node = Node::new("lo 0");
        let memory = node.memory(64);
        let server = node.side(100);
        let _release = Release(&node);
        node.recorder.hold(Gate::Established(100));
        server.recv(1, &[memory.sge(0, 64)]);
        server.recv(2, &[]);
        let (mut raw, _) = accept_on(&server, &hex(request));
        raw.write_all(&[hex(first), hex(HELLO)].concat()).unwrap();
        raw.shutdown(Shutdown::Write).unwrap();
        receive_before_established(&server, 0);
        // A receive that is posted now is flushed at once, and completes after the others.
        server.recv(3, &[]);
        assert_eq!(server.poll_all(&server.recv_cq).len(), 0);
        node.recorder.release(Gate::Established(100));
        assert!(matches!(server.event(), Event::Established { .. }));
        assert_eq!(server.event(), Event::Disconnected);
        let received = statuses(&server.poll_all(&server.recv_cq));
        let flushed = WcStatus::Flushed;
        let expected = [(1, WcStatus::Success), (2, flushed), (3, flushed)];
        assert_eq!(received, expected);
    }
}

#[test]
fn a_connection_without_established_event_completes_its_work_before_its_failure() {
    let node = Node::new("lo 0");
    let server = node.side(100);
    server.recv(1, &[]);
    let (raw, _) = accept_on(&server, &hex(REQUEST_REV2));
    drop(raw);
    assert_eq!(server.event(), Event::AcceptFailed);
    let received = statuses(&server.poll_all(&server.recv_cq));
    assert_eq!(received, [(1, WcStatus::Flushed)]);
    // The next connection of the same queue pair begins behind a closed gate again.
    node.rnic.reset_qp(&server.qp).unwrap();
    node.recorder.hold(Gate::Established(100));
    let _release = Release(&node);
    server.recv(1, &[]);
    server.recv(2, &[]);
    let (_raw, _) = accept_on(&server, &hex(REQUEST_REV1));
    node.recorder.wait_until_held();
    node.recorder.release(Gate::Established(100));
    assert!(matches!(server.event(), Event::Established { .. }));
}

/// A consumer that reads both EVDs in turn takes the two events for those of one endpoint.
#[test]
fn the_last_receives_of_a_shared_queue_are_reported_in_the_order_of_the_disconnects() {
    let (a, b) = nodes();
    let srq = b.rnic.create_srq(&b.pd, 16, 1, SrqToken(1)).unwrap();
    let clients = [10, 20].map(|token| a.side(token));
    let servers = [100, 200].map(|token| b.side_with_srq(token, &srq));
    for (client, server) in clients.iter().zip(&servers) {
        connect(client, server);
    }
    b.recorder.hold(Gate::Disconnected(100));
    std::thread::scope(|scope| {
        let _release = Release(&b);
        scope.spawn(|| b.rnic.disconnect(&servers[0].qp, true));
        assert_eq!(servers[0].event(), Event::Disconnected);
        scope.spawn(|| b.rnic.disconnect(&servers[1].qp, true));
        std::thread::sleep(Duration::from_millis(50));
    });
    let events = [0; 2].map(|_| b.recorder.asynchronous());
    let expected = [100, 200].map(|qp| AsyncEvent::LastWqeReached(QpToken(qp)));
    assert_eq!(events, expected);
    assert_eq!(servers[1].event(), Event::Disconnected);
}

/// The engine's thread, which makes such an upcall, serves all connections of the adapter.
#[test]
fn a_slow_disconnect_upcall_delays_no_other_connection() {
    let (a, b) = nodes();
    let srq = b.rnic.create_srq(&b.pd, 16, 1, SrqToken(1)).unwrap();
    let clients = [10, 20, 30].map(|token| a.side(token));
    let ends = [100, 200].map(|token| b.side_with_srq(token, &srq));
    let target = b.side(300);
    for (client, server) in clients.iter().zip(ends.iter().chain([&target])) {
        connect(client, server);
    }
    let (from, to) = (b.memory(8), a.memory(8));
    b.recorder.hold(Gate::Disconnected(100));
    std::thread::scope(|scope| {
        let _release = Release(&b);
        scope.spawn(|| b.rnic.disconnect(&ends[0].qp, true));
        assert_eq!(ends[0].event(), Event::Disconnected);
        a.rnic.disconnect(&clients[1].qp, true);
        wait_until("the engine does not serve the second connection", || {
            b.rnic.reset_qp(&ends[1].qp).is_ok()
        });
        clients[2].read(1, from.remote(0, 8), &[to.sge(0, 8)]);
        assert_eq!(clients[2].sent().status, WcStatus::Success);
    });
    assert_eq!(ends[1].event(), Event::Disconnected);
}
