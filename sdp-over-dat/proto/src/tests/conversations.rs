//! Conversations between two ends.

use sdp_checker::Side::{Active, Passive};

use super::pair::Pair;
use crate::{ConnectionState, Event, Failure, OnCancel, SendHalf, wire::Mode};

#[test]
fn messages_have_the_size_of_the_peers_buffers() {
    let mut pair = Pair::small();
    let bytes: Vec<u8> = (0..=250).collect();
    pair.active.write(bytes.clone());
    pair.settle();
    assert_eq!(pair.kinds[&0xff], 3, "100 bytes each");
    pair.passive.read(usize::MAX);
    assert_eq!(pair.passive.received, bytes);
}

#[test]
fn a_reader_that_does_not_read_stops_only_its_writer() {
    let mut pair = Pair::small();
    pair.active.write(vec![1; 2_000]);
    pair.settle();
    assert_eq!(pair.kinds[&0xff], 5, "three of eight stay in reserve");
    pair.passive.write(vec![2; 50]);
    pair.settle();
    pair.active.read(usize::MAX);
    assert_eq!(pair.active.received.len(), 50);
    pair.drain();
    assert_eq!(pair.passive.received.len(), 2_000);
}

#[test]
fn a_writer_that_cannot_send_awaits_credits_or_the_reader() {
    let obstacles = |pair: &Pair| {
        let connection = &pair.active.connection;
        let (unsent, credits) = (connection.has_unsent(), connection.awaits_credits());
        (unsent, credits, connection.awaits_reader())
    };
    let mut pair = Pair::small();
    assert_eq!(obstacles(&pair), (false, false, false));
    pair.active.write(vec![1; 50]);
    assert_eq!(obstacles(&pair), (true, false, false), "nothing is missing");
    pair.active.write(vec![1; 2_000]);
    pair.settle();
    assert_eq!(obstacles(&pair), (true, true, false));
    pair.drain();
    assert_eq!(obstacles(&pair), (false, false, false));
    pair.active.advertise(vec![2; 200], 10);
    pair.active.write(vec![3; 50]);
    pair.settle();
    assert_eq!(obstacles(&pair), (false, false, true));
    pair.drain();
    assert_eq!(obstacles(&pair), (false, false, false));
}

#[test]
fn advertised_memory_is_read_and_released() {
    let mut pair = Pair::small();
    let bytes: Vec<u8> = (0..200).collect();
    pair.active.advertise(bytes.clone(), 10);
    pair.settle();
    assert_eq!(pair.passive.connection.readable(), 190);
    assert_eq!(pair.active.registered.len(), 1);
    pair.passive.read(usize::MAX);
    pair.passive.begin_read(100);
    pair.passive.begin_read(1_000);
    assert_eq!(pair.passive.reads.len(), 2);
    pair.settle();
    assert_eq!(pair.passive.received, bytes);
    assert!(pair.active.registered.is_empty());
    let reports = pair.kinds.get(&0x06);
    assert_eq!(reports, Some(&1), "one report covers both reads");
}

#[test]
fn registered_memory_is_sent_in_stream_order_and_released() {
    let mut pair = Pair::small();
    pair.active.write(vec![1; 30]);
    pair.active.write_registered(vec![2; 500]);
    pair.active.write(vec![3; 30]);
    pair.drain();
    let expected = [vec![1; 30], vec![2; 500], vec![3; 30]].concat();
    assert_eq!(pair.passive.received, expected);
    assert!(pair.active.registered.is_empty());
    assert_eq!(pair.kinds.get(&0xFE), None, "nothing was advertised");
}

#[test]
fn registered_memory_that_is_taken_back_ends_after_the_sent_bytes() {
    let mut pair = Pair::small();
    pair.active.write_registered(vec![2; 4_000]);
    pair.settle();
    assert_eq!(pair.active.registered.len(), 1, "the credits are spent");
    pair.active.cancel(OnCancel::TakeBack, false);
    assert!(pair.active.registered.is_empty());
    pair.active.write(vec![3; 30]);
    pair.drain();
    let (stream, _) = pair.active.stream();
    assert!(stream.len() < 4_000 && stream.ends_with(&[3; 30]));
    assert_eq!(pair.passive.received, stream);
}

