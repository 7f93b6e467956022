//! Every message in every situation, and every field of every message with other values.

use super::{engine::Engine, random::Random};
use crate::{
    Config, Connection, ConnectionState, Event, Failure, OnCancel, ProtocolError, Seq,
    wire::{
        Body, Flags, Hello, Message, Mode, ModeChange, SinkAvail, SrcAvail, TargetHalf, Version,
    },
};

/// An end that receives any message that the test forges.
struct Victim {
    engine: Engine,
    /// Messages that were sent to it, and messages that it has sent.
    sent: u32,
    received: u32,
}

const CONFIG: Config = Config {
    buffers: 16,
    buffer_size: 1_016,
    send_size_max: 1_016,
    adverts_max: 3,
    write_min: 1,
};

impl Victim {
    /// A passive end that has sent HelloAck.
    fn new() -> Self {
        let hello = Hello {
            bufs: 16,
            version: Version::OURS,
            takes_invalidate: false,
            adverts_max: 3,
            wanted_size: 1_016,
            own_size: 1_016,
            port: 1,
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
        };
        let (connection, _) = Connection::accept(CONFIG, &hello);
        Self {
            engine: Engine::new(connection, CONFIG.buffers, CONFIG.buffer_size),
            sent: 0,
            received: 0,
        }
    }

    fn established() -> Self {
        let mut victim = Self::new();
        victim.engine.connection.handle_established();
        victim.engine.take_events();
        victim
    }

    fn message(&self, body: Body, payload_len: u32) -> Vec<u8> {
        let message = Message {
            flags: Flags::default(),
            bufs: 16,
            seq: Seq(self.sent + 1),
            ack: Seq(self.received),
            body,
            payload_len,
        };
        let mut bytes = message.emit().as_bytes().to_vec();
        bytes.resize(bytes.len() + payload_len as usize, b'x');
        bytes
    }

    fn feed(&mut self, body: Body, payload_len: u32) {
        let bytes = self.message(body, payload_len);
        self.feed_bytes(&bytes);
    }

    fn feed_bytes(&mut self, bytes: &[u8]) {
        self.sent += 1;
        self.engine.receive(bytes);
    }

    /// Takes the frames that the victim sends. Returns their kinds.
    fn transmitted(&mut self) -> Vec<u8> {
        let mut kinds = Vec::new();
        while let Some(frame) = self.engine.transmit() {
            self.received += 1;
            kinds.push(frame.bytes[0]);
        }
        kinds
    }

    /// Checks an end that has ended.
    fn sends_nothing(&mut self) {
        let kinds = self.transmitted();
        assert_eq!(kinds, [], "an end that has ended sends nothing");
    }
}

type Prepare = fn(&mut Victim);

fn advertise(victim: &mut Victim) {
    victim.engine.advertise(vec![7; 100], 1);
    assert_eq!(victim.transmitted(), [0xfe]);
}

fn receive_advert(victim: &mut Victim) {
    victim.feed(SRC_AVAIL, 1);
}

fn go_pipelined(victim: &mut Victim) {
    victim.engine.connection.go_pipelined();
    assert_eq!(victim.transmitted(), [0x07]);
}

fn offer_sink(victim: &mut Victim) {
    victim.feed(change(TargetHalf::Receive, Mode::Pipelined), 0);
    victim.engine.advertise_sink(2_000).expect("may advertise");
    assert_eq!(victim.transmitted(), [0xfd]);
}

