//! For each rule, a conversation that keeps the rule and one that breaks it.

use super::script::{
    ABORT, Connection, FIN, HELLO, HELLO_ACK, Message, ROOM, SEND_SM, SINK_CANCEL, SINK_CANCEL_ACK,
    SINK_TO_COMBINED, SIZE, SRC_CANCEL, SUSPEND, SUSPENDED,
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
    check(&[
        rule(&[], active(UPDATE), active(HELLO), Broken::Kind),
        rule(&[], active(UPDATE), active(HELLO_ACK), Broken::Kind),
        rule(
            &[ADVERT],
            passive(SEND_SM),
            passive(SEND_SM.payload(1)),
            Broken::PayloadOnControl,
        ),
        rule(
            &[ADVERT],
            passive(read(9).flags(4)),
            passive(SEND_SM.flags(4)),
            Broken::PipelineHint,
        ),
        rule(
            &[],
            active(data(1).flags(3)),
            active(data(1).flags(1)),
            Broken::UrgentUnannounced,
        ),
        rule(
            &[active(UPDATE.flags(2))],
            active(data(1).flags(1)),
            active(src_avail(9, 1).flags(1)),
            Broken::UrgentWithoutByte,
        ),
        rule(
            &[active(UPDATE.flags(2))],
            active(data(1).flags(1)),
            active(FIN),
            Broken::UrgentMissing,
        ),
        rule(
            &[active(FIN)],
            active(UPDATE),
            active(UPDATE.flags(2)),
            Broken::UrgentMissing,
        ),
        rule(
            &[],
            active(TO_PIPELINED),
            active(mode(0x30)),
            Broken::ModeForm,
        ),
        rule(
            &[],
            active(TO_PIPELINED),
            active(mode(0x21)),
            Broken::ModeForm,
        ),
        rule(
            &[],
            active(data(ROOM)),
            active(data(ROOM + 1)),
            Broken::TooLong,
        ),
    ]);
}

#[test]
fn advertisements_of_the_source() {
    check(&[
        rule(
            &[],
            active(src_avail(2, 1)),
            active(src_avail(1, 1)),
            Broken::AdvertForm,
        ),
        rule(
            &[],
            active(src_avail(2, 1)),
            active(src_avail(2, 0)),
            Broken::AdvertForm,
        ),
        rule(
            &[PIPELINED],
            active(src_avail(2, 0)),
            active(src_avail(2, 1)),
            Broken::AdvertForm,
        ),
        rule(
            &[PIPELINED],
            active(src_avail(1, 0)),
            active(src_avail(0, 0)),
            Broken::AdvertForm,
        ),
        rule(
            &[active(TO_BUFFERED)],
            active(data(9)),
            active(src_avail(2, 1)),
            Broken::AdvertForm,
        ),
        rule(&[ADVERT], active(UPDATE), ADVERT, Broken::AdvertLimit),
        rule(
            &[PIPELINED, PIPELINED_ADVERT],
            PIPELINED_ADVERT,
            active(data(1)),
            Broken::DataBehindAdvert,
        ),
        rule(
            &[
                PIPELINED,
                PIPELINED_ADVERT,
                PIPELINED_ADVERT,
                PIPELINED_ADVERT,
            ],
            active(UPDATE),
            PIPELINED_ADVERT,
            Broken::AdvertLimit,
        ),
        rule(
            &[PIPELINED, SINK],
            active(data(9)),
            PIPELINED_ADVERT,
            Broken::SourceBehindSink,
        ),
        rule(
            &[PIPELINED, PIPELINED_ADVERT],
            active(SRC_CANCEL),
            active(FIN),
            Broken::DisConnTooEarly,
        ),
    ]);
}

