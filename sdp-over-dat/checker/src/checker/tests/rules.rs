//! For each rule, a conversation that keeps the rule and one that breaks it.

use super::script::{
    ABORT_CONN, Connection, DIS_CONN, HELLO, HELLO_ACK, Message, ROOM, SEND_SM, SINK_CANCEL,
    SINK_CANCEL_ACK, SINK_TO_COMBINED, SIZE, SRC_CANCEL, SUSP_COMM, SUSP_COMM_ACK,
    Step::{self, Delivers, Receives, Sends},
    TO_BUFFERED, TO_COMBINED, TO_PIPELINED, UPDATE, data, mode, read, resize, resized, sink_avail,
    src_avail, verdict, written,
};
use crate::{
    Broken,
    Side::{Active, Passive},
};

/// A rule: a conversation, a message that may follow, and one that may not.
struct Rule {
    before: Vec<Step>,
    good: Step,
    bad: Step,
    broken: Broken,
}

fn rule(before: &[Step], good: Step, bad: Step, broken: Broken) -> Rule {
    Rule {
        before: before.to_vec(),
        good,
        bad,
        broken,
    }
}

/// MaxAdverts of both ends in these tests.
const ADVERTS: u8 = 3;

fn check(rules: &[Rule]) {
    for Rule {
        before,
        good,
        bad,
        broken,
    } in rules
    {
        let with = |last: &Step| verdict(ADVERTS, &[&before[..], &[*last]].concat());
        assert_eq!(with(good), Ok(()), "{broken:?}: {before:?}, {good:?}");
        assert_eq!(with(bad), Err(*broken), "{before:?}, {bad:?}");
    }
}

/// Checks rules, each of which is a conversation; a message that may follow; and one that may not,
/// with the name of the rule.
macro_rules! rules {
    ($($before:expr; $good:expr; not $bad:expr => $broken:ident,)+) => {
        check(&[$(rule($before, $good, $bad, Broken::$broken)),+])
    };
}

/// The active side is the source, in pipelined mode.
const PIPELINED: Step = Delivers(Active, TO_PIPELINED);
/// A source advertisement in combined mode.
const ADVERT: Step = Delivers(Active, src_avail(500, 1));
/// A source advertisement in pipelined mode.
const PIPELINED_ADVERT: Step = Delivers(Active, src_avail(500, 0));
/// A sink advertisement after no data.
const SINK: Step = Delivers(Passive, sink_avail(500, 0));

const fn active(message: Message) -> Step {
    Delivers(Active, message)
}

const fn passive(message: Message) -> Step {
    Delivers(Passive, message)
}

#[test]
fn forms() {
    rules! {
        &[]; active(UPDATE); not active(HELLO) => Kind,
        &[]; active(UPDATE); not active(HELLO_ACK) => Kind,
        &[ADVERT]; passive(SEND_SM); not passive(SEND_SM.payload(1)) => PayloadOnControl,
        &[ADVERT]; passive(read(9).flags(4)); not passive(SEND_SM.flags(4)) => PipelineHint,
        &[]; active(data(1).flags(3)); not active(data(1).flags(1)) => UrgentUnannounced,
        &[active(UPDATE.flags(2))]; active(data(1).flags(1));
            not active(src_avail(9, 1).flags(1)) => UrgentWithoutByte,
        &[active(UPDATE.flags(2))]; active(data(1).flags(1)); not active(DIS_CONN) => UrgentMissing,
        &[active(DIS_CONN)]; active(UPDATE); not active(UPDATE.flags(2)) => UrgentMissing,
        &[]; active(TO_PIPELINED); not active(mode(0x30)) => ModeForm,
        &[]; active(TO_PIPELINED); not active(mode(0x21)) => ModeForm,
        &[]; active(data(ROOM)); not active(data(ROOM + 1)) => TooLong,
    }
}

