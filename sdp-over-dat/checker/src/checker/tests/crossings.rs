//! Messages that cross on the wire, in both orders.
//!
//! The checker reads the two ends' messages as they are sent and received. Then it reads the trace
//! of each end, and must come to the same verdict (see [`verdict`]).

use super::script::{
    FIN, Message, ROOM, SEND_SM, SINK_CANCEL, SINK_CANCEL_ACK, SRC_CANCEL,
    Step::{self, Receives, Says, Sends},
    TO_COMBINED, TO_PIPELINED, UPDATE, data, read, sink_avail, src_avail, verdict, written,
};
use crate::{
    Broken,
    Side::{Active, Passive},
};

const ADVERTS: u8 = 3;

/// Active is the source, in pipelined mode.
fn pipelined(steps: &[Step]) -> Result<(), Broken> {
    verdict(ADVERTS, &[&[Says(Active, TO_PIPELINED)], steps].concat())
}

/// Each end sends a message before it has received the other's.
fn crossing(active: Message, passive: Message) -> [[Step; 4]; 2] {
    let (first, second) = (Sends(Active, active), Sends(Passive, passive));
    [
        [first, second, Receives(Active), Receives(Passive)],
        [second, first, Receives(Passive), Receives(Active)],
    ]
}

/// Checks what may follow two crossing messages, in both orders.
fn after_crossing(
    before: &[Step],
    active: Message,
    passive: Message,
    rows: &[(Step, Result<(), Broken>)],
) {
    for cross in crossing(active, passive) {
        for (last, result) in rows {
            let steps = [before, &cross, &[*last]].concat();
            assert_eq!(pipelined(&steps), *result, "{steps:?}");
        }
    }
}

const SINK: Message = sink_avail(500, 0);

#[test]
fn data_that_crosses_sink_avail_uses_it_up() {
    after_crossing(
        &[],
        data(1),
        SINK,
        &[
            (Says(Active, written(1)), Err(Broken::WriteDone)),
            (Says(Active, src_avail(9, 0)), Ok(())),
            (Says(Passive, sink_avail(500, 0)), Ok(())),
            (Says(Passive, sink_avail(500, 1)), Err(Broken::NonDiscards)),
            (Says(Passive, SINK_CANCEL), Err(Broken::Cancel)),
        ],
    );
}

#[test]
fn one_data_message_uses_up_exactly_one_advertisement() {
    let two = [
        Sends(Active, data(1)),
        Sends(Passive, sink_avail(100, 0)),
        Sends(Passive, sink_avail(200, 0)),
        Receives(Active),
        Receives(Passive),
    ];
    let then = |steps: &[Step]| pipelined(&[&two, steps].concat());
    assert_eq!(then(&[Says(Active, written(200))]), Ok(()));
    assert_eq!(then(&[Says(Active, written(201))]), Err(Broken::WriteDone));
    let both = [Says(Active, written(200)), Says(Active, written(1))];
    assert_eq!(then(&both), Err(Broken::WriteDone));
    // A further crossing message uses up the second one.
    let three = [
        Sends(Active, data(1)),
        Sends(Passive, sink_avail(100, 0)),
        Receives(Active),
        Sends(Passive, sink_avail(200, 0)),
        Sends(Active, data(1)),
        Receives(Active),
        Receives(Passive),
    ];
    let then = |steps: &[Step]| pipelined(&[&three, steps].concat());
    assert_eq!(then(&[Says(Active, written(1))]), Err(Broken::WriteDone));
    assert_eq!(then(&[Says(Passive, sink_avail(100, 0))]), Ok(()));
}

#[test]
fn a_valid_sink_avail_revokes_source_advertisements() {
    after_crossing(
        &[Says(Active, src_avail(50, 0))],
        src_avail(60, 0),
        read(50),
        &[(Says(Passive, SINK), Err(Broken::SinkBehindSource))],
    );
    after_crossing(
        &[],
        src_avail(60, 0),
        SINK,
        &[
            (Says(Passive, read(1)), Err(Broken::ReadDone)),
            (Says(Passive, SEND_SM), Err(Broken::SendSm)),
            (Says(Active, SRC_CANCEL), Err(Broken::Cancel)),
            (
                Says(Active, src_avail(60, 0)),
                Err(Broken::SourceBehindSink),
            ),
            (Says(Active, written(1)), Ok(())),
            (Says(Active, data(1)), Ok(())),
            (Says(Active, FIN), Ok(())),
        ],
    );
}