/// The situations, in the order of the columns below.
const SITUATIONS: [(&str, Prepare); 20] = [
    ("idle", |_| ()),
    ("advertising", advertise),
    ("cancelling", |victim| {
        advertise(victim);
        victim.engine.cancel(OnCancel::TakeBack, true);
        assert_eq!(victim.transmitted(), [0x08]);
    }),
    ("offered", receive_advert),
    ("reading", |victim| {
        receive_advert(victim);
        victim.engine.read(1);
        victim.engine.begin_read(50);
        assert_eq!(victim.engine.reads.len(), 1);
    }),
    ("refusing", |victim| {
        receive_advert(victim);
        victim.engine.connection.refuse_advert();
    }),
    ("buffered sink", |victim| {
        victim.feed(change(TargetHalf::Receive, Mode::Buffered), 0)
    }),
    ("pipelined sink", |victim| {
        victim.feed(change(TargetHalf::Receive, Mode::Pipelined), 0)
    }),
    ("buffered source", |victim| {
        victim.engine.connection.go_buffered();
        assert_eq!(victim.transmitted(), [0x07]);
    }),
    ("sent DisConn", |victim| {
        victim.engine.connection.shut_send();
        assert_eq!(victim.transmitted(), [0x02]);
    }),
    ("received DisConn", |victim| victim.feed(Body::DisConn, 0)),
    ("pipelined source", go_pipelined),
    ("advertising twice", |victim| {
        go_pipelined(victim);
        victim.engine.advertise(vec![7; 100], 1);
        victim.engine.advertise(vec![7; 100], 1);
        assert_eq!(victim.transmitted(), [0xfe, 0xfe]);
    }),
    ("has a sink advertisement", |victim| {
        go_pipelined(victim);
        victim.feed(SINK_AVAIL, 0);
    }),
    ("offered twice", |victim| {
        victim.feed(change(TargetHalf::Receive, Mode::Pipelined), 0);
        victim.feed(SRC_AVAIL, 0);
        victim.feed(SRC_AVAIL, 0);
    }),
    ("advertising a sink", offer_sink),
    ("cancelling a sink", |victim| {
        offer_sink(victim);
        victim.engine.connection.cancel_sinks();
        assert_eq!(victim.transmitted(), [0x09]);
    }),
    ("suspending", |victim| {
        assert!(victim.engine.connection.suspend(9));
        assert_eq!(victim.transmitted(), [0x0d]);
    }),
    ("asked to suspend", |victim| {
        advertise(victim);
        victim.feed(Body::SuspComm(7), 0);
        assert_eq!(victim.transmitted(), [0x08]);
    }),
    ("aborted", |victim| {
        victim.engine.connection.abort();
        victim.engine.take_events();
    }),
];

const SRC_AVAIL: Body = Body::SrcAvail(SrcAvail {
    len: 100,
    stag: 7,
    address: 0x10_0000,
});
const SINK_AVAIL: Body = sink_avail(2_000, 0);
const WRONG_COUNT: Body = sink_avail(2_000, 1);
const SHORT: Body = sink_avail(999, 0);

const fn sink_avail(len: u32, non_discards: u32) -> Body {
    Body::SinkAvail(SinkAvail {
        len,
        stag: 7,
        address: 0x10_0000,
        non_discards,
    })
}

const fn change(half: TargetHalf, mode: Mode) -> Body {
    Body::ModeChange(ModeChange { half, mode })
}

/// Rows are messages, columns are situations: `o` the message is accepted, `x` it violates a rule,
/// `X` it is received after DisConn, `a` it aborts the connection, `.` it is ignored.
#[rustfmt::skip]
const ROWS: [(&str, Body, u32, &str); 31] = [
    ("credit update",     Body::Data, 0,             "ooooooooooooooooooo."),
    ("Data",              Body::Data, 5,             "oooxxxooooXoooxooox."),
    ("SrcAvail",          SRC_AVAIL, 1,              "oooxxxxxooXoooxxxox."),
    ("bare SrcAvail",     SRC_AVAIL, 0,              "xxxxxxxoxxxxxxoooxx."),
    ("whole SrcAvail",    SRC_AVAIL, 100,            "xxxxxxxxxxxxxxxxxxx."),
    ("DisConn",           Body::DisConn, 0,          "oooxxxooooXoooxooox."),
    ("AbortConn",         Body::AbortConn, 0,        "xxxxxxxxxxaxxxxxxxx."),
    ("SendSm",            Body::SendSm, 0,           "ooooooooooooooooooo."),
    ("RdmaRdCompl part",  Body::RdmaRdCompl(40), 0,  "xooxxxxxxxxxoxxxxxo."),
    ("RdmaRdCompl all",   Body::RdmaRdCompl(99), 0,  "xooxxxxxxxxxoxxxxxo."),
    ("RdmaRdCompl more",  Body::RdmaRdCompl(100), 0, "xxxxxxxxxxxxoxxxxxx."),
    ("RdmaRdCompl none",  Body::RdmaRdCompl(0), 0,   "xxxxxxxxxxxxxxxxxxx."),
    ("SrcAvailCancel",    Body::SrcAvailCancel, 0,   "ooooooooooooooooooo."),
    ("to buffered",       change(TargetHalf::Receive, Mode::Buffered), 0,  "oooxxxxxooooooxxxoo."),
    ("to pipelined",      change(TargetHalf::Receive, Mode::Pipelined), 0, "ooooooxxooooooxxxoo."),
    ("to combined",       change(TargetHalf::Receive, Mode::Combined), 0,  "xxxxxxxoxxxxxxoooxx."),
    ("asks for combined", change(TargetHalf::Send, Mode::Combined), 0,     "xxxxxxxxoxxxxxxxxxx."),
    ("asks for buffered", change(TargetHalf::Send, Mode::Buffered), 0,     "xxxxxxxxxxxxxxxxxxx."),
    ("ChRcvBuf",          Body::ChRcvBuf(65_536), 0, "ooooooooooooooooooo."),
    ("ChRcvBufAck",       Body::ChRcvBufAck(9), 0,   "xxxxxxxxxxxxxxxxxxx."),
    ("SinkAvail",         SINK_AVAIL, 0,             "xxxxxxxxxxxoooxxxxx."),
    ("SinkAvail and data", SINK_AVAIL, 5,          "xxxxxxxxxxXoooxxxxx."),
    ("wrong NonDiscards", WRONG_COUNT, 0,          "xxxxxxxxxxxxxxxxxxx."),
    ("short SinkAvail",   SHORT, 0,                "xxxxxxxxxxxxxxxxxxx."),
    ("RdmaWrCompl part",  Body::RdmaWrCompl(7), 0, "xxxxxxxxxxxxxxxooxx."),
    ("RdmaWrCompl all",   Body::RdmaWrCompl(2_000), 0, "xxxxxxxxxxxxxxxooxx."),
    ("RdmaWrCompl more",  Body::RdmaWrCompl(2_001), 0, "xxxxxxxxxxxxxxxxxxx."),
    ("SinkCancelAck",     Body::SinkCancelAck, 0,  "xxxxxxxxxxxxxxxxoxx."),
    ("SinkAvailCancel",   Body::SinkAvailCancel, 0,  "ooooooooooooooooooo."),
    ("SuspComm",          Body::SuspComm(7), 0,      "ooooooooooXooooooxx."),
    ("SuspCommAck",       Body::SuspCommAck, 0,      "xxxxxxxxxxxxxxxxxox."),
];