#[test]
fn advertisements_of_the_source() {
    rules! {
        &[]; active(src_avail(2, 1)); not active(src_avail(1, 1)) => AdvertForm,
        &[]; active(src_avail(2, 1)); not active(src_avail(2, 0)) => AdvertForm,
        &[PIPELINED]; active(src_avail(2, 0)); not active(src_avail(2, 1)) => AdvertForm,
        &[PIPELINED]; active(src_avail(1, 0)); not active(src_avail(0, 0)) => AdvertForm,
        &[active(TO_BUFFERED)]; active(data(9)); not active(src_avail(2, 1)) => AdvertForm,
        &[ADVERT]; active(UPDATE); not ADVERT => AdvertLimit,
        &[PIPELINED, PIPELINED_ADVERT]; PIPELINED_ADVERT; not active(data(1)) => DataBehindAdvert,
        &[PIPELINED, PIPELINED_ADVERT, PIPELINED_ADVERT, PIPELINED_ADVERT]; active(UPDATE);
            not PIPELINED_ADVERT => AdvertLimit,
        &[PIPELINED, SINK]; active(data(9)); not PIPELINED_ADVERT => SourceBehindSink,
        &[PIPELINED, PIPELINED_ADVERT]; active(SRC_CANCEL); not active(DIS_CONN) => DisConnTooEarly,
    }
}

#[test]
fn answers_of_the_sink() {
    let two = [
        PIPELINED,
        active(src_avail(10, 0)),
        active(src_avail(20, 0)),
    ];
    rules! {
        // In combined mode no advertisement crosses SendSm, so the acknowledgement of SendSm may be
        // held back.
        &[
            ADVERT, passive(src_avail(500, 1)), passive(SRC_CANCEL), passive(SEND_SM),
            active(src_avail(500, 1).unacknowledged(2)),
        ];
            passive(read(499)); not passive(read(500)) => ReadDone,
        &[ADVERT]; passive(read(499)); not passive(read(500)) => ReadDone,
        &[ADVERT]; passive(read(1)); not passive(read(0)) => ReadDone,
        &two; passive(read(10)); not passive(read(11)) => ReadDone,
        &[ADVERT]; passive(SEND_SM); not active(SEND_SM) => SendSm,
        &[ADVERT, passive(read(499))]; passive(UPDATE); not passive(SEND_SM) => SendSm,
        &[ADVERT]; active(SRC_CANCEL); not passive(SRC_CANCEL) => Cancel,
        &[ADVERT, active(SRC_CANCEL)]; passive(SEND_SM); not active(SRC_CANCEL) => Cancel,
        &[PIPELINED, PIPELINED_ADVERT, active(SRC_CANCEL)]; passive(read(9));
            not PIPELINED_ADVERT => AdvertLimit,
    }
}

/// The trace of the other end cannot show this violation: there the SendSm could have been sent
/// before the cancel was received.
#[test]
fn send_sm_acknowledges_the_cancel_that_it_answers() {
    for (unacknowledged, result) in [(0, Ok(())), (1, Err(Broken::CancelAck))] {
        let mut connection = Connection::new(ADVERTS);
        for step in [ADVERT, active(SRC_CANCEL)] {
            assert_eq!(connection.step(step), Ok(()));
        }
        let answer = SEND_SM.unacknowledged(unacknowledged);
        assert_eq!(connection.step(passive(answer)), result);
    }
}

#[test]
fn advertisements_of_the_sink() {
    rules! {
        &[PIPELINED]; SINK; not active(sink_avail(500, 0)) => SinkAvail,
        &[PIPELINED]; passive(sink_avail(ROOM, 0));
            not passive(sink_avail(ROOM - 1, 0)) => SinkLength,
        &[active(data(1)), ADVERT, passive(read(499)), PIPELINED]; passive(sink_avail(ROOM, 2));
            not passive(sink_avail(ROOM, 1)) => NonDiscards,
        // The data of a message that used up an advertisement is discarded.
        &[PIPELINED, SINK, active(data(1))]; passive(sink_avail(ROOM, 0));
            not passive(sink_avail(ROOM, 1)) => NonDiscards,
        &[PIPELINED, PIPELINED_ADVERT]; passive(read(500)); not SINK => SinkBehindSource,
        &[PIPELINED, SINK, SINK, SINK]; passive(UPDATE); not SINK => AdvertLimit,
        &[PIPELINED, SINK]; passive(SINK_CANCEL); not active(SINK_CANCEL) => Cancel,
        &[PIPELINED, SINK, Sends(Passive, SINK_CANCEL)]; passive(UPDATE); not SINK => AdvertLimit,
        &[PIPELINED, SINK, Sends(Passive, SINK_CANCEL)]; passive(UPDATE);
            not passive(SINK_CANCEL) => Cancel,
        &[PIPELINED, active(DIS_CONN)]; passive(data(1)); not SINK => SinkAvail,
    }
}