#[test]
fn a_stale_sink_avail_revokes_nothing() {
    let steps = [
        Sends(Active, data(1)),
        Sends(Active, src_avail(60, 0)),
        Sends(Passive, SINK),
        Receives(Active),
        Receives(Passive),
    ];
    let then = |last: Step| pipelined(&[&steps, &[last][..]].concat());
    assert_eq!(then(Says(Passive, read(60))), Ok(()));
    assert_eq!(then(Says(Active, SRC_CANCEL)), Ok(()));
    assert_eq!(then(Says(Active, data(1))), Err(Broken::DataBehindAdvert));
}

#[test]
fn sink_avail_ends_the_cancel_of_source_advertisements() {
    let steps = [
        Sends(Active, src_avail(60, 0)),
        Sends(Active, SRC_CANCEL),
        Sends(Passive, SINK),
        Receives(Passive),
        Receives(Active),
    ];
    let then = |last: Step| pipelined(&[&steps, &[last][..]].concat());
    assert_eq!(then(Says(Passive, SEND_SM)), Err(Broken::SendSm));
    assert_eq!(then(Says(Active, written(60))), Ok(()));
}

#[test]
fn a_cancel_that_crosses_the_last_read_or_a_refusal_has_no_answer() {
    for answer in [read(60), SEND_SM] {
        after_crossing(
            &[Says(Active, src_avail(60, 0))],
            SRC_CANCEL,
            answer,
            &[
                (Says(Passive, SEND_SM), Err(Broken::SendSm)),
                (Says(Active, SRC_CANCEL), Err(Broken::Cancel)),
                (Says(Active, src_avail(60, 0)), Ok(())),
                (Says(Active, data(1)), Ok(())),
            ],
        );
    }
    // A partial read leaves something to cancel.
    after_crossing(
        &[Says(Active, src_avail(60, 0))],
        SRC_CANCEL,
        read(59),
        &[
            (Says(Passive, SEND_SM), Ok(())),
            (Says(Passive, read(1)), Ok(())),
            (Says(Passive, read(2)), Err(Broken::ReadDone)),
            (Says(Active, data(1)), Err(Broken::DataBehindAdvert)),
        ],
    );
}

#[test]
fn a_cancel_that_crosses_the_use_of_the_memory_has_no_answer() {
    for use_up in [written(5), data(5)] {
        after_crossing(
            &[Says(Passive, SINK)],
            use_up,
            SINK_CANCEL,
            &[
                (Says(Active, SINK_CANCEL_ACK), Err(Broken::SinkCancelAck)),
                (Says(Passive, SINK_CANCEL), Err(Broken::Cancel)),
                (Says(Passive, sink_avail(ROOM, 0)), Ok(())),
            ],
        );
        // Of two advertisements one is left to be dropped.
        after_crossing(
            &[Says(Passive, SINK), Says(Passive, SINK)],
            use_up,
            SINK_CANCEL,
            &[
                (Says(Active, SINK_CANCEL_ACK), Ok(())),
                (Says(Active, written(500)), Ok(())),
                (Says(Passive, SINK_CANCEL), Err(Broken::Cancel)),
                (Says(Passive, sink_avail(ROOM, 0)), Err(Broken::AdvertLimit)),
            ],
        );
    }
}

#[test]
fn a_source_advertisement_that_crosses_a_refusal_may_not_be_read() {
    after_crossing(
        &[Says(Active, src_avail(60, 0))],
        src_avail(70, 0),
        SEND_SM,
        &[
            (Says(Passive, read(1)), Err(Broken::ReadOfCrossed)),
            // The source may drop it, or cancel it.
            (Says(Active, data(1)), Ok(())),
            (Says(Active, SRC_CANCEL), Ok(())),
            (Says(Active, FIN), Ok(())),
        ],
    );
    after_crossing(
        &[Says(Active, src_avail(60, 0))],
        src_avail(70, 0),
        SEND_SM,
        &[(Says(Passive, SEND_SM), Ok(()))],
    );
    let again = [
        Says(Active, src_avail(60, 0)),
        Says(Passive, SEND_SM),
        Says(Active, src_avail(70, 0)),
        Says(Passive, read(70)),
    ];
    assert_eq!(pipelined(&again), Ok(()), "not crossed");
}

#[test]
fn answers_that_cross_the_change_to_combined_mode_are_about_withdrawn_memory() {
    for answer in [read(60), read(9), SEND_SM] {
        after_crossing(
            &[Says(Active, src_avail(60, 0))],
            TO_COMBINED,
            answer,
            &[
                (Says(Passive, read(1)), Err(Broken::ReadDone)),
                (Says(Active, SRC_CANCEL), Err(Broken::Cancel)),
                (Says(Active, src_avail(60, 1)), Ok(())),
                (Says(Active, src_avail(60, 0)), Err(Broken::AdvertForm)),
                (Says(Active, data(1)), Ok(())),
            ],
        );
    }
    // An advertisement that is made again before the answer is received is not touched by it.
    let steps = [
        Says(Active, src_avail(60, 0)),
        Sends(Active, TO_COMBINED),
        Sends(Active, src_avail(60, 1)),
        Sends(Passive, read(60)),
        Receives(Active),
        Receives(Passive),
    ];
    let then = |last: Step| pipelined(&[&steps, &[last][..]].concat());
    assert_eq!(then(Says(Passive, read(59))), Ok(()));
    assert_eq!(then(Says(Active, data(1))), Err(Broken::DataBehindAdvert));
}

