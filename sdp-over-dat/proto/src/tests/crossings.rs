//! Messages of pipelined mode that cross, each in both orders, and conversations without crossings.
//!
//! The active end is the source and the passive end the sink, unless a test says otherwise.

use sdp_checker::Side::{self, Active, Passive};

use super::pair::{Pair, SMALL};
use crate::{Config, Failure, OnCancel, wire::Mode};

/// The configuration of an end that accepts several advertisements, as pipelined mode requires.
const SEVERAL_ADVERTS: Config = Config {
    adverts_max: 4,
    ..SMALL
};

/// Two ends in pipelined mode, ready.
fn pipelined() -> Pair {
    pipelined_with(SEVERAL_ADVERTS)
}

fn pipelined_with(config: Config) -> Pair {
    let mut pair = Pair::new(config, config, [0, 0]);
    pair.passive.connection.handle_established();
    pair.passive.take_events();
    pair.active.connection.go_pipelined();
    pair.settle();
    assert_eq!(pair.passive.connection.receive_mode(), Mode::Pipelined);
    pair
}

/// Sends everything that `side` has to send. Returns the kinds, without credit updates.
fn send(pair: &mut Pair, side: Side) -> Vec<u8> {
    let mut kinds = Vec::new();
    while pair.transmit(side) {
        kinds.extend(pair.last_kind);
    }
    kinds
}

/// Makes the passive end advertise memory for 150 bytes, `count` times.
fn offer_sinks(pair: &mut Pair, count: usize) {
    for _ in 0..count {
        pair.passive.advertise_sink(150).expect("may advertise");
    }
}

/// Two ends in pipelined mode, after the passive end has sent `count` advertisements of its memory,
/// which are in flight.
fn sending_sinks(count: usize) -> Pair {
    let mut pair = pipelined();
    offer_sinks(&mut pair, count);
    send(&mut pair, Passive);
    pair
}

/// As `sending_sinks`, after the active end has received the advertisements.
fn with_sinks(count: usize) -> Pair {
    let mut pair = pipelined();
    offer_sinks(&mut pair, count);
    pair.settle();
    pair
}

/// Makes the passive end refuse an advertisement of 200 bytes.
fn refuse(pair: &mut Pair) {
    pair.active.advertise(vec![1; 200], 1);
    send(pair, Active);
    deliver(pair, Passive);
    pair.passive.connection.refuse_advert();
    send(pair, Passive);
}

/// Delivers everything that is in flight to `side`.
fn deliver(pair: &mut Pair, side: Side) {
    while pair.deliver(side) {}
}

/// Checks that everything that was written is received, nothing is registered and no end failed.
fn finish(mut pair: Pair) {
    pair.passive.connection.cancel_sinks();
    pair.drain();
    for (from, to) in [(&pair.active, &pair.passive), (&pair.passive, &pair.active)] {
        assert_eq!(to.failure, None);
        let (stream, _) = from.stream();
        assert_eq!(to.received, stream);
        assert!(from.registered.is_empty() && from.sinks.is_empty());
    }
    // The ends still have the same count of messages with data, so memory that is advertised now is
    // written.
    if pair.active.connection.send_mode() == Mode::Pipelined {
        let before = pair.passive.uses.written_whole;
        pair.passive.advertise_sink(100).expect("may advertise");
        pair.settle();
        pair.active.write(vec![9; 100]);
        pair.settle();
        assert_eq!(pair.passive.uses.written_whole, before + 1);
    }
}

const DATA: u8 = 0xff;
const SRC_AVAIL: u8 = 0xfe;
const SINK_AVAIL: u8 = 0xfd;
const MODE_CHANGE: u8 = 0x07;

#[test]
fn a_waiting_reader_is_written_to() {
    let mut pair = with_sinks(1);
    pair.active.write(vec![1; 400]);
    assert_eq!(send(&mut pair, Active), [0x05, DATA, DATA, DATA]);
    pair.settle();
    assert_eq!(pair.passive.uses.written_whole, 1);
    assert!(pair.passive.sinks.is_empty());
    finish(pair);
}

#[test]
fn a_write_ends_where_the_bytes_end_and_takes_registered_memory_too() {
    let mut pair = with_sinks(3);
    pair.active.write(vec![1; 40]);
    pair.active.advertise(vec![2; 200], 1);
    assert_eq!(send(&mut pair, Active), [0x05, 0x05, 0x05]);
    pair.settle();
    let uses = pair.passive.uses;
    assert_eq!((uses.written_in_part, uses.written_whole), (2, 1));
    finish(pair);
}