#[test]
fn answers_of_the_sink() {
    let two = [
        PIPELINED,
        active(src_avail(10, 0)),
        active(src_avail(20, 0)),
    ];
    check(&[
        // In combined mode no advertisement crosses SendSm, so the acknowledgement of SendSm may be
        // held back.
        rule(
            &[
                ADVERT,
                passive(src_avail(500, 1)),
                passive(SRC_CANCEL),
                passive(SEND_SM),
                active(src_avail(500, 1).unacknowledged(2)),
            ],
            passive(read(499)),
            passive(read(500)),
            Broken::ReadDone,
        ),
        rule(
            &[ADVERT],
            passive(read(499)),
            passive(read(500)),
            Broken::ReadDone,
        ),
        rule(
            &[ADVERT],
            passive(read(1)),
            passive(read(0)),
            Broken::ReadDone,
        ),
        rule(&two, passive(read(10)), passive(read(11)), Broken::ReadDone),
        rule(&[ADVERT], passive(SEND_SM), active(SEND_SM), Broken::SendSm),
        rule(
            &[ADVERT, passive(read(499))],
            passive(UPDATE),
            passive(SEND_SM),
            Broken::SendSm,
        ),
        rule(
            &[ADVERT],
            active(SRC_CANCEL),
            passive(SRC_CANCEL),
            Broken::Cancel,
        ),
        rule(
            &[ADVERT, active(SRC_CANCEL)],
            passive(SEND_SM),
            active(SRC_CANCEL),
            Broken::Cancel,
        ),
        rule(
            &[PIPELINED, PIPELINED_ADVERT, active(SRC_CANCEL)],
            passive(read(9)),
            PIPELINED_ADVERT,
            Broken::AdvertLimit,
        ),
    ]);
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
    check(&[
        rule(
            &[PIPELINED],
            SINK,
            active(sink_avail(500, 0)),
            Broken::SinkAvail,
        ),
        rule(
            &[PIPELINED],
            passive(sink_avail(ROOM, 0)),
            passive(sink_avail(ROOM - 1, 0)),
            Broken::SinkLength,
        ),
        rule(
            &[active(data(1)), ADVERT, passive(read(499)), PIPELINED],
            passive(sink_avail(ROOM, 2)),
            passive(sink_avail(ROOM, 1)),
            Broken::NonDiscards,
        ),
        // The data of a message that used up an advertisement is discarded.
        rule(
            &[PIPELINED, SINK, active(data(1))],
            passive(sink_avail(ROOM, 0)),
            passive(sink_avail(ROOM, 1)),
            Broken::NonDiscards,
        ),
        rule(
            &[PIPELINED, PIPELINED_ADVERT],
            passive(read(500)),
            SINK,
            Broken::SinkBehindSource,
        ),
        rule(
            &[PIPELINED, SINK, SINK, SINK],
            passive(UPDATE),
            SINK,
            Broken::AdvertLimit,
        ),
        rule(
            &[PIPELINED, SINK],
            passive(SINK_CANCEL),
            active(SINK_CANCEL),
            Broken::Cancel,
        ),
        rule(
            &[PIPELINED, SINK, Sends(Passive, SINK_CANCEL)],
            passive(UPDATE),
            SINK,
            Broken::AdvertLimit,
        ),
        rule(
            &[PIPELINED, SINK, Sends(Passive, SINK_CANCEL)],
            passive(UPDATE),
            passive(SINK_CANCEL),
            Broken::Cancel,
        ),
        rule(
            &[PIPELINED, active(FIN)],
            passive(data(1)),
            SINK,
            Broken::SinkAvail,
        ),
    ]);
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
    check(&[
        // DisConn retires the sink advertisements.
        rule(
            &[
                PIPELINED,
                passive(TO_PIPELINED),
                SINK,
                passive(src_avail(500, 0)),
                passive(src_avail(500, 0)),
                active(FIN),
            ],
            passive(src_avail(500, 0)),
            passive(sink_avail(500, 0)),
            Broken::SinkAvail,
        ),
        rule(
            before,
            passive(UPDATE),
            passive(src_avail(9, 0)),
            Broken::AdvertLimit,
        ),
        rule(before, passive(UPDATE), SINK, Broken::AdvertLimit),
        rule(
            &[
                PIPELINED,
                passive(TO_PIPELINED),
                SINK,
                SINK,
                SINK,
                active(written(1)),
            ],
            passive(src_avail(9, 0)),
            passive(read(1)),
            Broken::ReadDone,
        ),
    ]);
}