#[test]
fn sink_avail_that_crosses_the_change_to_combined_mode_is_used_up() {
    after_crossing(
        &[],
        TO_COMBINED,
        SINK,
        &[
            (Says(Passive, SINK), Err(Broken::SinkAvail)),
            (Says(Passive, SINK_CANCEL), Ok(())),
            (Says(Active, written(1)), Ok(())),
            (Says(Active, data(1)), Ok(())),
            (Says(Active, src_avail(9, 1)), Ok(())),
        ],
    );
    // The message uses it up and is not counted.
    for used_by in [data(1), written(1)] {
        for (non_discards, result) in [(0, Ok(())), (1, Err(Broken::NonDiscards))] {
            for cross in crossing(TO_COMBINED, SINK) {
                let then = [
                    Says(Active, used_by),
                    Says(Active, TO_PIPELINED),
                    Says(Passive, sink_avail(ROOM, non_discards)),
                ];
                assert_eq!(pipelined(&[&cross[..], &then].concat()), result);
            }
        }
    }
    // Data that follows the change crosses the advertisement as well.
    let steps = [
        Sends(Active, TO_COMBINED),
        Sends(Active, src_avail(60, 1)),
        Sends(Passive, SINK),
        Receives(Active),
        Receives(Passive),
    ];
    let then = |last: Step| pipelined(&[&steps, &[last][..]].concat());
    assert_eq!(then(Says(Passive, read(59))), Ok(()));
    assert_eq!(then(Says(Active, written(1))), Err(Broken::WriteDone));
}

#[test]
fn payload_of_sink_avail_crosses_sink_avail_of_the_other_half() {
    after_crossing(
        &[Says(Passive, TO_PIPELINED)],
        sink_avail(500, 0).payload(7),
        sink_avail(600, 0).payload(8),
        &[
            (Says(Active, written(600)), Ok(())),
            (Says(Active, written(601)), Err(Broken::WriteDone)),
            (Says(Passive, written(500)), Ok(())),
            (Says(Passive, written(501)), Err(Broken::WriteDone)),
            (Says(Passive, sink_avail(ROOM, 0)), Ok(())),
        ],
    );
}

/// The sink does not acknowledge a cancel while it reads, so MSeqAck does not show that it has
/// received the messages after the cancel.
#[test]
fn what_follows_an_unacknowledged_cancel_may_have_been_received() {
    let steps = [
        Says(Passive, TO_PIPELINED),
        Says(Active, src_avail(60, 0)),
        Says(Active, SRC_CANCEL),
        Says(Active, sink_avail(500, 0)),
    ];
    let then = |last: Step| pipelined(&[&steps, &[last][..]].concat());
    assert_eq!(then(Says(Passive, written(1).unacknowledged(2))), Ok(()));
    assert_eq!(then(Says(Passive, data(1).unacknowledged(2))), Ok(()));
    let too_many = Says(Passive, written(501).unacknowledged(2));
    assert_eq!(then(too_many), Err(Broken::WriteDone));
    let steps = [&steps[..], &[Says(Passive, written(1).unacknowledged(2))]].concat();
    let then = |last: &[Step]| pipelined(&[&steps, last].concat());
    let answered = [Says(Passive, read(60)), Says(Active, data(1))];
    assert_eq!(then(&answered), Ok(()));
    let twice = [Says(Passive, written(1).unacknowledged(2))];
    assert_eq!(then(&twice), Err(Broken::WriteDone));
}

#[test]
fn credits_count_what_the_peer_has_acknowledged() {
    let many = |count| vec![Sends(Active, UPDATE); count];
    let steps = |count, then: &[Step]| verdict(ADVERTS, &[&many(count), then].concat());
    assert_eq!(steps(63, &[Sends(Active, UPDATE)]), Err(Broken::LastCredit));
    // The update crosses all of them and acknowledges none.
    let update = [Sends(Passive, UPDATE), Receives(Active)];
    let with = |last: Message| [&update[..], &[Sends(Active, last)]].concat();
    assert_eq!(steps(63, &with(data(1))), Err(Broken::LastCredit));
    let received = [
        Receives(Passive),
        Says(Passive, UPDATE),
        Says(Active, data(1)),
    ];
    assert_eq!(steps(63, &received), Ok(()));
}