#[test]
fn short_runs_and_urgent_bytes_use_up_an_advertisement() {
    let mut pair = pipelined_with(Config {
        write_min: 50,
        ..SEVERAL_ADVERTS
    });
    offer_sinks(&mut pair, 3);
    pair.settle();
    pair.active.write(vec![1; 49]);
    assert_eq!(send(&mut pair, Active), [DATA]);
    pair.active.write(vec![2; 60]);
    pair.active.write_urgent(3);
    assert_eq!(send(&mut pair, Active), [0x05, DATA]);
    pair.settle();
    assert!(pair.passive.sinks.is_empty());
    assert_eq!(pair.passive.uses.not_written, 2);
    finish(pair);
}

#[test]
fn several_advertisements_are_read_at_once_and_reported_in_order() {
    let mut pair = pipelined();
    for byte in 1..=6 {
        pair.active.advertise(vec![byte; 200], 1);
    }
    assert_eq!(send(&mut pair, Active), [SRC_AVAIL; 4], "as many as agreed");
    pair.settle();
    assert_eq!(pair.passive.connection.readable(), 800);
    for _ in 0..4 {
        pair.passive.begin_read(u32::MAX);
    }
    assert_eq!(pair.passive.reads.len(), 4);
    pair.settle();
    assert_eq!(pair.kinds.get(&0x06), Some(&4));
    finish(pair);
}

#[test]
fn two_advertisements_that_wait_enter_pipelined_mode_if_the_peer_has_it() {
    for (adverts_max, expected) in [(4, Mode::Pipelined), (1, Mode::Combined)] {
        let peer = Config {
            adverts_max,
            ..SMALL
        };
        let mut pair = Pair::new(SEVERAL_ADVERTS, peer, [0, 0]);
        pair.passive.connection.handle_established();
        pair.active.advertise(vec![1; 200], 1);
        pair.active.advertise(vec![2; 200], 1);
        pair.settle();
        assert_eq!(pair.active.connection.send_mode(), expected);
        finish(pair);
    }
}

#[test]
fn a_sink_asks_for_pipelined_mode_with_its_next_report() {
    let mut pair = Pair::new(SEVERAL_ADVERTS, SEVERAL_ADVERTS, [0, 0]);
    pair.passive.connection.handle_established();
    pair.passive.connection.ask_pipelined();
    pair.active.advertise(vec![1; 200], 1);
    pair.drain();
    assert_eq!(pair.active.connection.send_mode(), Mode::Pipelined);
    finish(pair);
}

#[test]
fn a_request_is_sent_with_the_memory_for_its_answer() {
    let mut pair = pipelined();
    pair.passive.write(vec![7; 60]);
    offer_sinks(&mut pair, 1);
    assert_eq!(send(&mut pair, Passive), [SINK_AVAIL]);
    deliver(&mut pair, Active);
    pair.active.read(usize::MAX);
    assert_eq!(pair.active.received, [7; 60]);
    pair.active.write(vec![8; 150]);
    assert_eq!(send(&mut pair, Active), [0x05]);
    pair.settle();
    finish(pair);
}

#[test]
fn an_end_whose_sinks_use_up_the_limit_sends_its_own_data() {
    let one_each = Config {
        adverts_max: 2,
        ..SMALL
    };
    let mut pair = pipelined_with(one_each);
    offer_sinks(&mut pair, 2);
    assert_eq!(pair.passive.advertise_sink(150), None, "a third");
    pair.settle();
    pair.passive.advertise(vec![5; 300], 1);
    pair.settle();
    pair.active.read(usize::MAX);
    assert_eq!(pair.active.received.len(), 300);
    finish(pair);
}

/// SinkAvail and Data.
#[test]
fn data_that_crosses_a_sink_advertisement_uses_it_up() {
    // Messages with data, advertisements, and how many of these are written in the end.
    for (messages, adverts, valid) in [(0, 1, 1), (1, 1, 0), (2, 1, 0), (1, 2, 1), (2, 2, 0)] {
        let mut pair = sending_sinks(adverts);
        pair.active.write(vec![1; 100 * messages]);
        assert_eq!(send(&mut pair, Active).len(), messages);
        deliver(&mut pair, Passive);
        assert_eq!(pair.passive.sinks.len(), valid);
        deliver(&mut pair, Active);
        pair.active.write(vec![2; 150 * valid]);
        assert_eq!(send(&mut pair, Active), vec![0x05; valid]);
        finish(pair);
    }
}