#[test]
fn advertisements_of_both_kinds_count_together() {
    // The passive side advertises its memory, and then memory with its own data.
    let before = &[
        PIPELINED,
        passive(TO_PIPELINED),
        SINK,
        SINK,
        passive(src_avail(9, 0)),
    ];
    rules! {
        // DisConn retires the sink advertisements.
        &[
            PIPELINED, passive(TO_PIPELINED), SINK, passive(src_avail(500, 0)),
            passive(src_avail(500, 0)), active(DIS_CONN),
        ];
            passive(src_avail(500, 0)); not passive(sink_avail(500, 0)) => SinkAvail,
        before; passive(UPDATE); not passive(src_avail(9, 0)) => AdvertLimit,
        before; passive(UPDATE); not SINK => AdvertLimit,
        &[PIPELINED, passive(TO_PIPELINED), SINK, SINK, SINK, active(written(1))];
            passive(src_avail(9, 0)); not passive(read(1)) => ReadDone,
    }
}

#[test]
fn writes_into_the_memory_of_the_sink() {
    rules! {
        &[PIPELINED, SINK]; active(written(500)); not active(written(501)) => WriteDone,
        &[PIPELINED, SINK]; active(written(1)); not active(written(0)) => WriteDone,
        &[PIPELINED, SINK]; active(written(1)); not passive(written(1)) => WriteDone,
        // The oldest advertisement is used up by one RdmaWrCompl, even if it is not full.
        &[PIPELINED, SINK, passive(sink_avail(200, 0)), active(written(1))]; active(written(200));
            not active(written(201)) => WriteDone,
        &[PIPELINED, SINK, active(written(1))]; active(data(1));
            not active(written(1)) => WriteDone,
        // A data message uses up one advertisement as well.
        &[PIPELINED, SINK, active(data(1))]; active(data(1)); not active(written(1)) => WriteDone,
        &[PIPELINED, SINK, passive(SINK_CANCEL)]; active(SINK_CANCEL_ACK);
            not passive(SINK_CANCEL_ACK) => SinkCancelAck,
        &[PIPELINED, SINK, passive(SINK_CANCEL), active(SINK_CANCEL_ACK)];
            passive(sink_avail(ROOM, 0)); not active(written(1)) => WriteDone,
        // Nothing is dropped if the advertisement is completed.
        &[PIPELINED, SINK, passive(SINK_CANCEL), active(written(1))]; passive(sink_avail(ROOM, 0));
            not active(SINK_CANCEL_ACK) => SinkCancelAck,
        &[PIPELINED, SINK, SINK, passive(SINK_CANCEL), active(written(1))]; active(SINK_CANCEL_ACK);
            not active(written(501)) => WriteDone,
        &[PIPELINED, SINK, active(DIS_CONN)]; passive(data(1));
            not active(written(1)) => AfterDisConn,
    }
}

