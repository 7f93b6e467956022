//! Two connections that follow the rules, over a pipe that splits at random.

use super::engine::{
    Engine, Event, Pair, Prng, SEND, atomic, config, immediate, read, request, with_rtr, write,
};
use crate::{
    CompletionStatus, Config, Connection, Delivery, Ends, PostError, Role, Stag, StreamState,
    TransmitPayload, WorkKind,
    wire::{mpa::RtrKind, rdmap::AtomicOp},
};

/// Miri takes a second for some kilobytes. So there is one random split instead of many; one long
/// message covers the same cases as shorter ones.
const SEEDS: u64 = if cfg!(miri) { 1 } else { 8 };

/// Sizes around every boundary of a segment of 1442 bytes, and some that need many segments.
const SIZES: &[usize] = if cfg!(miri) {
    &[0, 1, 3, 4, 63, 64, 114, 1429, 3_000]
} else {
    &[
        0, 1, 3, 4, 63, 64, 110, 114, 1424, 1425, 1428, 1429, 5_000, 70_001,
    ]
};

/// A message of more than one segment.
const LONG: u32 = if cfg!(miri) { 1_500 } else { 5_000 };

#[test]
fn sends_of_every_size_arrive_in_order() {
    for seed in 1..=SEEDS {
        let mut pair = Pair::operational(seed);
        let mut prng = Prng::new(seed + 100);
        let messages: Vec<_> = SIZES.iter().map(|len| prng.bytes(*len)).collect();
        for (index, message) in messages.iter().enumerate() {
            let index = index as u64;
            for (sender, receiver) in [(0, 1), (1, 0)] {
                side(&mut pair, receiver).post_receive(1000 + index, 70_010);
                side(&mut pair, sender).post_send(index, message.clone());
            }
        }
        pair.run();
        for which in [0, 1] {
            let side = side(&mut pair, which);
            let lengths = SIZES
                .iter()
                .zip(1000..)
                .map(|(len, token)| (token, *len as u32));
            assert_eq!(side.received(), lengths.collect::<Vec<_>>(), "seed {seed}");
            let tokens = 0..SIZES.len() as u64;
            assert_eq!(side.completed(), tokens.collect::<Vec<_>>(), "seed {seed}");
            for (message, token) in messages.iter().zip(1000..) {
                assert_eq!(
                    &side.buffers[&token][..message.len()],
                    message,
                    "seed {seed}"
                );
            }
        }
    }
}

#[test]
fn writes_and_reads_of_every_size_are_byte_exact() {
    for seed in 1..=SEEDS {
        let mut pair = Pair::operational(seed);
        let mut prng = Prng::new(seed + 200);
        let source = prng.bytes(SIZES[SIZES.len() - 1] + 1000);
        pair.responder.register(0x100, 1 << 40, source.clone());
        pair.responder.register(0x200, 7, vec![0; 500_000]);
        pair.initiator.register(0x300, 0, vec![0; 500_000]);
        let (mut at, mut token, mut expected) = (0_u64, 0, Vec::new());
        for &len in SIZES {
            let start = prng.below(source.len() - len);
            let message = &source[start..start + len];
            let write = write(0x200, 7 + at);
            pair.initiator.post(token, write, message.to_vec(), false);
            let from = (0x100, (1 << 40) + start as u64);
            pair.initiator
                .post_read(token + 1, from, (0x300, at), len as u32, false);
            expected.extend_from_slice(message);
            at += len as u64;
            token += 2;
        }
        pair.run();
        assert_eq!(
            pair.initiator.completed(),
            (0..token).collect::<Vec<_>>(),
            "seed {seed}"
        );
        let written = pair
            .responder
            .memory
            .slice(Stag(0x200), 7, expected.len())
            .to_vec();
        assert!(written == expected, "writes, seed {seed}");
        let read = pair
            .initiator
            .memory
            .slice(Stag(0x300), 0, expected.len())
            .to_vec();
        assert!(read == expected, "reads, seed {seed}");
        assert!(pair.initiator.conn.is_idle() && pair.responder.conn.is_idle());
    }
}