#[test]
fn an_advertisement_after_data_counts_it() {
    let mut pair = pipelined();
    pair.active.write(vec![1; 100]);
    pair.drain();
    offer_sinks(&mut pair, 1);
    pair.settle();
    pair.active.write(vec![2; 150]);
    assert_eq!(send(&mut pair, Active), [0x05]);
    finish(pair);
}

#[test]
fn an_advertisement_that_was_not_sent_is_withdrawn_by_data() {
    for with_advert in [false, true] {
        let mut pair = pipelined();
        if with_advert {
            pair.active.advertise(vec![1; 100], 1);
        } else {
            pair.active.write(vec![1; 100]);
        }
        send(&mut pair, Active);
        offer_sinks(&mut pair, 1);
        deliver(&mut pair, Passive);
        assert!(pair.passive.sinks.is_empty());
        assert!(!send(&mut pair, Passive).contains(&SINK_AVAIL));
        finish(pair);
    }
}

/// SinkAvail and SrcAvail.
#[test]
fn a_sink_advertisement_revokes_those_of_the_source() {
    let mut pair = sending_sinks(1);
    pair.active.advertise(vec![1; 200], 1);
    pair.active.advertise(vec![2; 200], 1);
    assert_eq!(send(&mut pair, Active), [SRC_AVAIL, SRC_AVAIL]);
    deliver(&mut pair, Passive);
    assert_eq!(pair.passive.connection.readable(), 0, "dropped");
    deliver(&mut pair, Active);
    let kinds = send(&mut pair, Active);
    assert_eq!(kinds, [0x05, DATA, SRC_AVAIL][..kinds.len()]);
    finish(pair);
}

#[test]
fn a_source_advertisement_that_was_received_forbids_those_of_the_sink() {
    let mut pair = pipelined();
    pair.active.advertise(vec![1; 200], 1);
    pair.settle();
    assert_eq!(pair.passive.advertise_sink(150), None);
    finish(pair);
}

#[test]
fn a_stale_sink_advertisement_revokes_nothing() {
    let mut pair = sending_sinks(1);
    pair.active.write(vec![3; 50]);
    pair.active.advertise(vec![1; 200], 1);
    assert_eq!(send(&mut pair, Active), [DATA, SRC_AVAIL]);
    deliver(&mut pair, Passive);
    assert_eq!(pair.passive.connection.readable(), 200);
    deliver(&mut pair, Active);
    assert!(!pair.active.connection.is_drained());
    finish(pair);
}

/// SinkAvailCancel and RdmaWrCompl.
#[test]
fn a_cancel_of_memory_that_was_written_is_not_answered() {
    for cancel_first in [false, true] {
        let mut pair = with_sinks(2);
        pair.active.write(vec![1; 300]);
        pair.passive.connection.cancel_sinks();
        if cancel_first {
            assert_eq!(send(&mut pair, Passive), [0x09]);
            deliver(&mut pair, Active);
            assert_eq!(send(&mut pair, Active), [0x0a, DATA, DATA, DATA]);
        } else {
            assert_eq!(send(&mut pair, Active), [0x05, 0x05]);
            assert_eq!(send(&mut pair, Passive), [0x09]);
            deliver(&mut pair, Active);
            assert_eq!(send(&mut pair, Active), []);
        }
        pair.settle();
        assert!(pair.passive.sinks.is_empty());
        finish(pair);
    }
}

#[test]
fn a_cancel_is_answered_if_part_of_the_memory_was_not_written() {
    let mut pair = with_sinks(2);
    pair.passive.connection.cancel_sinks();
    assert_eq!(send(&mut pair, Passive), [0x09]);
    pair.active.write(vec![1; 20]);
    assert_eq!(send(&mut pair, Active), [0x05]);
    let third = pair.passive.advertise_sink(150);
    assert_eq!(third, None, "the cancel is in progress");
    deliver(&mut pair, Active);
    assert_eq!(send(&mut pair, Active), [0x0a]);
    pair.settle();
    finish(pair);
}

/// SinkAvailCancel and Data.
#[test]
fn a_cancel_of_memory_that_data_uses_up_is_not_answered() {
    for adverts in [1, 2] {
        let mut pair = sending_sinks(adverts);
        pair.passive.connection.cancel_sinks();
        send(&mut pair, Passive);
        pair.active.write(vec![1; 50]);
        assert_eq!(send(&mut pair, Active), [DATA]);
        deliver(&mut pair, Active);
        let answers = send(&mut pair, Active);
        assert_eq!(answers, vec![0x0a; adverts - 1]);
        pair.settle();
        assert!(pair.passive.sinks.is_empty());
        finish(pair);
    }
}