#[test]
fn writes_into_the_memory_of_the_sink() {
    check(&[
        rule(
            &[PIPELINED, SINK],
            active(written(500)),
            active(written(501)),
            Broken::WriteDone,
        ),
        rule(
            &[PIPELINED, SINK],
            active(written(1)),
            active(written(0)),
            Broken::WriteDone,
        ),
        rule(
            &[PIPELINED, SINK],
            active(written(1)),
            passive(written(1)),
            Broken::WriteDone,
        ),
        // The oldest advertisement is used up by one RdmaWrCompl, even if it is not full.
        rule(
            &[
                PIPELINED,
                SINK,
                passive(sink_avail(200, 0)),
                active(written(1)),
            ],
            active(written(200)),
            active(written(201)),
            Broken::WriteDone,
        ),
        rule(
            &[PIPELINED, SINK, active(written(1))],
            active(data(1)),
            active(written(1)),
            Broken::WriteDone,
        ),
        // A data message uses up one advertisement as well.
        rule(
            &[PIPELINED, SINK, active(data(1))],
            active(data(1)),
            active(written(1)),
            Broken::WriteDone,
        ),
        rule(
            &[PIPELINED, SINK, passive(SINK_CANCEL)],
            active(SINK_CANCEL_ACK),
            passive(SINK_CANCEL_ACK),
            Broken::SinkCancelAck,
        ),
        rule(
            &[
                PIPELINED,
                SINK,
                passive(SINK_CANCEL),
                active(SINK_CANCEL_ACK),
            ],
            passive(sink_avail(ROOM, 0)),
            active(written(1)),
            Broken::WriteDone,
        ),
        // Nothing is dropped if the advertisement is completed.
        rule(
            &[PIPELINED, SINK, passive(SINK_CANCEL), active(written(1))],
            passive(sink_avail(ROOM, 0)),
            active(SINK_CANCEL_ACK),
            Broken::SinkCancelAck,
        ),
        rule(
            &[
                PIPELINED,
                SINK,
                SINK,
                passive(SINK_CANCEL),
                active(written(1)),
            ],
            active(SINK_CANCEL_ACK),
            active(written(501)),
            Broken::WriteDone,
        ),
        rule(
            &[PIPELINED, SINK, active(FIN)],
            passive(data(1)),
            active(written(1)),
            Broken::AfterDisConn,
        ),
    ]);
}

/// The payload of SinkAvail is data of the other half (Transaction mechanism).
#[test]
fn requests_with_memory_for_the_answer() {
    const REQUEST: Message = sink_avail(500, 0).payload(20);
    check(&[
        rule(
            &[PIPELINED, passive(REQUEST)],
            active(written(500)),
            active(written(501)),
            Broken::WriteDone,
        ),
        rule(
            &[PIPELINED, passive(FIN)],
            passive(sink_avail(500, 0)),
            passive(REQUEST),
            Broken::AfterDisConn,
        ),
        rule(
            &[PIPELINED, passive(src_avail(9, 1))],
            passive(sink_avail(500, 0)),
            passive(REQUEST),
            Broken::DataBehindAdvert,
        ),
        // This payload is not counted, and uses up no advertisement of the other half.
        rule(
            &[PIPELINED, passive(TO_PIPELINED), passive(REQUEST)],
            active(sink_avail(ROOM, 0)),
            active(sink_avail(ROOM, 1)),
            Broken::NonDiscards,
        ),
        rule(
            &[
                PIPELINED,
                passive(TO_PIPELINED),
                active(sink_avail(ROOM, 0)),
                passive(REQUEST),
            ],
            passive(written(ROOM)),
            passive(written(ROOM + 1)),
            Broken::WriteDone,
        ),
        rule(
            &[PIPELINED],
            passive(sink_avail(500, 0).payload(SIZE - 36)),
            passive(sink_avail(500, 0).payload(SIZE - 35)),
            Broken::TooLong,
        ),
    ]);
}

#[test]
fn changes_of_mode() {
    check(&[
        rule(
            &[],
            active(TO_BUFFERED),
            active(TO_COMBINED),
            Broken::ModeChange,
        ),
        rule(
            &[ADVERT],
            active(TO_PIPELINED),
            active(TO_BUFFERED),
            Broken::ModeChange,
        ),
        rule(
            &[active(TO_BUFFERED)],
            passive(SINK_TO_COMBINED),
            active(TO_COMBINED),
            Broken::ModeChange,
        ),
        rule(
            &[PIPELINED, PIPELINED_ADVERT],
            active(TO_COMBINED),
            active(TO_BUFFERED),
            Broken::ModeChange,
        ),
        rule(
            &[PIPELINED, SINK],
            active(written(1)),
            active(TO_COMBINED),
            Broken::ModeChange,
        ),
        // The source advertisements are withdrawn.
        rule(
            &[PIPELINED, PIPELINED_ADVERT, active(TO_COMBINED)],
            ADVERT,
            passive(read(1)),
            Broken::ReadDone,
        ),
    ]);
}

