//! The table of every state and event, and the rules that hold for all of it.

use super::*;

/// The end of a connection whose peer has not answered the disconnect.
const END: End = End {
    report: ConsumerEvent::Broken,
    lingers: true,
};
const LAST: End = End {
    lingers: false,
    ..END
};

const STATES: [State; 14] = [
    State::AwaitingReply,
    State::ResolvingAddress,
    State::ResolvingRoute,
    State::Requesting,
    State::Confirming,
    State::Pausing,
    State::AwaitingRequest,
    State::Accepting,
    State::Established,
    State::Draining,
    State::Flushing(END),
    State::Flushing(LAST),
    State::Lingering,
    State::Over,
];

const fn refused(refusal: Refusal, again: bool) -> Event {
    Event::Refused { refusal, again }
}

/// Every event, with one letter for each state, in the order of [`STATES`].
///
/// [`meaning`] returns the step of a letter.
const TABLE: [(Event, &str); 26] = [
    (Event::AddressResolved, ".r............"),
    (Event::RouteResolved, "..q..........."),
    (Event::Unresolved, ".uu...aa......"),
    (Event::Replied, "...c.........."),
    (Event::Established, "...ee..e......"),
    (refused(Refusal::Consumer, false), "p..pp.aaddx.o."),
    (refused(Refusal::Service, false), "n..nn.aaddx.o."),
    (refused(Refusal::Unreachable, false), "u..uu.aaddx.o."),
    (refused(Refusal::Consumer, true), "p..wp.aaddx.o."),
    (refused(Refusal::Service, true), "n..wn.aaddx.o."),
    (refused(Refusal::Unreachable, true), "u..wu.aaddx.o."),
    (Event::PauseOver, ".....s........"),
    (Event::Disconnected { failed: false }, "...nn.aaddx.o."),
    (Event::Disconnected { failed: true }, "...nn.aabbx.o."),
    (Event::Failed, "nnnnnnaaBB...."),
    (Event::DeviceRemoved, "uuuuuuaabbXXo."),
    (Event::TimedOut, "tttttt........"),
    (Event::Disconnect { graceful: true }, "ddddddddg....."),
    (Event::Disconnect { graceful: false }, "ddddddddDD...."),
    (Event::Drained, ".........D...."),
    (Event::Reported { failed: true }, "nnnnnnaaBB...."),
    (Event::Reported { failed: false }, "........BB...."),
    (Event::Flushed, "..........lo.."),
    (Event::LingerOver, "............o."),
    (Event::AcceptedOnSocket, "s............."),
    (Event::Requested, "......v......."),
];

/// The result of an event: the next state, the reported event and the actions.
type Outcome = (State, Option<ConsumerEvent>, Vec<Action>);

fn flush(report: ConsumerEvent, lingers: bool) -> Outcome {
    let mut actions = vec![Flush];
    if lingers {
        actions.insert(0, Disconnect);
    }
    (State::Flushing(End { report, lingers }), None, actions)
}

fn meaning(letter: char, state: State) -> Outcome {
    let quiet = |state, action| (state, None, vec![action]);
    let end = matches!(state, State::Flushing(_)).then_some(END.report);
    match letter {
        '.' => (state, None, vec![]),
        'r' => quiet(State::ResolvingRoute, ResolveRoute),
        'q' => quiet(State::Requesting, Request),
        'c' => quiet(State::Confirming, Confirm),
        'e' => (State::Established, Some(ConsumerEvent::Established), vec![]),
        'w' => (State::Pausing, None, vec![Retire, Pause]),
        'v' => quiet(State::Accepting, Reply),
        's' => quiet(State::ResolvingAddress, ResolveAddress),
        'g' => quiet(State::Draining, Drain),
        'x' => (State::Flushing(LAST), None, vec![]),
        'X' => quiet(State::Flushing(LAST), Flush),
        'l' => (State::Lingering, end, vec![Linger]),
        'o' => (State::Over, end, vec![Retire]),
        'a' => flush(ConsumerEvent::AcceptFailed, false),
        'b' => flush(ConsumerEvent::Broken, false),
        'd' => flush(ConsumerEvent::Disconnected, false),
        'n' => flush(ConsumerEvent::NonPeerRejected, false),
        'p' => flush(ConsumerEvent::PeerRejected, false),
        't' => flush(ConsumerEvent::TimedOut, false),
        'u' => flush(ConsumerEvent::Unreachable, false),
        'B' => flush(ConsumerEvent::Broken, true),
        'D' => flush(ConsumerEvent::Disconnected, true),
        other => panic!("no meaning for {other}"),
    }
}