/// Messages that are a violation in every situation.
const NEVER: [(&str, Body); 3] = [
    ("no RdmaWrCompl", Body::RdmaWrCompl(0)),
    ("ChRcvBufAck", Body::ChRcvBufAck(65_536)),
    (
        "asks for pipelined",
        change(TargetHalf::Send, Mode::Pipelined),
    ),
];

fn outcome(prepare: Prepare, body: Body, payload_len: u32) -> char {
    let mut victim = Victim::established();
    prepare(&mut victim);
    if victim.engine.connection.state().has_ended() {
        let before = victim.engine.failure;
        victim.feed(body, payload_len);
        assert_eq!(victim.engine.failure, before, "the first cause counts");
        victim.sends_nothing();
        return '.';
    }
    victim.feed(body, payload_len);
    match victim.engine.failure {
        None => 'o',
        Some(Failure::Protocol(ProtocolError::AfterDisConn(_))) => 'X',
        Some(Failure::PeerAborted) => 'a',
        Some(Failure::Protocol(_)) => {
            victim.sends_nothing();
            assert!(victim.engine.wants_disconnect);
            'x'
        }
        Some(other) => panic!("{other}"),
    }
}

/// One in this many rows and cases is tried. Under Miri each takes a thousand times as long, and
/// Miri is run to find undefined behaviour and not missed cases.
const ROW_STEP: usize = if cfg!(miri) { 5 } else { 1 };
const CASE_STEP: usize = if cfg!(miri) { 997 } else { 1 };

#[test]
fn every_message_in_every_situation() {
    for (name, body, payload_len, expected) in ROWS.into_iter().step_by(ROW_STEP) {
        let found: String = SITUATIONS
            .iter()
            .map(|(_, prepare)| outcome(*prepare, body, payload_len))
            .collect();
        assert_eq!(found, expected, "{name}");
    }
    for (name, body) in NEVER.into_iter().step_by(ROW_STEP) {
        for (situation, prepare) in &SITUATIONS[..19] {
            assert_eq!(outcome(*prepare, body, 0), 'x', "{name}, {situation}");
        }
    }
}

#[test]
fn every_violation_is_a_reset_for_the_user() {
    for (name, body, payload_len, expected) in ROWS.into_iter().step_by(ROW_STEP) {
        for ((situation, prepare), outcome) in SITUATIONS.iter().zip(expected.chars()) {
            let mut victim = Victim::established();
            prepare(&mut victim);
            victim.feed(body, payload_len);
            let kind = victim.engine.failure.map(Failure::error_kind);
            let expected = match outcome {
                'x' | 'X' | 'a' => Some(std::io::ErrorKind::ConnectionReset),
                '.' => Some(std::io::ErrorKind::ConnectionAborted),
                _ => None,
            };
            assert_eq!(kind, expected, "{name}, {situation}");
        }
    }
}

