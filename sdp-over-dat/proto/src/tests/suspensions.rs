//! Suspension: another process of one end continues the connection, and the other end follows.

use sdp_checker::Side::{Active, Passive};

use super::{
    engine::Engine,
    pair::{Pair, SMALL},
};
use crate::{Config, ConnectionState, Failure, ProtocolError, wire::Mid};

/// The service ID of a listener at port 5008, as IB forms it.
const SERVICE: u64 = 0x1_1390;

fn streams_are_equal(pair: &Pair) {
    for (from, to) in [(&pair.active, &pair.passive), (&pair.passive, &pair.active)] {
        assert_eq!(to.failure, None);
        assert_eq!(to.received, from.stream().0);
        assert!(from.registered.is_empty() && from.sinks.is_empty());
    }
}

/// Lets the ends exchange their messages, and the passive end continue over another transport.
fn resume(pair: &mut Pair) {
    pair.settle();
    assert_eq!(pair.passive.connection.continues_at(), Some(SERVICE));
    pair.disconnect_if_asked();
    assert_eq!(pair.active.connection.state(), ConnectionState::Closed);
    assert_eq!(pair.resume_if_suspended(SMALL), Some(Passive));
    pair.passive.connection.handle_established();
    pair.passive.take_events();
}

#[test]
fn another_process_continues_with_the_bytes_that_were_not_read() {
    let mut pair = Pair::small();
    pair.active.write(vec![1; 300]);
    pair.passive.write(vec![2; 900]);
    pair.settle();
    assert!(pair.active.has_unread());
    assert!(pair.active.connection.suspend(SERVICE));
    let is_refused = !pair.active.connection.write(1);
    assert!(is_refused, "nothing is written any more");
    pair.passive.read(usize::MAX);
    // The program of the passive end need not know.
    resume(&mut pair);
    pair.active.write(vec![3; 500]);
    pair.passive.write(vec![4; 500]);
    pair.drain();
    streams_are_equal(&pair);
}

#[test]
fn memory_that_the_peer_advertises_is_sent_in_the_continuation() {
    let mut pair = Pair::small();
    pair.passive.advertise(vec![1; 400], 1);
    pair.passive.write(vec![2; 10]);
    pair.settle();
    assert!(pair.active.connection.suspend(SERVICE));
    resume(&mut pair);
    assert!(!pair.active.registered.is_empty());
    pair.drain();
    streams_are_equal(&pair);
}

#[test]
fn memory_of_a_reader_is_returned_before_the_suspension() {
    let config = Config {
        adverts_max: 4,
        ..SMALL
    };
    for requester in [Active, Passive] {
        let mut pair = Pair::new(config, config, [0, 0]);
        pair.passive.connection.handle_established();
        pair.passive.take_events();
        pair.active.connection.go_pipelined();
        pair.settle();
        pair.passive.advertise_sink(150).expect("may advertise");
        pair.settle();
        assert!(pair.end(requester).connection.suspend(SERVICE));
        pair.settle();
        assert!(pair.passive.sinks.is_empty());
        pair.disconnect_if_asked();
        pair.resume_if_suspended(config).expect("a suspension");
        pair.passive.connection.handle_established();
        pair.active.write(vec![1; 300]);
        pair.passive.write(vec![2; 300]);
        pair.drain();
        streams_are_equal(&pair);
    }
}

#[test]
fn a_peer_that_has_sent_its_last_byte_sends_disconn_again() {
    let mut pair = Pair::small();
    pair.passive.write(vec![1; 20]);
    pair.passive.connection.shut_send();
    pair.drain();
    assert!(pair.active.saw_end);
    assert!(pair.active.connection.suspend(SERVICE));
    resume(&mut pair);
    pair.passive.saw_end = false;
    pair.passive.write(vec![2; 20]);
    pair.passive.connection.shut_send();
    pair.drain();
    assert!(pair.passive.saw_end && pair.active.saw_end);
    streams_are_equal(&pair);
    pair.disconnect_if_asked();
    assert_eq!(pair.active.connection.state(), ConnectionState::Closed);
}

#[test]
fn requests_that_cross_end_the_connection() {
    let mut pair = Pair::small();
    for side in [Active, Passive] {
        assert!(pair.end(side).connection.suspend(SERVICE));
        assert!(pair.transmit(side));
    }
    for side in [Active, Passive] {
        assert!(pair.deliver(side));
        let error = ProtocolError::DuringSuspension(Mid::SuspComm);
        assert_eq!(pair.end(side).failure, Some(Failure::Protocol(error)));
    }
}

#[test]
fn a_request_that_was_not_sent_gives_way_to_that_of_the_peer() {
    let mut pair = Pair::small();
    assert!(pair.active.connection.suspend(SERVICE));
    assert!(pair.transmit(Active));
    assert!(pair.passive.connection.suspend(7));
    assert!(pair.deliver(Passive));
    resume(&mut pair);
    pair.drain();
    streams_are_equal(&pair);
}

#[test]
fn a_connection_is_suspended_once_and_not_after_its_end() {
    let refuses = |prepare: fn(&mut Engine)| {
        let mut pair = Pair::small();
        prepare(&mut pair.active);
        assert!(!pair.active.connection.suspend(SERVICE));
        assert!(!pair.passive.connection.state().has_ended());
    };
    refuses(|end| assert!(end.connection.suspend(SERVICE)));
    refuses(|end| end.connection.shut_send());
    refuses(|end| {
        end.connection.abort();
        end.take_events();
    });
}

#[test]
fn a_user_that_shuts_before_the_request_is_sent_withdraws_it() {
    let mut pair = Pair::small();
    pair.active.write(vec![1; 3_000]);
    pair.settle();
    assert!(pair.active.connection.suspend(SERVICE));
    pair.active.connection.shut_send();
    pair.drain();
    assert!(pair.passive.saw_end);
    assert_eq!(pair.passive.connection.continues_at(), None);
    streams_are_equal(&pair);
}

#[test]
fn a_peer_that_cannot_continue_sees_a_reset() {
    let mut pair = Pair::small();
    assert!(pair.active.connection.suspend(SERVICE));
    pair.settle();
    pair.disconnect_if_asked();
    let local = ([192, 0, 2, 2], 1).into();
    let peer = [192, 0, 2, 1].into();
    pair.passive.resume(local, peer);
    let again = pair.passive.connection.resume(8, 8, local, peer);
    assert_eq!(again, None, "a connection is resumed once");
    pair.passive.disconnected();
    assert_eq!(pair.passive.failure, Some(Failure::Refused));
}
