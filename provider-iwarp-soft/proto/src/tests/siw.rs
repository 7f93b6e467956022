//! The behaviour of a connection toward a peer that is siw, compared with any other peer.

use super::{
    engine::{Engine, Event, Pair, config},
    hex,
};
use crate::{Config, Delivery, Inbound, Peer, Role, StreamState};

fn pair(peer: Peer) -> Pair {
    let config = |role| Config {
        peer,
        ..config(role)
    };
    let mut pair = Pair::new(config(Role::Initiator), config(Role::Responder), 1);
    pair.responder.register(0x10, 0, vec![7; 4096]);
    pair.initiator.register(0x20, 0, vec![0; 4096]);
    pair
}

/// Returns the completions of the initiator for a read, an empty read and a Send, and the number of
/// Read Requests that the responder gets.
fn around_an_empty_read(peer: Peer) -> (Vec<u64>, usize) {
    let mut pair = pair(peer);
    pair.responder.post_receive(1, 16);
    let side = &mut pair.initiator;
    side.post_read(1, (0x10, 0), (0x20, 0), 100, false);
    side.post_read(2, (0x10, 0), (0x20, 0), 0, false);
    side.post_send(3, b"hello".to_vec());
    side.post_read(4, (0x10, 0), (0x20, 0), 0, false);
    pair.run();
    assert_eq!(pair.responder.received(), [(1, 5)]);
    assert_eq!(
        pair.initiator.memory.slice(crate::Stag(0x20), 0, 100),
        [7; 100]
    );
    (
        pair.initiator.completed(),
        pair.responder.count(&Event::ReadRequest),
    )
}

#[test]
fn an_empty_read_is_not_sent_and_completes_in_its_place() {
    assert_eq!(around_an_empty_read(Peer::Siw), (vec![1, 2, 3, 4], 1));
    assert_eq!(around_an_empty_read(Peer::Unknown), (vec![1, 2, 3, 4], 3));
}

#[test]
fn an_empty_read_waits_for_the_reads_before_it() {
    let mut engine = Engine::new(Config {
        peer: Peer::Siw,
        ..config(Role::Initiator)
    });
    engine.register(0x20, 0, vec![0; 4096]);
    engine.post_read(1, (0x10, 0), (0x20, 0), 100, false);
    engine.post_read(2, (0x10, 0), (0x20, 0), 0, false);
    assert!(engine.conn.poll_transmit().is_some());
    assert!(
        !engine.conn.has_transmit(),
        "the first read is not answered"
    );
    assert!(engine.conn.poll_transmit().is_none());
    engine.conn.on_sent(1);
    assert_eq!(engine.conn.poll_completion(), None);
}

/// Returns the result of a Send with Invalidate of STag 0.
fn invalidate_of_nothing(peer: Peer) -> (bool, StreamState) {
    let mut engine = Engine::new(Config {
        peer,
        ..config(Role::Responder)
    });
    engine.post_receive(1, 16);
    let segment = hex("4144 00000000 00000000 00000001 00000000 6869");
    let Engine {
        conn,
        memory,
        receives,
        ..
    } = &mut engine;
    let judged = conn.handle_ulpdu(&segment, memory, receives);
    let delivered = match judged {
        Ok(Inbound::Place(placement)) => placement.delivered,
        _ => None,
    };
    let as_send = matches!(
        delivered,
        Some(Delivery::Receive {
            invalidate: None,
            len: 2,
            ..
        })
    );
    (as_send, engine.conn.state())
}

#[test]
fn a_send_that_invalidates_nothing_is_a_send_of_siw_and_a_fault_of_others() {
    let (as_send, state) = invalidate_of_nothing(Peer::Siw);
    assert!(as_send && state == StreamState::Operational, "{state:?}");
    let (as_send, state) = invalidate_of_nothing(Peer::Unknown);
    assert!(!as_send && state == StreamState::TerminateOwed, "{state:?}");
}