/// The index of an event's row. The exhaustive match makes a new event without a row a compile
/// error.
fn row(event: Event) -> usize {
    match event {
        Event::AddressResolved => 0,
        Event::RouteResolved => 1,
        Event::Unresolved => 2,
        Event::Replied => 3,
        Event::Established => 4,
        Event::Refused { refusal, again } => {
            let refusal = match refusal {
                Refusal::Consumer => 0,
                Refusal::Service => 1,
                Refusal::Unreachable => 2,
            };
            5 + refusal + 3 * usize::from(again)
        }
        Event::PauseOver => 11,
        Event::Disconnected { failed } => 12 + usize::from(failed),
        Event::Failed => 14,
        Event::DeviceRemoved => 15,
        Event::TimedOut => 16,
        Event::Disconnect { graceful } => 18 - usize::from(graceful),
        Event::Drained => 19,
        Event::Reported { failed } => 21 - usize::from(failed),
        Event::Flushed => 22,
        Event::LingerOver => 23,
        Event::AcceptedOnSocket => 24,
        Event::Requested => 25,
    }
}

#[test]
fn every_event_in_every_state() {
    for (index, (event, letters)) in TABLE.into_iter().enumerate() {
        assert_eq!(row(event), index);
        assert_eq!(letters.len(), STATES.len());
        for (state, letter) in STATES.into_iter().zip(letters.chars()) {
            let mut machine = Machine { state };
            let (report, actions) = machine.on(event);
            assert_eq!(
                (machine.state(), report, actions.to_vec()),
                meaning(letter, state),
                "{event:?} in {state:?}"
            );
        }
    }
}

#[test]
fn every_end_is_reported_once_after_the_flush_and_the_id_is_retired_once() {
    let is_end_reported = |state| matches!(state, State::Lingering | State::Over);
    let has_id = |state| !matches!(state, State::Over | State::Pausing);
    for (event, _) in TABLE {
        for state in STATES {
            let mut machine = Machine { state };
            let (report, actions) = machine.on(event);
            let after = machine.state();
            let ends = report.is_some_and(|end| end != ConsumerEvent::Established);
            let ended = !is_end_reported(state) && is_end_reported(after);
            assert_eq!(ends, ended, "{event:?} in {state:?}");
            if ended {
                assert!(
                    matches!(state, State::Flushing(_)),
                    "{event:?} in {state:?}"
                );
            }
            let begins =
                matches!(after, State::Flushing(_)) && !matches!(state, State::Flushing(_));
            assert!(
                !begins || actions.contains(&Flush),
                "{event:?} in {state:?}"
            );
            if has_id(state) {
                let retired = actions.contains(&Retire);
                assert_eq!(retired, !has_id(after), "{event:?} in {state:?}");
            }
        }
    }
}

#[test]
fn a_connection_from_the_first_try_to_the_last_answer() {
    let mut machine = Machine::connect();
    let refusal = Refusal::Service;
    let (report, lingers) = (ConsumerEvent::Disconnected, true);
    let flushing = State::Flushing(End { report, lingers });
    for (event, state) in [
        (Event::AddressResolved, State::ResolvingRoute),
        (Event::RouteResolved, State::Requesting),
        (refused(refusal, true), State::Pausing),
        (Event::PauseOver, State::ResolvingAddress),
        (Event::AddressResolved, State::ResolvingRoute),
        (Event::RouteResolved, State::Requesting),
        (Event::Replied, State::Confirming),
        (Event::Established, State::Established),
        (Event::Disconnect { graceful: true }, State::Draining),
        (Event::Drained, flushing),
        (Event::Flushed, State::Lingering),
        (Event::Disconnected { failed: true }, State::Over),
    ] {
        machine.on(event);
        assert_eq!(machine.state(), state, "{event:?}");
    }
    let mut machine = Machine::accept();
    machine.on(Event::Established);
    assert_eq!(machine.state(), State::Established);
}
