//! News of different connections are told in the order in which their peers caused them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use access_layer::rnic::*;
use support::*;

const LISTENER: u64 = 7;
const BLOCKER: u64 = 8;
/// Revision 2, peer-to-peer: a zero-length Write establishes it.
const REQUEST_REV2: &str = "4d504120 49442052 65712046 72616d65 50020004 8004c004";
const RTR_WRITE: &str = "000ec140 00000001 00000000 00000000 ebd34c5f";

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
    // From here on nothing is done by the engine until the caller lets it.
    node.recorder.hold_requests_of(BLOCKER);
    let (blocker, port) = node.rnic.listen(&address, ListenToken(BLOCKER)).unwrap();
    let mut raw = raw_client(port);
    raw.write_all(&hex(REQUEST_REV1)).unwrap();
    drop(node.recorder.request(BLOCKER));
    std::mem::forget(blocker);
    for (side, request) in sides.iter().zip(requests) {
        let params = AcceptParams { private_data: &[] };
        node.rnic.accept(request, &side.qp, &params).unwrap();
    }
    for raw in &mut streams {
        read_startup(raw);
    }
    streams
}

#[test]
fn an_ending_is_told_after_the_beginnings_that_its_peer_caused_before() {
    for (request, first) in [(REQUEST_REV1, ""), (REQUEST_REV2, RTR_WRITE)] {
        let node = Node::new("lo 0");
        let sides: Vec<_> = (1..=8).map(|n| node.side(100 * n)).collect();
        let mut streams = accept_all(&node, &sides, request);
        for raw in &mut streams {
            raw.write_all(&hex(first)).unwrap();
        }
        for raw in &streams[..4] {
            raw.shutdown(Shutdown::Write).unwrap();
        }
        node.recorder.release_requests();
        let told: Vec<_> = (0..12).map(|_| node.recorder.any_connection()).collect();
        let (first, last) = told.split_at(8);
        let is_beginning = |event: &Event| matches!(event, Event::Established { .. });
        assert!(
            first.iter().all(|(_, event)| is_beginning(event)),
            "{told:?}"
        );
        assert!(
            last.iter().all(|(_, event)| *event == Event::Disconnected),
            "{told:?}"
        );
    }
}

#[test]
fn a_connection_that_stays_silent_holds_no_ending_up() {
    let node = Node::new("lo 0");
    let sides: Vec<_> = (1..=3).map(|n| node.side(100 * n)).collect();
    let mut streams = accept_all(&node, &sides, REQUEST_REV2);
    for raw in &mut streams[..2] {
        raw.write_all(&hex(RTR_WRITE)).unwrap();
        raw.shutdown(Shutdown::Write).unwrap();
    }
    node.recorder.release_requests();
    for side in &sides[..2] {
        assert!(matches!(side.event(), Event::Established { .. }));
        assert_eq!(side.event(), Event::Disconnected);
    }
    assert!(!node.recorder.has_connection_news(300));
    streams[2].write_all(&hex(RTR_WRITE)).unwrap();
    assert!(matches!(sides[2].event(), Event::Established { .. }));
}

/// A test that fails lets the other threads go.
struct Release<'n>(&'n Node);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.recorder.release_all();
    }
}

/// Two connections: the second is established, which a consumer's thread has read and is telling;
/// then the peer establishes and ends the first. `then` runs when the engine has seen that.
fn while_a_beginning_is_being_told(then: impl FnOnce(&Node, &[Side<'_>])) {
    let node = Node::new("lo 0");
    let sides: Vec<_> = (1..=2).map(|n| node.side(100 * n)).collect();
    let mut streams = accept_all(&node, &sides, REQUEST_REV2);
    node.recorder.hold_established_of(200);
    streams[1].write_all(&hex(RTR_WRITE)).unwrap();
    std::thread::scope(|scope| {
        let _release = Release(&node);
        scope.spawn(|| node.rnic.drive());
        node.recorder.wait_until_held();
        streams[0].write_all(&hex(RTR_WRITE)).unwrap();
        streams[0].shutdown(Shutdown::Write).unwrap();
        node.recorder.release_requests();
        assert!(matches!(sides[0].event(), Event::Established { .. }));
        // The engine closes its side when it has read the end.
        let mut rest = Vec::new();
        streams[0].read_to_end(&mut rest).unwrap();
        then(&node, &sides);
        node.recorder.release_established();
    });
}

#[test]
fn an_ending_waits_for_a_beginning_that_another_thread_tells() {
    while_a_beginning_is_being_told(|node, _| {
        std::thread::sleep(Duration::from_millis(50));
        assert!(!node.recorder.has_connection_news(100));
        node.recorder.release_established();
        let told = [0; 2].map(|_| node.recorder.any_connection());
        assert!(
            matches!(told[0], (200, Event::Established { .. })),
            "{told:?}"
        );
        assert_eq!(told[1], (100, Event::Disconnected));
    });
}

#[test]
fn an_ending_that_waits_for_its_turn_is_told_by_an_abrupt_disconnect() {
    while_a_beginning_is_being_told(|node, sides| {
        node.rnic.disconnect(&sides[0].qp, true);
        assert_eq!(sides[0].event(), Event::Disconnected);
        node.rnic.reset_qp(&sides[0].qp).unwrap();
        node.recorder.release_established();
        assert!(matches!(sides[1].event(), Event::Established { .. }));
        assert!(!node.recorder.has_connection_news(100));
    });
}

#[test]
fn an_ending_does_not_wait_for_ever() {
    while_a_beginning_is_being_told(|_, sides| {
        assert_eq!(sides[0].event(), Event::Disconnected);
    });
}