#[test]
fn sizes_of_receive_buffers() {
    check(&[
        rule(&[], active(resize(17)), active(resize(16)), Broken::Resize),
        rule(
            &[active(resize(500))],
            passive(resized(500)),
            active(resized(500)),
            Broken::Unasked,
        ),
        rule(
            &[active(resize(500)), passive(resized(500))],
            active(data(484)),
            active(data(485)),
            Broken::TooLong,
        ),
        // The larger size counts for this end from the answer on.
        rule(
            &[active(resize(500)), Sends(Passive, resized(500))],
            active(data(ROOM)),
            active(data(ROOM + 1)),
            Broken::TooLong,
        ),
        rule(
            &[active(resize(500))],
            passive(resized(SIZE)),
            passive(resized(SIZE - 1)),
            Broken::Resize,
        ),
        rule(
            &[active(resize(50))],
            passive(resized(50)),
            passive(resized(SIZE + 1)),
            Broken::Resize,
        ),
        rule(
            &[active(resize(50)), passive(resized(50))],
            active(data(34)),
            active(data(35)),
            Broken::TooLong,
        ),
        // The payload of the sender's new buffers is the least length of its sink advertisements.
        rule(
            &[PIPELINED, active(resize(500)), passive(resized(500))],
            passive(sink_avail(484, 0)),
            passive(sink_avail(483, 0)),
            Broken::SinkLength,
        ),
    ]);
}

#[test]
fn suspension_and_end() {
    check(&[
        rule(
            &[active(SUSPEND)],
            passive(SUSPENDED),
            active(SUSPENDED),
            Broken::Unasked,
        ),
        rule(
            &[active(SUSPEND)],
            active(UPDATE),
            active(SUSPEND),
            Broken::Suspend,
        ),
        rule(
            &[active(SUSPEND), passive(SUSPENDED)],
            active(FIN),
            active(SUSPEND),
            Broken::Suspend,
        ),
        rule(
            &[active(SUSPEND), passive(SUSPENDED)],
            passive(UPDATE),
            passive(data(1)),
            Broken::AfterSuspend,
        ),
        rule(
            &[active(SUSPEND), passive(SUSPENDED)],
            passive(UPDATE),
            passive(src_avail(9, 1)),
            Broken::AfterSuspend,
        ),
        rule(
            &[PIPELINED, active(SUSPEND), passive(SUSPENDED)],
            passive(UPDATE),
            SINK,
            Broken::AfterSuspend,
        ),
        rule(
            &[active(SUSPEND), passive(SUSPENDED)],
            active(UPDATE),
            active(data(1)),
            Broken::AfterSuspend,
        ),
        // The end that has not received the answer may still send.
        rule(
            &[active(SUSPEND), Sends(Passive, SUSPENDED)],
            active(data(1)),
            passive(data(1)),
            Broken::AfterSuspend,
        ),
        rule(
            &[active(FIN)],
            active(ABORT),
            active(FIN),
            Broken::AfterDisConn,
        ),
        rule(
            &[active(FIN)],
            active(UPDATE),
            active(data(1)),
            Broken::AfterDisConn,
        ),
        rule(
            &[active(FIN)],
            passive(src_avail(9, 1)),
            active(src_avail(9, 1)),
            Broken::AfterDisConn,
        ),
        rule(&[active(FIN)], active(ABORT), passive(ABORT), Broken::Abort),
        rule(
            &[active(FIN), active(ABORT)],
            passive(UPDATE),
            active(UPDATE),
            Broken::Abort,
        ),
    ]);
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
        assert_eq!(
            connection.step(Sends(Active, data(1))),
            Err(Broken::LastCredit)
        );
        let mut connection = fill();
        connection.step(Sends(Passive, UPDATE)).expect("credits");
        connection.step(Receives(Active)).expect("nothing is sent");
        // This message acknowledges the peer's, so it returns its credit.
        assert_eq!(connection.step(Sends(Active, UPDATE)), Ok(()));
        assert_eq!(
            connection.step(Sends(Active, UPDATE)),
            Err(Broken::NoCredit)
        );
    }
}

#[test]
fn unanswered_requests_are_found_at_the_end() {
    let rows: [(&[Step], Result<(), Broken>); 9] = [
        (&[PIPELINED, SINK], Ok(())),
        (
            &[PIPELINED, SINK, passive(SINK_CANCEL)],
            Err(Broken::Unanswered),
        ),
        (
            &[PIPELINED, SINK, passive(SINK_CANCEL), active(FIN)],
            Ok(()),
        ),
        (&[PIPELINED, PIPELINED_ADVERT], Err(Broken::Unanswered)),
        (&[PIPELINED, PIPELINED_ADVERT, passive(read(500))], Ok(())),
        (&[active(resize(500))], Err(Broken::Unanswered)),
        (&[active(resize(500)), passive(resized(SIZE))], Ok(())),
        (&[active(SUSPEND)], Err(Broken::Unanswered)),
        (&[active(SUSPEND), passive(SUSPENDED)], Ok(())),
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
    assert_eq!(
        connection.checker.streamed(Active),
        5 + 7 + 300 + 93 + 100 + 60
    );
    assert_eq!(connection.checker.streamed(Passive), 11);
}
