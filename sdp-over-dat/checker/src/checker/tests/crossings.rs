//! Messages that cross on the wire, in both orders.
//!
//! The checker reads the two ends' messages as they are sent and received. Then it reads the trace
//! of each end, and must come to the same verdict (see [`verdict`]).

use super::script::{
    DIS_CONN, Message, ROOM, SEND_SM, SINK_CANCEL, SINK_CANCEL_ACK, SRC_CANCEL,
    Step::{self, Delivers, Receives, Sends},
    TO_COMBINED, TO_PIPELINED, UPDATE, data, read, sink_avail, src_avail, verdict, written,
};
use crate::{
    Broken,
    Side::{Active, Passive},
};

const ADVERTS: u8 = 3;

/// Active is the source, in pipelined mode.
fn pipelined(steps: &[Step]) -> Result<(), Broken> {
    let enter = [Delivers(Active, TO_PIPELINED)];
    verdict(ADVERTS, &[&enter, steps].concat())
}

/// Each end sends a message before it has received the other's.
fn crossing(active: Message, passive: Message) -> [[Step; 4]; 2] {
    let (first, second) = (Sends(Active, active), Sends(Passive, passive));
    [
        [first, second, Receives(Active), Receives(Passive)],
        [second, first, Receives(Passive), Receives(Active)],
    ]
}

/// Checks what may follow two crossing messages, in both orders: the steps before, the messages of
/// the active and of the passive side; then messages and their results.
macro_rules! after_crossing {
    ($before:expr, $active:expr, $passive:expr; $($side:ident $message:expr => $result:expr,)+) => {
        for cross in crossing($active, $passive) {$(
            let steps = [&$before[..], &cross, &[Delivers($side, $message)]].concat();
            assert_eq!(pipelined(&steps), $result, "{steps:?}");
        )+}
    };
}

const SINK: Message = sink_avail(500, 0);

#[test]
fn data_that_crosses_sink_avail_uses_it_up() {
    after_crossing! { &[], data(1), SINK;
        Active written(1) => Err(Broken::WriteDone),
        Active src_avail(9, 0) => Ok(()),
        Passive sink_avail(500, 0) => Ok(()),
        Passive sink_avail(500, 1) => Err(Broken::NonDiscards),
        Passive SINK_CANCEL => Err(Broken::Cancel),
    }
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
    assert_eq!(then(&[Delivers(Active, written(200))]), Ok(()));
    let more = [Delivers(Active, written(201))];
    assert_eq!(then(&more), Err(Broken::WriteDone));
    let both = [Delivers(Active, written(200)), Delivers(Active, written(1))];
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
    let one = [Delivers(Active, written(1))];
    assert_eq!(then(&one), Err(Broken::WriteDone));
    assert_eq!(then(&[Delivers(Passive, sink_avail(100, 0))]), Ok(()));
}

#[test]
fn a_valid_sink_avail_revokes_source_advertisements() {
    after_crossing! { &[Delivers(Active, src_avail(50, 0))], src_avail(60, 0), read(50);
        Passive SINK => Err(Broken::SinkBehindSource),
    }
    after_crossing! { &[], src_avail(60, 0), SINK;
        Passive read(1) => Err(Broken::ReadDone),
        Passive SEND_SM => Err(Broken::SendSm),
        Active SRC_CANCEL => Err(Broken::Cancel),
        Active src_avail(60, 0) => Err(Broken::SourceBehindSink),
        Active written(1) => Ok(()),
        Active data(1) => Ok(()),
        Active DIS_CONN => Ok(()),
    }
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
    assert_eq!(then(Delivers(Passive, read(60))), Ok(()));
    assert_eq!(then(Delivers(Active, SRC_CANCEL)), Ok(()));
    let data = then(Delivers(Active, data(1)));
    assert_eq!(data, Err(Broken::DataBehindAdvert));
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
    assert_eq!(then(Delivers(Passive, SEND_SM)), Err(Broken::SendSm));
    assert_eq!(then(Delivers(Active, written(60))), Ok(()));
}

#[test]
fn a_cancel_that_crosses_the_last_read_or_a_refusal_has_no_answer() {
    for answer in [read(60), SEND_SM] {
        after_crossing! { &[Delivers(Active, src_avail(60, 0))], SRC_CANCEL, answer;
            Passive SEND_SM => Err(Broken::SendSm),
            Active SRC_CANCEL => Err(Broken::Cancel),
            Active src_avail(60, 0) => Ok(()),
            Active data(1) => Ok(()),
        }
    }
    // A partial read leaves something to cancel.
    after_crossing! { &[Delivers(Active, src_avail(60, 0))], SRC_CANCEL, read(59);
        Passive SEND_SM => Ok(()),
        Passive read(1) => Ok(()),
        Passive read(2) => Err(Broken::ReadDone),
        Active data(1) => Err(Broken::DataBehindAdvert),
    }
}

#[test]
fn a_cancel_that_crosses_the_use_of_the_memory_has_no_answer() {
    for use_up in [written(5), data(5)] {
        after_crossing! { &[Delivers(Passive, SINK)], use_up, SINK_CANCEL;
            Active SINK_CANCEL_ACK => Err(Broken::SinkCancelAck),
            Passive SINK_CANCEL => Err(Broken::Cancel),
            Passive sink_avail(ROOM, 0) => Ok(()),
        }
        // Of two advertisements one is left to be dropped.
        after_crossing! { &[Delivers(Passive, SINK), Delivers(Passive, SINK)], use_up, SINK_CANCEL;
            Active SINK_CANCEL_ACK => Ok(()),
            Active written(500) => Ok(()),
            Passive SINK_CANCEL => Err(Broken::Cancel),
            Passive sink_avail(ROOM, 0) => Err(Broken::AdvertLimit),
        }
    }
}