/// SinkAvail and SrcAvailCancel.
#[test]
fn a_sink_advertisement_ends_the_cancel_of_the_source() {
    for then in [OnCancel::Send, OnCancel::TakeBack] {
        let mut pair = sending_sinks(1);
        pair.active.advertise(vec![1; 200], 1);
        send(&mut pair, Active);
        pair.active.cancel(then, true);
        assert_eq!(send(&mut pair, Active), [0x08]);
        deliver(&mut pair, Active);
        deliver(&mut pair, Passive);
        assert_eq!(send(&mut pair, Passive), [], "a cancel of nothing");
        pair.active.advertise(vec![2; 90], 1);
        finish(pair);
    }
}

/// SrcAvailCancel and RdmaRdCompl.
#[test]
fn a_cancel_of_memory_that_was_read_is_not_answered() {
    for read_first in [false, true] {
        let mut pair = pipelined();
        pair.active.advertise(vec![1; 200], 1);
        pair.active.advertise(vec![2; 200], 1);
        send(&mut pair, Active);
        deliver(&mut pair, Passive);
        pair.passive.begin_read(u32::MAX);
        pair.passive.begin_read(u32::MAX);
        if !read_first {
            pair.active.cancel(OnCancel::TakeBack, true);
            send(&mut pair, Active);
            deliver(&mut pair, Passive);
        }
        while pair.serve_read(Passive) {}
        assert_eq!(send(&mut pair, Passive), [0x06, 0x06]);
        if read_first {
            pair.active.cancel(OnCancel::TakeBack, true);
            send(&mut pair, Active);
        }
        pair.settle();
        assert_eq!(pair.kinds.get(&0x04), None, "no SendSm");
        assert_eq!(pair.active.stream().0.len(), 400);
        finish(pair);
    }
}

#[test]
fn a_cancel_of_one_advertisement_offers_the_others_again() {
    let mut pair = pipelined();
    for byte in 1..=3 {
        pair.active.advertise(vec![byte; 200], 1);
    }
    send(&mut pair, Active);
    pair.active.cancel(OnCancel::TakeBack, false);
    pair.settle();
    assert_eq!(pair.kinds.get(&0x04), Some(&1));
    assert_eq!(pair.kinds.get(&SRC_AVAIL), Some(&5));
    assert_eq!(pair.active.stream().0.len(), 400);
    finish(pair);
}

/// SrcAvailCancel and SendSm.
#[test]
fn a_refusal_of_several_advertisements_crosses_a_cancel() {
    let mut pair = pipelined();
    pair.active.advertise(vec![1; 200], 1);
    pair.active.advertise(vec![2; 200], 1);
    send(&mut pair, Active);
    deliver(&mut pair, Passive);
    pair.passive.connection.refuse_advert();
    assert_eq!(send(&mut pair, Passive), [0x04]);
    pair.active.cancel(OnCancel::Send, true);
    assert_eq!(send(&mut pair, Active), [0x08]);
    pair.settle();
    assert_eq!(pair.kinds.get(&0x04), Some(&1), "one SendSm ends both");
    finish(pair);
}

/// SendSm, SrcAvail and SrcAvailCancel.
#[test]
fn a_cancel_of_advertisements_that_a_refusal_dropped_is_answered() {
    for then in [OnCancel::Send, OnCancel::TakeBack] {
        for cancel_first in [false, true] {
            let mut pair = pipelined();
            refuse(&mut pair);
            pair.active.advertise(vec![2; 200], 1);
            assert_eq!(send(&mut pair, Active), [SRC_AVAIL]);
            if cancel_first {
                pair.active.cancel(then, true);
                assert_eq!(send(&mut pair, Active), [0x08]);
            }
            deliver(&mut pair, Active);
            if !cancel_first {
                pair.active.cancel(then, true);
                assert!(!send(&mut pair, Active).contains(&0x08));
            }
            pair.settle();
            let expected = if cancel_first { 2 } else { 1 };
            assert_eq!(pair.kinds.get(&0x04), Some(&expected));
            let len = if then == OnCancel::Send { 400 } else { 200 };
            assert_eq!(pair.active.stream().0.len(), len);
            finish(pair);
        }
    }
}

/// SendSm and SrcAvail.
#[test]
fn an_advertisement_that_crosses_a_refusal_is_sent_again() {
    for crosses in [false, true] {
        let mut pair = pipelined();
        refuse(&mut pair);
        if !crosses {
            deliver(&mut pair, Active);
        }
        pair.active.advertise(vec![2; 200], 1);
        let kinds = send(&mut pair, Active);
        assert_eq!(kinds[0], if crosses { SRC_AVAIL } else { DATA });
        deliver(&mut pair, Passive);
        assert!(!crosses || pair.passive.connection.readable() == 0);
        finish(pair);
    }
}