#[test]
fn after_a_refusal_the_rest_of_the_memory_is_sent() {
    let mut pair = Pair::small();
    let bytes: Vec<u8> = (0..200).collect();
    pair.active.advertise(bytes.clone(), 10);
    pair.active.write(vec![9; 3]);
    pair.settle();
    pair.passive.read(usize::MAX);
    pair.passive.begin_read(90);
    pair.passive.connection.refuse_advert();
    pair.settle();
    assert_eq!(pair.kinds.get(&0x06), Some(&1));
    assert_eq!(pair.kinds.get(&0x04), Some(&1));
    pair.drain();
    let (stream, _) = pair.active.stream();
    assert_eq!(pair.passive.received, stream);
    assert_eq!(stream.len(), 203);
    assert!(pair.active.registered.is_empty());
}

#[test]
fn bytes_that_are_taken_back_are_not_in_the_stream() {
    let mut pair = Pair::small();
    pair.active.advertise(vec![5; 200], 10);
    pair.settle();
    pair.passive.read(usize::MAX);
    pair.passive.begin_read(40);
    pair.settle();
    pair.active.cancel(OnCancel::TakeBack, true);
    pair.settle();
    assert_eq!(pair.kinds.get(&0x08), Some(&1));
    assert_eq!(pair.kinds.get(&0x04), Some(&1), "the cancel is answered");
    pair.drain();
    assert_eq!(pair.passive.received.len(), 50);
    assert_eq!(pair.active.stream().0.len(), 50);
    assert!(pair.active.registered.is_empty());
}

#[test]
fn a_cancel_during_a_read_waits_for_it() {
    let mut pair = Pair::small();
    pair.active.advertise(vec![5; 200], 10);
    while pair.transmit(Active) || pair.deliver(Passive) {}
    pair.passive.read(usize::MAX);
    pair.passive.begin_read(40);
    pair.active.cancel(OnCancel::TakeBack, true);
    while pair.transmit(Active) || pair.deliver(Passive) {}
    pair.passive.write(vec![1; 5]);
    assert!(pair.transmit(Passive));
    let data = pair.take_frame(Passive).expect("Data");
    assert_eq!(
        data[..16],
        [0xff, 0, 0, 8, 0, 0, 0, 21, 0, 0, 0, 1, 0, 0, 0, 1]
    );
    assert!(!pair.transmit(Passive), "nothing is sent during the read");
    assert!(pair.serve_read(Passive));
    assert!(pair.transmit(Passive) && pair.transmit(Passive));
    let send_sm = pair.take_frame(Passive).expect("SendSm");
    let answer = (send_sm[0], send_sm[15]);
    assert_eq!(answer, (0x04, 2), "it acknowledges the cancel");
}

#[test]
fn a_refusal_that_crosses_a_cancel_ends_both() {
    let mut pair = Pair::small();
    pair.active.advertise(vec![5; 200], 10);
    while pair.transmit(Active) || pair.deliver(Passive) {}
    pair.passive.connection.refuse_advert();
    pair.active.cancel(OnCancel::TakeBack, true);
    assert!(pair.transmit(Passive) && pair.transmit(Active));
    pair.settle();
    assert!(pair.active.registered.is_empty());
    pair.active.advertise(vec![6; 100], 10);
    pair.drain();
    assert_eq!(pair.passive.received.len(), 110);
    pair.checker.check_complete().expect("nothing is open");
}

#[test]
fn an_urgent_byte_passes_unread_advertised_memory() {
    let mut pair = Pair::small();
    pair.active.advertise(vec![5; 200], 10);
    pair.settle();
    pair.active.write_urgent(b'!');
    pair.settle();
    pair.passive.read(usize::MAX);
    pair.settle();
    pair.passive.read(usize::MAX);
    assert_eq!(pair.passive.urgent_received, [200]);
    assert_eq!(pair.passive.received[200], b'!');
    let announced = pair.passive.urgent_announced >= 2;
    assert!(announced, "early, and with the byte");
}

#[test]
fn each_half_closes_by_itself() {
    let mut pair = Pair::small();
    pair.active.write(vec![1; 120]);
    pair.active.connection.shut_send();
    pair.active.write(vec![2; 10]);
    pair.settle();
    assert_eq!(pair.active.connection.send_half(), SendHalf::Finished);
    assert!(pair.passive.saw_end);
    pair.passive.write(vec![3; 120]);
    pair.drain();
    assert_eq!(pair.passive.received.len(), 120);
    assert_eq!(pair.active.received.len(), 120);
    assert!(!pair.active.wants_disconnect);
    let expects =
        |pair: &Pair| [&pair.active, &pair.passive].map(|it| it.connection.expects_messages());
    assert_eq!(expects(&pair), [true, true]);
    pair.passive.connection.shut_send();
    pair.settle();
    assert_eq!(expects(&pair), [false, false]);
    assert!(pair.active.wants_disconnect && pair.passive.wants_disconnect);
    pair.disconnect_if_asked();
    assert_eq!(pair.active.connection.state(), ConnectionState::Closed);
    assert_eq!(pair.passive.connection.state(), ConnectionState::Closed);
}