#[test]
fn long_frames_carry_equal_parts_of_whole_pages() {
    let cut = |mulpdu, len: usize| -> Vec<usize> {
        let mut conn = Connection::new(Config {
            mulpdu,
            ..config(Role::Initiator)
        });
        conn.post(request(1, write(1, 0), len as u32))
            .expect("the queue has room");
        let frames = std::iter::from_fn(|| conn.poll_transmit());
        frames.map(|fpdu| fpdu.payload_len()).collect()
    };
    assert_eq!(cut(64_768, 64_754), [64_754], "all that fits goes in one");
    assert_eq!(cut(64_768, 64_755), [32_768, 31_987]);
    assert_eq!(cut(64_768, 65_536), [32_768; 2]);
    assert_eq!(cut(64_768, 65_552), [36_864, 28_688]);
    assert_eq!(
        cut(32_782, 98_304),
        [32_768; 3],
        "what fits exactly is not made smaller"
    );
    let parts = cut(64_768, 1 << 20);
    assert_eq!(parts.iter().sum::<usize>(), 1 << 20);
    let (last, whole) = parts.split_last().expect("there are some");
    assert!(whole.iter().all(|len| len % 4096 == 0), "{parts:?}");
    assert!(
        parts.len() == 18 && whole.iter().all(|len| len - last <= 8192),
        "{parts:?}"
    );
    assert_eq!(
        cut(16_398, 20_000),
        [16_384, 3_616],
        "short frames are filled"
    );
}

#[test]
fn traffic_of_all_kinds_in_both_directions_completes_in_order() {
    const SEEDS: u64 = if cfg!(miri) { 1 } else { 20 };
    const REQUESTS: u64 = if cfg!(miri) { 20 } else { 60 };
    const LEN_MAX: usize = if cfg!(miri) { 400 } else { 4_000 };
    for seed in 1..=SEEDS {
        let mut pair = Pair::operational(seed);
        let mut prng = Prng::new(seed + 300);
        for which in [0, 1] {
            let side = side(&mut pair, which);
            side.register(0x10, 0, prng.bytes(10_000));
            side.register(0x20, 0, vec![0; 10_000]);
            for token in 500..600 {
                side.post_receive(token, LEN_MAX as u32);
            }
        }
        for token in 0..REQUESTS {
            for which in [0, 1] {
                let len = prng.below(LEN_MAX);
                let bytes = prng.bytes(len);
                let fence = prng.below(4) == 0;
                let kind = match prng.below(5) {
                    0 | 1 => WorkKind::Send {
                        solicited: token % 2 == 0,
                        invalidate: None,
                    },
                    2 => write(0x20, 5_000),
                    3 => immediate([token as u8; 8], false),
                    _ => {
                        let side = side(&mut pair, which);
                        side.post_read(token, (0x10, 17), (0x20, 0), len as u32, fence);
                        continue;
                    }
                };
                side(&mut pair, which).post(token, kind, bytes, fence);
            }
        }
        pair.run();
        for which in [0, 1] {
            let side = side(&mut pair, which);
            assert!(side.predicted > 0, "half of what can be is placed early");
            let tokens: Vec<_> = (0..REQUESTS).collect();
            assert_eq!(side.completed(), tokens, "seed {seed}");
            assert!(side.outstanding_max <= 4, "ORD is 4");
            assert!(side.conn.is_idle());
        }
    }
}

#[test]
fn reads_beyond_ord_wait_and_delay_the_work_after_them() {
    let mut pair = Pair::operational(1);
    pair.responder.register(0x10, 0, vec![7; 100]);
    pair.initiator.register(0x20, 0, vec![0; 100]);
    pair.responder.post_receive(100, 10);
    for token in 0..6 {
        pair.initiator
            .post_read(token, (0x10, 0), (0x20, token * 10), 10, false);
    }
    pair.initiator.post_send(6, b"behind".to_vec());
    pair.initiator.transmit_all();
    assert_eq!(pair.initiator.conn.outstanding_reads(), 4);
    assert!(!pair.initiator.conn.has_transmit());
    pair.run();
    assert_eq!(pair.initiator.completed(), (0..7).collect::<Vec<_>>());
    assert_eq!(pair.initiator.outstanding_max, 4);
    assert_eq!(pair.responder.received(), [(100, 6)]);
}