/// The payload of SinkAvail is data of the other half (Transaction mechanism).
#[test]
fn requests_with_memory_for_the_answer() {
    const REQUEST: Message = sink_avail(500, 0).payload(20);
    rules! {
        &[PIPELINED, passive(REQUEST)]; active(written(500)); not active(written(501)) => WriteDone,
        &[PIPELINED, passive(DIS_CONN)]; passive(sink_avail(500, 0));
            not passive(REQUEST) => AfterDisConn,
        &[PIPELINED, passive(src_avail(9, 1))]; passive(sink_avail(500, 0));
            not passive(REQUEST) => DataBehindAdvert,
        // This payload is not counted, and uses up no advertisement of the other half.
        &[PIPELINED, passive(TO_PIPELINED), passive(REQUEST)]; active(sink_avail(ROOM, 0));
            not active(sink_avail(ROOM, 1)) => NonDiscards,
        &[PIPELINED, passive(TO_PIPELINED), active(sink_avail(ROOM, 0)), passive(REQUEST)];
            passive(written(ROOM)); not passive(written(ROOM + 1)) => WriteDone,
        &[PIPELINED]; passive(sink_avail(500, 0).payload(SIZE - 36));
            not passive(sink_avail(500, 0).payload(SIZE - 35)) => TooLong,
    }
}

#[test]
fn changes_of_mode() {
    rules! {
        &[]; active(TO_BUFFERED); not active(TO_COMBINED) => ModeChange,
        &[ADVERT]; active(TO_PIPELINED); not active(TO_BUFFERED) => ModeChange,
        &[active(TO_BUFFERED)]; passive(SINK_TO_COMBINED); not active(TO_COMBINED) => ModeChange,
        &[PIPELINED, PIPELINED_ADVERT]; active(TO_COMBINED); not active(TO_BUFFERED) => ModeChange,
        &[PIPELINED, SINK]; active(written(1)); not active(TO_COMBINED) => ModeChange,
        // The source advertisements are withdrawn.
        &[PIPELINED, PIPELINED_ADVERT, active(TO_COMBINED)]; ADVERT;
            not passive(read(1)) => ReadDone,
    }
}

#[test]
fn sizes_of_receive_buffers() {
    rules! {
        &[]; active(resize(17)); not active(resize(16)) => Resize,
        &[active(resize(500))]; passive(resized(500)); not active(resized(500)) => Unasked,
        &[active(resize(500)), passive(resized(500))]; active(data(484));
            not active(data(485)) => TooLong,
        // The larger size counts for this end from the answer on.
        &[active(resize(500)), Sends(Passive, resized(500))]; active(data(ROOM));
            not active(data(ROOM + 1)) => TooLong,
        &[active(resize(500))]; passive(resized(SIZE)); not passive(resized(SIZE - 1)) => Resize,
        &[active(resize(50))]; passive(resized(50)); not passive(resized(SIZE + 1)) => Resize,
        &[active(resize(50)), passive(resized(50))]; active(data(34));
            not active(data(35)) => TooLong,
        // The payload of the sender's new buffers is the least length of its sink advertisements.
        &[PIPELINED, active(resize(500)), passive(resized(500))]; passive(sink_avail(484, 0));
            not passive(sink_avail(483, 0)) => SinkLength,
    }
}

#[test]
fn suspension_and_end() {
    rules! {
        &[active(SUSP_COMM)]; passive(SUSP_COMM_ACK); not active(SUSP_COMM_ACK) => Unasked,
        &[active(SUSP_COMM)]; active(UPDATE); not active(SUSP_COMM) => Suspend,
        &[active(SUSP_COMM), passive(SUSP_COMM_ACK)]; active(DIS_CONN);
            not active(SUSP_COMM) => Suspend,
        &[active(SUSP_COMM), passive(SUSP_COMM_ACK)]; passive(UPDATE);
            not passive(data(1)) => AfterSuspend,
        &[active(SUSP_COMM), passive(SUSP_COMM_ACK)]; passive(UPDATE);
            not passive(src_avail(9, 1)) => AfterSuspend,
        &[PIPELINED, active(SUSP_COMM), passive(SUSP_COMM_ACK)]; passive(UPDATE);
            not SINK => AfterSuspend,
        &[active(SUSP_COMM), passive(SUSP_COMM_ACK)]; active(UPDATE);
            not active(data(1)) => AfterSuspend,
        // The end that has not received the answer may still send.
        &[active(SUSP_COMM), Sends(Passive, SUSP_COMM_ACK)]; active(data(1));
            not passive(data(1)) => AfterSuspend,
        &[active(DIS_CONN)]; active(ABORT_CONN); not active(DIS_CONN) => AfterDisConn,
        &[active(DIS_CONN)]; active(UPDATE); not active(data(1)) => AfterDisConn,
        &[active(DIS_CONN)]; passive(src_avail(9, 1)); not active(src_avail(9, 1)) => AfterDisConn,
        &[active(DIS_CONN)]; active(ABORT_CONN); not passive(ABORT_CONN) => Abort,
        &[active(DIS_CONN), active(ABORT_CONN)]; passive(UPDATE); not active(UPDATE) => Abort,
    }
}

