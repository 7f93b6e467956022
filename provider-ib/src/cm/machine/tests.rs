//! The table of every state and event, and the rules that hold for all of it.

use super::Action::{
    Confirm, Disconnect, Drain, Flush, Linger, Pause, Report, Request, ResolveAddress,
    ResolveRoute, Retire,
};
use super::*;

const STATES: [State; 10] = [
    State::ResolvingAddress,
    State::ResolvingRoute,
    State::Requesting,
    State::Confirming,
    State::Pausing,
    State::Accepting,
    State::Established,
    State::Draining,
    State::Lingering,
    State::Over,
];

const fn refused(refusal: Refusal, again: bool) -> Event {
    Event::Refused { refusal, again }
}

/// Every event, with one letter for each state, in the order of [`STATES`].
///
/// [`meaning`] returns the step of a letter.
const TABLE: [(Event, &str); 23] = [
    (Event::AddressResolved, "r........."),
    (Event::RouteResolved, ".q........"),
    (Event::Unresolved, "uu...a...."),
    (Event::Replied, "..c......."),
    (Event::Established, "..ee.e...."),
    (refused(Refusal::Consumer, false), "..pp.addo."),
    (refused(Refusal::Service, false), "..nn.addo."),
    (refused(Refusal::Unreachable, false), "..uu.addo."),
    (refused(Refusal::Consumer, true), "..wp.addo."),
    (refused(Refusal::Service, true), "..wn.addo."),
    (refused(Refusal::Unreachable, true), "..wu.addo."),
    (Event::PauseOver, "....s....."),
    (Event::Disconnected { failed: false }, "..nn.addo."),
    (Event::Disconnected { failed: true }, "..nn.abbo."),
    (Event::Failed, "nnnnnaBB.."),
    (Event::DeviceRemoved, "uuuuuabbo."),
    (Event::TimedOut, "ttttt....."),
    (Event::Disconnect { graceful: true }, "ddddddg..."),
    (Event::Disconnect { graceful: false }, "ddddddDD.."),
    (Event::Drained, ".......D.."),
    (Event::Reported { failed: true }, "nnnnnaBB.."),
    (Event::Reported { failed: false }, "......BB.."),
    (Event::LingerOver, "........o."),
];

fn over(event: ConsumerEvent) -> (State, Vec<Action>) {
    (State::Over, vec![Flush, Retire, Report(event)])
}

fn linger(event: ConsumerEvent) -> (State, Vec<Action>) {
    let actions = vec![Disconnect, Flush, Report(event), Linger];
    (State::Lingering, actions)
}

fn meaning(letter: char, state: State) -> (State, Vec<Action>) {
    match letter {
        '.' => (state, vec![]),
        'r' => (State::ResolvingRoute, vec![ResolveRoute]),
        'q' => (State::Requesting, vec![Request]),
        'c' => (State::Confirming, vec![Confirm]),
        'e' => (State::Established, vec![Report(ConsumerEvent::Established)]),
        'w' => (State::Pausing, vec![Retire, Pause]),
        's' => (State::ResolvingAddress, vec![ResolveAddress]),
        'g' => (State::Draining, vec![Drain]),
        'o' => (State::Over, vec![Retire]),
        'a' => over(ConsumerEvent::AcceptFailed),
        'b' => over(ConsumerEvent::Broken),
        'd' => over(ConsumerEvent::Disconnected),
        'n' => over(ConsumerEvent::NonPeerRejected),
        'p' => over(ConsumerEvent::PeerRejected),
        't' => over(ConsumerEvent::TimedOut),
        'u' => over(ConsumerEvent::Unreachable),
        'B' => linger(ConsumerEvent::Broken),
        'D' => linger(ConsumerEvent::Disconnected),
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
        Event::LingerOver => 22,
    }
}

#[test]
fn every_event_in_every_state() {
    for (index, (event, letters)) in TABLE.into_iter().enumerate() {
        assert_eq!(row(event), index);
        assert_eq!(letters.len(), STATES.len());
        for (state, letter) in STATES.into_iter().zip(letters.chars()) {
            let mut machine = Machine { state };
            let actions = machine.on(event).to_vec();
            assert_eq!(
                (machine.state(), actions),
                meaning(letter, state),
                "{event:?} in {state:?}"
            );
        }
    }
}

/// True if the end of the connection was reported before this state.
fn is_end_reported(state: State) -> bool {
    matches!(state, State::Lingering | State::Over)
}

#[test]
fn every_end_is_reported_once_and_the_id_is_retired_once() {
    for (event, _) in TABLE {
        for state in STATES {
            let mut machine = Machine { state };
            let actions = machine.on(event);
            let endings = actions
                .iter()
                .filter(
                    |action| matches!(action, Report(end) if *end != ConsumerEvent::Established),
                )
                .count();
            let ended = !is_end_reported(state) && is_end_reported(machine.state());
            assert_eq!(endings, usize::from(ended), "{event:?} in {state:?}");
            let retired = actions.contains(&Retire);
            let has_id = !matches!(state, State::Over | State::Pausing);
            let keeps_id = !matches!(machine.state(), State::Over | State::Pausing);
            if has_id {
                assert_eq!(retired, !keeps_id, "{event:?} in {state:?}");
            }
        }
    }
}

#[test]
fn posted_work_is_flushed_before_the_end_is_reported() {
    for (event, _) in TABLE {
        for state in STATES {
            let actions = Machine { state }.on(event);
            let report = actions.iter().position(
                |action| matches!(action, Report(end) if *end != ConsumerEvent::Established),
            );
            if let Some(report) = report {
                assert!(actions[..report].contains(&Flush), "{event:?} in {state:?}");
            }
        }
    }
}

#[test]
fn a_connection_from_the_first_try_to_the_last_answer() {
    let (mut machine, actions) = Machine::connect();
    assert_eq!(actions, [ResolveAddress]);
    let refusal = Refusal::Service;
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
        (Event::Drained, State::Lingering),
        (Event::Disconnected { failed: true }, State::Over),
    ] {
        machine.on(event);
        assert_eq!(machine.state(), state, "{event:?}");
    }
    let mut machine = Machine::accept();
    machine.on(Event::Established);
    assert_eq!(machine.state(), State::Established);
}