#[test]
fn fenced_work_waits_for_earlier_reads_and_unfenced_does_not() {
    let mut pair = Pair::operational(1);
    pair.responder.register(0x10, 0, vec![7; 100]);
    pair.initiator.register(0x20, 0, vec![0; 100]);
    pair.responder.post_receive(100, 10);
    pair.responder.post_receive(101, 10);
    pair.initiator.post_read(0, (0x10, 0), (0x20, 0), 10, false);
    pair.initiator.post_send(1, b"a".to_vec());
    let fenced = SEND;
    pair.initiator.post(2, fenced, b"b".to_vec(), true);
    let ends = |token| Some(Some(Ends::WorkRequest { token }));
    assert_eq!(
        pair.initiator.transmit_one(9999).map(|fpdu| fpdu.ends),
        ends(0)
    );
    assert_eq!(
        pair.initiator.transmit_one(9999).map(|fpdu| fpdu.ends),
        ends(1)
    );
    assert_eq!(pair.initiator.transmit_one(9999), None, "the fence holds");
    pair.run();
    assert_eq!(pair.initiator.completed(), [0, 1, 2]);
    assert_eq!(pair.responder.received(), [(100, 1), (101, 1)]);
}

#[test]
fn answers_and_local_work_take_turns_without_interrupting_a_message() {
    let mut pair = Pair::operational(1);
    pair.responder.register(0x10, 0, vec![7; 4_000]);
    pair.initiator.register(0x20, 0, vec![0; 4_000]);
    for token in 0..3 {
        pair.initiator
            .post_read(token, (0x10, 0), (0x20, 0), 4_000, false);
    }
    pair.initiator.transmit_all();
    let requests = pair.initiator.take_sent();
    pair.responder.receive(&requests).expect("legal requests");
    for token in 10..13 {
        pair.responder.post_send(token, vec![1; 4_000]);
    }
    let mut sources = Vec::new();
    while let Some(fpdu) = pair.responder.transmit_one(9999) {
        sources.push(matches!(fpdu.payload, TransmitPayload::ReadResponse { .. }));
    }
    let messages: Vec<_> = sources.chunks(3).collect();
    assert_eq!(messages.len(), 6, "three segments a message");
    for pair in messages.windows(2) {
        assert!(
            pair[0].iter().all(|answer| *answer == pair[0][0]),
            "no interleaving"
        );
        assert_ne!(pair[0][0], pair[1][0], "taking turns");
    }
}

#[test]
fn each_rtr_kind_opens_the_responder_and_is_hidden_from_its_consumer() {
    for kind in [RtrKind::Send, RtrKind::Write, RtrKind::Read] {
        let rtr = Some(kind);
        // IRD and ORD of 0: the zero-length read is exempt.
        let side = |role| Config {
            rtr,
            ird: 0,
            ord: 0,
            ..config(role)
        };
        let mut pair = Pair::new(side(Role::Initiator), side(Role::Responder), 5);
        pair.responder.post_receive(1, 10);
        pair.initiator.post_receive(1, 10);
        pair.responder.post_send(2, b"early".to_vec());
        assert!(
            !pair.responder.conn.has_transmit(),
            "silent before the first FPDU"
        );
        assert_eq!(pair.responder.conn.state(), StreamState::AwaitFirstFpdu);
        pair.initiator.post_send(3, b"data".to_vec());
        pair.run();
        assert_eq!(pair.responder.conn.state(), StreamState::Operational);
        assert_eq!(pair.responder.count(&Event::ReadyToReceive), 1, "{kind:?}");
        assert_eq!(pair.responder.received(), [(1, 4)], "{kind:?}");
        assert_eq!(pair.initiator.received(), [(1, 5)], "{kind:?}");
        assert_eq!(
            pair.initiator.completed(),
            [3],
            "the RTR is nobody's work request"
        );
        assert!(pair.initiator.conn.is_idle());
    }
}