#[test]
fn a_reader_that_has_left_resets_and_a_writer_that_has_left_gets_a_broken_pipe() {
    let mut victim = Victim::established();
    victim.engine.connection.shut_receive();
    victim.feed(Body::Data, 0);
    assert_eq!(victim.engine.failure, None);
    victim.feed(Body::Data, 1);
    assert_eq!(victim.engine.failure, Some(Failure::ReceivedAfterShutdown));

    let mut victim = Victim::established();
    victim.feed(Body::DisConn, 0);
    victim.engine.connection.shut_send();
    victim.feed(Body::AbortConn, 0);
    let failure = victim.engine.failure.expect("the peer aborted");
    assert_eq!(failure.error_kind(), std::io::ErrorKind::BrokenPipe);
}

/// Every message of the table, in every situation, with every byte of its headers set to other
/// values. Nothing panics, and the victim still ends properly.
#[test]
fn every_field_with_other_values() {
    const OFFSETS: usize = 36;
    const VALUES: [u8; 5] = [0x00, 0x01, 0x7f, 0x80, 0xff];
    let cases = ROWS.len() * SITUATIONS.len() * OFFSETS * VALUES.len();
    assert!(cases > 40_000);
    for case in (0..cases).step_by(CASE_STEP) {
        let (case, value) = (case / VALUES.len(), VALUES[case % VALUES.len()]);
        let (case, at) = (case / OFFSETS, case % OFFSETS);
        let (_, prepare) = SITUATIONS[case % SITUATIONS.len()];
        let (_, body, payload_len, _) = ROWS[case / SITUATIONS.len()];
        let mut victim = Victim::established();
        prepare(&mut victim);
        let mut bytes = victim.message(body, payload_len);
        let Some(byte) = bytes.get_mut(at) else {
            continue;
        };
        *byte = value;
        victim.feed_bytes(&bytes);
        finish(victim);
    }
}

#[test]
fn every_length_that_is_not_the_message_s() {
    for (name, body, payload_len, _) in ROWS.into_iter().step_by(ROW_STEP) {
        let whole = Victim::established().message(body, payload_len);
        for len in (0..whole.len()).chain([whole.len() + 1, 1_000]) {
            let mut victim = Victim::established();
            let mut bytes = whole.clone();
            bytes.resize(len, 0);
            victim.feed_bytes(&bytes);
            let failure = victim.engine.failure;
            let is_wire_error = matches!(failure, Some(Failure::Protocol(ProtocolError::Wire(_))));
            assert!(is_wire_error, "{name}, {len} bytes: {failure:?}");
        }
    }
}

/// Streams of messages that are mostly valid, from a peer that follows no rule.
#[test]
fn a_peer_that_keeps_no_rule() {
    let (mut ended, mut lived) = (0, 0);
    for seed in 0..if cfg!(miri) { 2 } else { 4_000 } {
        let mut random = Random::new(seed);
        let mut victim = Victim::new();
        for _ in 0..60 {
            let (_, body, payload_len, _) = if random.chance(97) {
                ROWS[random.one_of(&[0, 1, 7, 12, 18, 28])]
            } else {
                random.one_of(&ROWS)
            };
            let mut bytes = victim.message(body, payload_len);
            if random.chance(2) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
            }
            match random.below(6) {
                0 => victim.engine.write(vec![1; 300]),
                1 => drop(victim.engine.advertise(vec![2; 300], 9)),
                2 => victim.engine.begin_read(random.below(99) as u32),
                3 => victim.engine.cancel(OnCancel::TakeBack, random.chance(50)),
                4 => victim.engine.connection.refuse_advert(),
                _ => victim.engine.write_urgent(3),
            }
            victim.transmitted();
            victim.engine.read(usize::MAX);
            if random.chance(60) {
                victim.feed_bytes(&bytes);
            }
        }
        let has_failed = victim.engine.failure.is_some();
        *(if has_failed { &mut ended } else { &mut lived }) += 1;
        finish(victim);
    }
    let is_mixed = ended > 100 && lived > 5;
    assert!(is_mixed || cfg!(miri), "{ended} ended, {lived} lived");
}

/// Checks that the victim ends and releases all memory, whatever was received before.
fn finish(mut victim: Victim) {
    victim.transmitted();
    victim.engine.read(usize::MAX);
    victim.engine.disconnected();
    if victim.engine.connection.continues_at().is_some() {
        // The peer has suspended the connection, and nobody answers at its service.
        let local = ([192, 0, 2, 2], 1).into();
        victim.engine.resume(local, [192, 0, 2, 1].into());
        victim.engine.disconnected();
    }
    assert!(victim.engine.has_ended());
    assert_eq!(victim.engine.connection.poll_transmit(), None);
    assert!(!victim.engine.connection.write(1));
    let event = victim.engine.connection.poll_event();
    assert_eq!(event, None::<Event>);
    let state = victim.engine.connection.state();
    assert_ne!(state, ConnectionState::Established);
}