/// Every kind of message consumes a credit, and the last one is spent only for new credits. Each
/// message of `script.rs` announces 64 buffers.
#[test]
fn credits_are_counted_through_all_messages() {
    let kinds: [&[Message]; 5] = [
        &[UPDATE],
        &[TO_BUFFERED],
        &[TO_PIPELINED, TO_COMBINED],
        &[resize(500)],
        &[src_avail(9, 1), SRC_CANCEL],
    ];
    for kind in kinds {
        let fill = || {
            let mut connection = Connection::new(ADVERTS);
            let rest = [UPDATE; 64];
            for message in kind.iter().chain(&rest).take(63) {
                connection
                    .step(Sends(Active, *message))
                    .expect("more than one credit");
            }
            connection
        };
        assert_eq!(fill().step(Sends(Active, UPDATE)), Err(Broken::LastCredit));
        let mut connection = fill();
        connection.step(Sends(Passive, UPDATE)).expect("credits");
        connection.step(Receives(Active)).expect("nothing is sent");
        let last = connection.step(Sends(Active, data(1)));
        assert_eq!(last, Err(Broken::LastCredit));
        let mut connection = fill();
        connection.step(Sends(Passive, UPDATE)).expect("credits");
        connection.step(Receives(Active)).expect("nothing is sent");
        // This message acknowledges the peer's, so it returns its credit.
        assert_eq!(connection.step(Sends(Active, UPDATE)), Ok(()));
        let beyond = connection.step(Sends(Active, UPDATE));
        assert_eq!(beyond, Err(Broken::NoCredit));
    }
}

#[test]
fn unanswered_requests_are_found_at_the_end() {
    let open = Err(Broken::Unanswered);
    let (cancel, answered) = (passive(SINK_CANCEL), passive(SUSP_COMM_ACK));
    let rows: [(&[Step], Result<(), Broken>); 9] = [
        (&[PIPELINED, SINK], Ok(())),
        (&[PIPELINED, SINK, cancel], open),
        (&[PIPELINED, SINK, cancel, active(DIS_CONN)], Ok(())),
        (&[PIPELINED, PIPELINED_ADVERT], open),
        (&[PIPELINED, PIPELINED_ADVERT, passive(read(500))], Ok(())),
        (&[active(resize(500))], open),
        (&[active(resize(500)), passive(resized(SIZE))], Ok(())),
        (&[active(SUSP_COMM)], open),
        (&[active(SUSP_COMM), answered], Ok(())),
    ];
    for (steps, result) in rows {
        let mut connection = Connection::new(ADVERTS);
        for step in steps {
            connection.step(*step).expect("keeps every rule");
        }
        assert_eq!(connection.checker.check_complete(), result, "{steps:?}");
    }
}

#[test]
fn bytes_of_all_mechanisms_are_counted() {
    let mut connection = Connection::new(ADVERTS);
    for step in [
        active(data(5)),
        active(src_avail(500, 7)),
        passive(read(300)),
        passive(SEND_SM),
        active(data(93)),
        active(data(100)),
        PIPELINED,
        passive(sink_avail(ROOM, 4).payload(11)),
        active(written(60)),
    ] {
        connection.step(step).expect("keeps every rule");
    }
    let streamed = connection.checker.streamed(Active);
    assert_eq!(streamed, 5 + 7 + 300 + 93 + 100 + 60);
    assert_eq!(connection.checker.streamed(Passive), 11);
}