#[test]
fn only_the_first_fpdu_can_mean_ready_to_receive() {
    let mut pair = Pair::operational(5);
    pair.responder.post_receive(1, 10);
    pair.initiator.register(0x20, 0, Vec::new());
    pair.initiator.post(1, write(0, 0), Vec::new(), false);
    pair.initiator.post_read(2, (0, 0), (0x20, 0), 0, false);
    pair.initiator.post_send(3, Vec::new());
    pair.run();
    assert_eq!(
        pair.responder.count(&Event::ReadyToReceive),
        1,
        "the one of the set-up"
    );
    assert_eq!(pair.responder.deliveries()[0], Delivery::Write);
    assert_eq!(pair.responder.received(), [(1, 0)]);
    assert_eq!(pair.initiator.completed(), [1, 2, 3]);
}

#[test]
fn without_peer_to_peer_the_first_message_opens_the_responder() {
    let mut pair = Pair::new(config(Role::Initiator), config(Role::Responder), 5);
    pair.responder.post_receive(1, 10);
    pair.initiator.post_receive(1, 10);
    pair.responder.post_send(2, b"answer".to_vec());
    pair.run();
    assert_eq!(pair.initiator.received(), [], "the responder is silent");
    pair.initiator.post_send(3, Vec::new());
    pair.run();
    assert_eq!(
        pair.responder.received(),
        [(1, 0)],
        "an empty Send is a message like any other"
    );
    assert_eq!(pair.initiator.received(), [(1, 6)]);
}

#[test]
fn empty_send_first_is_a_message_unless_it_was_agreed_on_as_rtr() {
    let rtr = Some(RtrKind::Write);
    let mut responder = Engine::new(with_rtr(Role::Responder, rtr));
    responder.post_receive(1, 10);
    let mut initiator = Engine::new(config(Role::Initiator));
    initiator.post_send(1, Vec::new());
    initiator.transmit_all();
    let bytes = initiator.take_sent();
    responder.receive(&bytes).expect("legal");
    assert_eq!(
        (
            responder.received(),
            responder.count(&Event::ReadyToReceive)
        ),
        (vec![(1, 0)], 0)
    );
}

#[test]
fn atomics_change_the_peer_memory_and_return_what_it_was() {
    let mut pair = Pair::operational(3);
    pair.responder
        .register(0x10, 0x1000, 41_u64.to_be_bytes().to_vec());
    let atomic = |op| atomic(op, 0x10, 0x1000);
    let swap = AtomicOp::CmpSwap {
        swap: 7,
        swap_mask: u64::MAX,
        compare: 46,
        compare_mask: u64::MAX,
    };
    pair.initiator.post(
        1,
        atomic(AtomicOp::FetchAdd { add: 5, mask: 0 }),
        Vec::new(),
        false,
    );
    pair.initiator.post(2, atomic(swap), Vec::new(), false);
    pair.initiator.post(3, atomic(swap), Vec::new(), false);
    pair.run();
    assert_eq!(pair.initiator.atomic_results(), [(1, 41), (2, 46), (3, 7)]);
    assert_eq!(pair.initiator.completed(), [1, 2, 3]);
    assert!(
        pair.initiator
            .completions
            .iter()
            .all(|completion| completion.len == 8)
    );
    assert_eq!(
        pair.responder.memory.slice(Stag(0x10), 0x1000, 8),
        7_u64.to_be_bytes()
    );
}