#[test]
fn a_transport_that_ends_before_the_last_disconn_loses_only_bytes() {
    let lost = ConnectionState::Failed(Failure::Reset);
    for (written, is_sent, shuts, expected) in [
        (0, false, true, ConnectionState::Closed),
        (0, false, false, lost),
        (10, false, true, lost),
        (10, true, true, lost),
    ] {
        let mut pair = Pair::small();
        pair.active.connection.shut_send();
        pair.settle();
        assert!(pair.passive.saw_end);
        if written > 0 {
            pair.passive.write(vec![1; written]);
        }
        if is_sent {
            assert!(pair.passive.connection.poll_transmit().is_some());
        }
        assert_eq!(pair.passive.connection.is_delivered(), written == 0);
        if shuts {
            pair.passive.connection.shut_send();
        }
        pair.passive.disconnected();
        let state = pair.passive.connection.state();
        assert_eq!(state, expected, "{written} {is_sent} {shuts}");
    }
}

#[test]
fn disconn_waits_for_memory_that_is_being_read() {
    let mut pair = Pair::small();
    pair.active.advertise(vec![5; 200], 10);
    pair.active.connection.shut_send();
    pair.settle();
    assert!(!pair.passive.saw_end);
    pair.drain();
    assert!(pair.passive.saw_end);
    assert_eq!(pair.passive.received.len(), 200);
}

#[test]
fn an_abort_is_a_reset_and_after_disconn_an_abortconn() {
    for after_fin in [false, true] {
        let mut pair = Pair::small();
        if after_fin {
            pair.active.connection.shut_send();
            pair.settle();
        }
        pair.active.connection.abort();
        pair.active.take_events();
        pair.settle();
        assert_eq!(pair.kinds.contains_key(&0x03), after_fin);
        pair.disconnect_if_asked();
        assert_eq!(pair.active.failure, Some(Failure::Aborted));
        let expected = if after_fin {
            Failure::PeerAborted
        } else {
            Failure::Reset
        };
        assert_eq!(pair.passive.failure, Some(expected));
    }
}

#[test]
fn a_half_goes_to_buffered_mode_and_back() {
    let mut pair = Pair::small();
    pair.active.advertise(vec![5; 200], 10);
    pair.active.connection.go_buffered();
    pair.settle();
    assert_eq!(pair.active.connection.send_mode(), Mode::Buffered);
    assert_eq!(pair.passive.connection.receive_mode(), Mode::Buffered);
    let other = pair.passive.connection.send_mode();
    assert_eq!(other, Mode::Combined, "the other half is unchanged");
    assert!(!pair.kinds.contains_key(&0xfe));
    pair.passive.connection.go_combined();
    pair.settle();
    assert_eq!(pair.active.connection.send_mode(), Mode::Combined);
    pair.active.advertise(vec![5; 200], 10);
    pair.drain();
    assert_eq!(pair.kinds.get(&0xfe), Some(&1));
    assert_eq!(pair.passive.received.len(), 400);
}

#[test]
fn a_request_for_other_buffers_is_answered_with_the_present_size() {
    let mut pair = Pair::small();
    pair.stop_checking();
    let request = [
        0x0b, 0, 0, 8, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 16,
    ];
    pair.passive.receive(&request);
    assert!(pair.transmit(Passive));
    let answer = pair.take_frame(Passive).expect("an answer");
    assert_eq!(answer[0], 0x0c);
    assert_eq!(answer[16..], 116_u32.to_be_bytes());
}

#[test]
fn three_buffers_at_both_ends_are_enough_for_everything() {
    let three = crate::Config {
        buffers: 3,
        ..super::pair::SMALL
    };
    let mut pair = Pair::new(three, three, [1, 1]);
    pair.passive.connection.handle_established();
    pair.active.write(vec![1; 1_000]);
    pair.passive.write(vec![2; 1_000]);
    pair.active.advertise(vec![3; 500], 1);
    pair.settle();
    pair.drain();
    assert_eq!(pair.passive.received.len(), 1_500);
    assert_eq!(pair.active.received.len(), 1_000);
    assert_eq!(pair.active.connection.poll_event(), None::<Event>);
}