#[test]
fn a_source_advertisement_that_crosses_a_refusal_may_not_be_read() {
    after_crossing! { &[Delivers(Active, src_avail(60, 0))], src_avail(70, 0), SEND_SM;
        Passive read(1) => Err(Broken::ReadOfCrossed),
        // The source may drop it, or cancel it.
        Active data(1) => Ok(()),
        Active SRC_CANCEL => Ok(()),
        Active DIS_CONN => Ok(()),
    }
    after_crossing! { &[Delivers(Active, src_avail(60, 0))], src_avail(70, 0), SEND_SM;
        Passive SEND_SM => Ok(()),
    }
    let again = [
        Delivers(Active, src_avail(60, 0)),
        Delivers(Passive, SEND_SM),
        Delivers(Active, src_avail(70, 0)),
        Delivers(Passive, read(70)),
    ];
    assert_eq!(pipelined(&again), Ok(()), "not crossed");
}

#[test]
fn answers_that_cross_the_change_to_combined_mode_are_about_withdrawn_memory() {
    for answer in [read(60), read(9), SEND_SM] {
        after_crossing! { &[Delivers(Active, src_avail(60, 0))], TO_COMBINED, answer;
            Passive read(1) => Err(Broken::ReadDone),
            Active SRC_CANCEL => Err(Broken::Cancel),
            Active src_avail(60, 1) => Ok(()),
            Active src_avail(60, 0) => Err(Broken::AdvertForm),
            Active data(1) => Ok(()),
        }
    }
    // An advertisement that is made again before the answer is received is not touched by it.
    let steps = [
        Delivers(Active, src_avail(60, 0)),
        Sends(Active, TO_COMBINED),
        Sends(Active, src_avail(60, 1)),
        Sends(Passive, read(60)),
        Receives(Active),
        Receives(Passive),
    ];
    let then = |last: Step| pipelined(&[&steps, &[last][..]].concat());
    assert_eq!(then(Delivers(Passive, read(59))), Ok(()));
    let data = then(Delivers(Active, data(1)));
    assert_eq!(data, Err(Broken::DataBehindAdvert));
}

#[test]
fn sink_avail_that_crosses_the_change_to_combined_mode_is_used_up() {
    after_crossing! { &[], TO_COMBINED, SINK;
        Passive SINK => Err(Broken::SinkAvail),
        Passive SINK_CANCEL => Ok(()),
        Active written(1) => Ok(()),
        Active data(1) => Ok(()),
        Active src_avail(9, 1) => Ok(()),
    }
    // The message uses it up and is not counted.
    for used_by in [data(1), written(1)] {
        for (non_discards, result) in [(0, Ok(())), (1, Err(Broken::NonDiscards))] {
            for cross in crossing(TO_COMBINED, SINK) {
                let then = [
                    Delivers(Active, used_by),
                    Delivers(Active, TO_PIPELINED),
                    Delivers(Passive, sink_avail(ROOM, non_discards)),
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
    assert_eq!(then(Delivers(Passive, read(59))), Ok(()));
    assert_eq!(then(Delivers(Active, written(1))), Err(Broken::WriteDone));
}

#[test]
fn payload_of_sink_avail_crosses_sink_avail_of_the_other_half() {
    after_crossing! { &[Delivers(Passive, TO_PIPELINED)],
        sink_avail(500, 0).payload(7), sink_avail(600, 0).payload(8);
        Active written(600) => Ok(()),
        Active written(601) => Err(Broken::WriteDone),
        Passive written(500) => Ok(()),
        Passive written(501) => Err(Broken::WriteDone),
        Passive sink_avail(ROOM, 0) => Ok(()),
    }
}

/// The sink does not acknowledge a cancel while it reads, so MSeqAck does not show that it has
/// received the messages after the cancel.
#[test]
fn what_follows_an_unacknowledged_cancel_may_have_been_received() {
    let steps = [
        Delivers(Passive, TO_PIPELINED),
        Delivers(Active, src_avail(60, 0)),
        Delivers(Active, SRC_CANCEL),
        Delivers(Active, sink_avail(500, 0)),
    ];
    let then = |last: Step| pipelined(&[&steps, &[last][..]].concat());
    let write = Delivers(Passive, written(1).unacknowledged(2));
    assert_eq!(then(write), Ok(()));
    assert_eq!(then(Delivers(Passive, data(1).unacknowledged(2))), Ok(()));
    let too_many = Delivers(Passive, written(501).unacknowledged(2));
    assert_eq!(then(too_many), Err(Broken::WriteDone));
    let steps = [&steps[..], &[write]].concat();
    let then = |last: &[Step]| pipelined(&[&steps, last].concat());
    let answered = [Delivers(Passive, read(60)), Delivers(Active, data(1))];
    assert_eq!(then(&answered), Ok(()));
    assert_eq!(then(&[write]), Err(Broken::WriteDone), "twice");
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
        Delivers(Passive, UPDATE),
        Delivers(Active, data(1)),
    ];
    assert_eq!(steps(63, &received), Ok(()));
}