#[test]
fn invalidation_and_solicited_event_reach_the_receiver() {
    for (solicited, invalidate) in [
        (false, None),
        (true, None),
        (false, Some(Stag(0x10))),
        (true, Some(Stag(0x10))),
    ] {
        let mut pair = Pair::operational(3);
        pair.responder.register(0x10, 0, vec![0; 8]);
        pair.responder.post_receive(1, LONG);
        let kind = WorkKind::Send {
            solicited,
            invalidate,
        };
        pair.initiator.post(1, kind, vec![9; LONG as usize], false);
        pair.run();
        let expected = Delivery::Receive {
            token: 1,
            len: LONG,
            solicited,
            invalidate,
            immediate: None,
        };
        assert_eq!(
            pair.responder.deliveries(),
            [expected],
            "once, with the last segment"
        );
    }
}

#[test]
fn immediate_data_reports_the_length_of_the_write_before_it() {
    let write = |to| write(0x10, to);
    let immediate = || immediate([7; 8], false);
    let send = || SEND;
    let rows = [
        (
            "a Write",
            vec![(write(0), LONG as usize), (immediate(), 0)],
            vec![LONG],
        ),
        (
            "two Writes",
            vec![(write(0), LONG as usize), (write(9), 3), (immediate(), 0)],
            vec![3],
        ),
        (
            "one after the other",
            vec![(write(0), 7), (immediate(), 0), (immediate(), 0)],
            vec![7, 0],
        ),
        (
            "an empty Write",
            vec![(write(0), 7), (write(0), 0), (immediate(), 0)],
            vec![0],
        ),
        (
            "a Send between",
            vec![(write(0), 7), (send(), 2), (immediate(), 0)],
            vec![2, 0],
        ),
        ("none", vec![(immediate(), 0)], vec![0]),
    ];
    for (name, work, lengths) in rows {
        let mut pair = Pair::operational(3);
        pair.responder.register(0x10, 0, vec![0; 8_000]);
        for (token, (kind, len)) in (0..).zip(work) {
            pair.responder.post_receive(100 + token, 10);
            pair.initiator.post(token, kind, vec![9; len], false);
        }
        pair.run();
        let received = pair.responder.received();
        let received: Vec<u32> = received.iter().map(|(_, len)| *len).collect();
        assert_eq!(received, lengths, "{name}");
    }
}

#[test]
fn a_read_between_write_and_immediate_data_changes_nothing() {
    let mut pair = Pair::operational(3);
    pair.responder.register(0x10, 0, vec![7; 8_000]);
    pair.initiator.register(0x20, 0, vec![0; 100]);
    pair.responder.post_receive(100, 0);
    let write = write(0x10, 0);
    let immediate = immediate([7; 8], false);
    pair.initiator.post(0, write, vec![9; LONG as usize], false);
    pair.initiator.post_read(1, (0x10, 0), (0x20, 0), 10, false);
    pair.initiator.post(2, immediate, Vec::new(), false);
    pair.run();
    assert_eq!(pair.responder.received(), [(100, LONG)]);
}

#[test]
fn work_that_cannot_be_done_is_refused_when_posted() {
    use PostError::{Misaligned, NoOutboundReads, QueueFull, Unsupported};
    let add = |to| atomic(AtomicOp::FetchAdd { add: 1, mask: 0 }, 0, to);
    let (read, immediate) = (read((0, 0), (0, 0)), immediate([0; 8], false));
    type Change = fn(&mut Config);
    let rows: [(Change, WorkKind, Result<(), PostError>); 6] = [
        (|it| it.ord = 0, read, Err(NoOutboundReads)),
        (|it| it.rfc7306 = false, add(0), Err(Unsupported)),
        (|it| it.rfc7306 = false, immediate, Err(Unsupported)),
        (|_| (), add(4), Err(Misaligned)),
        (|it| it.send_queue_len = 0, immediate, Err(QueueFull)),
        (|_| (), immediate, Ok(())),
    ];
    for (change, kind, expected) in rows {
        let mut config = config(Role::Initiator);
        change(&mut config);
        let posted = Connection::new(config).post(request(0, kind, 1));
        assert_eq!(posted, expected, "{kind:?}");
    }
}