/// ModeChange and SinkAvail.
#[test]
fn a_sink_advertisement_that_crosses_a_change_of_mode_is_used_up_as_before() {
    for (before, after) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let mut pair = sending_sinks(1);
        pair.active.write(vec![1; 100 * before]);
        send(&mut pair, Active);
        pair.active.connection.leave_pipelined();
        assert_eq!(send(&mut pair, Active), [MODE_CHANGE]);
        if after > 0 {
            pair.active.advertise(vec![2; 200], 1);
            assert_eq!(send(&mut pair, Active), [SRC_AVAIL]);
        }
        deliver(&mut pair, Active);
        deliver(&mut pair, Passive);
        let is_used = before + after > 0;
        assert_eq!(pair.passive.sinks.is_empty(), is_used);
        assert_eq!(pair.passive.advertise_sink(150), None, "not in this mode");
        if !is_used {
            pair.active.write(vec![3; 150]);
            assert_eq!(send(&mut pair, Active), [0x05]);
        }
        pair.settle();
        finish(pair);
    }
}

#[test]
fn a_source_leaves_pipelined_mode_when_nothing_is_advertised() {
    let mut pair = with_sinks(1);
    pair.active.connection.go_buffered();
    assert_eq!(send(&mut pair, Active), []);
    pair.active.write(vec![1; 20]);
    assert_eq!(send(&mut pair, Active), [0x05, MODE_CHANGE, MODE_CHANGE]);
    pair.settle();
    assert_eq!(pair.passive.connection.receive_mode(), Mode::Buffered);
    finish(pair);
}

/// DisConn, SinkAvail and SinkAvailCancel.
#[test]
fn the_end_of_the_stream_retires_sink_advertisements() {
    for cancels in [false, true] {
        for crosses in [false, true] {
            let mut pair = sending_sinks(1);
            if !crosses {
                deliver(&mut pair, Active);
            }
            if cancels {
                pair.passive.connection.cancel_sinks();
                send(&mut pair, Passive);
            }
            pair.active.connection.shut_send();
            send(&mut pair, Active);
            pair.settle();
            assert!(pair.passive.saw_end && pair.passive.sinks.is_empty());
            pair.passive.connection.shut_send();
            pair.settle();
            pair.disconnect_if_asked();
            assert_eq!(pair.active.failure, None);
            assert_eq!(pair.passive.failure, None);
        }
    }
}

#[test]
fn memory_of_a_reader_that_shuts_down_is_released() {
    for is_written in [false, true] {
        let mut pair = with_sinks(1);
        pair.passive.connection.shut_receive();
        if is_written {
            pair.active.write(vec![1; 20]);
            send(&mut pair, Active);
        }
        pair.settle();
        let expected = is_written.then_some(Failure::ReceivedAfterShutdown);
        assert_eq!(pair.passive.failure, expected);
        assert!(pair.passive.sinks.is_empty());
    }
}

/// ChRcvBuf and Data.
#[test]
fn larger_messages_follow_the_answer_and_smaller_ones_the_request() {
    for size in [316, 60] {
        let mut pair = Pair::new(
            Config {
                send_size_max: 1_000,
                ..SEVERAL_ADVERTS
            },
            SEVERAL_ADVERTS,
            [0, 0],
        );
        pair.passive.connection.handle_established();
        pair.active.write(vec![1; 300]);
        assert_eq!(send(&mut pair, Active).len(), 3);
        assert!(pair.active.connection.ask_buffers(size));
        send(&mut pair, Active);
        assert!(!pair.active.connection.ask_buffers(size), "one at a time");
        let expected = if size < 116 { 44 } else { 100 };
        assert_eq!(pair.active.connection.payload_max(), expected);
        // The engine in memory refuses to receive a message that is longer than its buffer.
        for _ in 0..6 {
            pair.active.write(vec![2; 300]);
            pair.drain();
        }
        assert_eq!(pair.active.connection.payload_max(), size - 16);
        pair.active.write(vec![3; 900]);
        pair.drain();
        let known = pair.passive.connection.sink_min();
        assert_eq!(known, size - 16);
        finish(pair);
    }
}

#[test]
fn a_refused_size_stays_as_it_is() {
    let mut pair = pipelined();
    assert!(pair.active.connection.ask_buffers(9_000));
    pair.settle();
    assert_eq!(pair.active.connection.payload_max(), 100);
    assert_eq!(pair.passive.uses.kept, 1);
    finish(pair);
}