#[test]
fn fpdus_have_the_segment_sizes_of_the_standard() {
    // RFC 5041 section 5.2: 2048 bytes at MULPDU 1500.
    let mut engine = Engine::new(Config {
        mulpdu: 1500,
        ..config(Role::Initiator)
    });
    engine.post_send(1, vec![0; 2048]);
    engine.post(2, write(1, 0), vec![0; 2048], false);
    let mut lengths = Vec::new();
    while let Some(fpdu) = engine.transmit_one(9999) {
        lengths.push(fpdu.payload_len());
    }
    assert_eq!(lengths, [1482, 566, 1486, 562]);
}

#[test]
fn end_of_the_stream_flushes_what_is_left_in_order() {
    let mut pair = Pair::operational(3);
    pair.responder.register(0x10, 0, vec![0; 8]);
    pair.initiator.register(0x20, 0, vec![0; 8]);
    pair.initiator.post_send(1, Vec::new());
    pair.initiator.post_read(2, (0x10, 0), (0x20, 0), 8, false);
    pair.initiator.post_send(3, vec![1]);
    pair.initiator.transmit_all();
    pair.initiator.post_send(4, vec![1; 1000]);
    pair.initiator.transmit_one(128).expect("a part");
    pair.initiator.post_send(5, vec![1]);
    assert_eq!(
        pair.initiator.conn.poll_flushed(),
        None,
        "not while the stream lives"
    );
    pair.initiator.conn.on_llp_closed();
    let flushed: Vec<_> = std::iter::from_fn(|| pair.initiator.conn.poll_flushed()).collect();
    assert_eq!(pair.initiator.completed(), [1]);
    assert_eq!(
        flushed.iter().map(|done| done.token).collect::<Vec<_>>(),
        [2, 3, 4, 5]
    );
    assert!(
        flushed
            .iter()
            .all(|done| done.status == CompletionStatus::Flushed)
    );
    let late = pair.initiator.conn.post(request(6, SEND, 0));
    assert_eq!(late, Err(PostError::Ended));
}

fn side(pair: &mut Pair, which: usize) -> &mut Engine {
    if which == 0 {
        &mut pair.initiator
    } else {
        &mut pair.responder
    }
}

#[test]
fn a_message_sent_at_once_is_the_one_that_would_have_been_queued() {
    let kinds = [
        SEND,
        WorkKind::Send {
            solicited: true,
            invalidate: Some(Stag(9)),
        },
        write(7, 1 << 40),
    ];
    let (mut queued, mut at_once) = (Pair::operational(1), Pair::operational(1));
    for (token, kind) in kinds.into_iter().cycle().take(9).enumerate() {
        let len = token as u32 * 100;
        let connection = &mut queued.initiator.conn;
        connection.post(request(0, kind, len)).unwrap();
        let expected = connection.poll_transmit().unwrap();
        let fpdu = at_once.initiator.conn.transmit_now(kind, len).unwrap();
        assert_eq!(fpdu.header(), expected.header());
        assert_eq!(fpdu.payload_len(), expected.payload_len());
        assert_eq!(fpdu.ends, None, "the engine keeps account of it");
    }
}

#[test]
fn nothing_is_sent_at_once_that_would_overtake_or_does_not_fit() {
    let send = SEND;
    let mut pair = Pair::operational(1);
    let connection = &mut pair.initiator.conn;
    let longest = (connection.config().mulpdu - 18) as u32;
    assert!(connection.transmit_now(send, longest + 1).is_none());
    assert!(connection.transmit_now(send, longest).is_some());
    let read = read((1, 0), (2, 0));
    assert!(connection.transmit_now(read, 1).is_none());
    connection.post(request(1, send, 1)).unwrap();
    assert!(
        connection.transmit_now(send, 1).is_none(),
        "older work waits"
    );
    assert!(connection.poll_transmit().is_some());
    assert!(connection.transmit_now(send, 1).is_some());
    connection.on_llp_closed();
    assert!(
        connection.transmit_now(send, 1).is_none(),
        "the stream is over"
    );
}
