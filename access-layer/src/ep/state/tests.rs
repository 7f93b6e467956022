//! Tests of every state with every event, and of sequences of events.

use super::*;

const SP: SpId = SpId(7);
const OTHER_SP: SpId = SpId(8);
const CR: CrId = CrId(9);
const OTHER_CR: CrId = CrId(10);

const ALL: [State; 10] = [
    State::Unconnected,
    State::Reserved(SP, Creator::Consumer),
    State::Reserved(SP, Creator::Provider),
    State::Passive(CR),
    State::Tentative(CR),
    State::Active,
    State::CompletionPending,
    State::Connected,
    State::DisconnectPending,
    State::Disconnected,
];

const ENDINGS: [Ending; 7] = [
    Ending::PeerRejected,
    Ending::NonPeerRejected,
    Ending::Unreachable,
    Ending::TimedOut,
    Ending::AcceptFailed,
    Ending::Disconnected,
    Ending::Broken,
];

fn at(state: State) -> Machine {
    Machine { state, ends_due: 0 }
}

/// Runs `event` in every state. `legal` lists the result of each legal transition. In all other
/// states the event must be refused with the state, and must change nothing.
fn check_command(legal: &[(State, State)], event: impl Fn(&mut Machine) -> Result<(), WrongState>) {
    for from in ALL {
        let mut machine = at(from);
        let result = event(&mut machine);
        match legal.iter().find(|(state, _)| *state == from) {
            Some((_, to)) => {
                assert_eq!(result, Ok(()), "from {from:?}");
                assert_eq!(machine.state, *to, "from {from:?}");
            }
            None => {
                assert_eq!(result, Err(WrongState(from)));
                assert_eq!(machine.state, from);
            }
        }
    }
}

#[test]
fn connect_is_legal_when_unconnected_only() {
    check_command(&[(State::Unconnected, State::Active)], Machine::on_connect);
}

#[test]
fn reserve_takes_an_unconnected_endpoint_only() {
    let reserved = State::Reserved(SP, Creator::Consumer);
    check_command(&[(State::Unconnected, reserved)], |m| m.on_reserve(SP));
}

#[test]
fn a_request_needs_the_reservation_of_its_own_service_point() {
    check_command(
        &[
            (State::Reserved(SP, Creator::Consumer), State::Passive(CR)),
            (State::Reserved(SP, Creator::Provider), State::Tentative(CR)),
        ],
        |m| m.on_request(SP, CR),
    );
    check_command(&[], |m| m.on_request(OTHER_SP, CR));
}

#[test]
fn accept_with_a_chosen_endpoint_needs_it_unconnected() {
    check_command(
        &[(State::Unconnected, State::CompletionPending)],
        Machine::on_accept_chosen,
    );
}

#[test]
fn accept_with_the_requests_endpoint_needs_it_to_wait_with_that_request() {
    check_command(
        &[
            (State::Passive(CR), State::CompletionPending),
            (State::Tentative(CR), State::CompletionPending),
        ],
        |m| m.on_accept_own(CR).map(drop),
    );
    let creator = at(State::Passive(CR)).on_accept_own(CR);
    assert_eq!(creator, Ok(Creator::Consumer));
    let creator = at(State::Tentative(CR)).on_accept_own(CR);
    assert_eq!(creator, Ok(Creator::Provider));
    check_command(&[], |m| m.on_accept_own(OTHER_CR).map(drop));
}

#[test]
fn free_is_refused_while_a_service_point_or_a_request_holds_the_endpoint() {
    for from in ALL {
        let held = matches!(
            from,
            State::Reserved(..) | State::Passive(_) | State::Tentative(_)
        );
        assert_eq!(at(from).may_free().is_err(), held, "{from:?}");
    }
}

#[test]
fn modify_is_legal_before_a_connection_begins() {
    for from in ALL {
        let pz = matches!(from, State::Unconnected | State::Tentative(_));
        let rest = pz || matches!(from, State::Reserved(..));
        assert_eq!(at(from).may_modify_pz().is_ok(), pz, "{from:?}");
        assert_eq!(at(from).may_modify_rest().is_ok(), rest, "{from:?}");
    }
}

#[test]
fn release_and_reject_return_the_endpoint_to_its_creator() {
    for from in ALL {
        let mut machine = at(from);
        let (expected, to) = match from {
            State::Reserved(_, Creator::Consumer) => (Released::ToConsumer, State::Unconnected),
            State::Reserved(_, Creator::Provider) => (Released::Destroy, State::Unconnected),
            _ => (Released::NotHeld, from),
        };
        assert_eq!(machine.on_release(SP), expected, "release from {from:?}");
        assert_eq!(machine.state, to);

        let mut machine = at(from);
        let (expected, to) = match from {
            State::Passive(_) => (Released::ToConsumer, State::Unconnected),
            State::Tentative(_) => (Released::Destroy, State::Unconnected),
            _ => (Released::NotHeld, from),
        };
        assert_eq!(machine.on_reject(CR), expected, "reject from {from:?}");
        assert_eq!(machine.state, to);

        let mut machine = at(from);
        assert_eq!(machine.on_release(OTHER_SP), Released::NotHeld);
        assert_eq!(machine.on_reject(OTHER_CR), Released::NotHeld);
        assert_eq!(machine.state, from);
    }
}

#[test]
fn establishment_counts_only_while_connecting() {
    for from in ALL {
        let mut machine = at(from);
        let event = machine.on_established();
        if matches!(from, State::Active | State::CompletionPending) {
            assert_eq!(event, Some(DAT_CONNECTION_EVENT_ESTABLISHED));
            assert_eq!(machine.state, State::Connected);
        } else {
            assert_eq!(event, None, "{from:?}");
            assert_eq!(machine.state, from);
        }
    }
}

fn expected_ending(from: State, ending: Ending) -> Option<DatEventNumber> {
    match (from, ending) {
        (State::Active, Ending::PeerRejected) => Some(DAT_CONNECTION_EVENT_PEER_REJECTED),
        (State::Active, Ending::Unreachable) => Some(DAT_CONNECTION_EVENT_UNREACHABLE),
        (State::Active, Ending::TimedOut) => Some(DAT_CONNECTION_EVENT_TIMED_OUT),
        (State::Active, _) => Some(DAT_CONNECTION_EVENT_NON_PEER_REJECTED),
        (State::CompletionPending, _) => Some(DAT_CONNECTION_EVENT_ACCEPT_COMPLETION_ERROR),
        (State::Connected, Ending::Disconnected) => Some(DAT_CONNECTION_EVENT_DISCONNECTED),
        (State::Connected, _) => Some(DAT_CONNECTION_EVENT_BROKEN),
        (State::DisconnectPending, _) => Some(DAT_CONNECTION_EVENT_DISCONNECTED),
        _ => None,
    }
}

#[test]
fn each_ending_in_each_state_has_its_event_and_leads_to_disconnected() {
    for from in ALL {
        for ending in ENDINGS {
            let mut machine = at(from);
            let event = machine.on_ended(ending);
            assert_eq!(event, expected_ending(from, ending), "{from:?} {ending:?}");
            let to = if event.is_some() {
                State::Disconnected
            } else {
                from
            };
            assert_eq!(machine.state, to, "{from:?} {ending:?}");
        }
    }
}

#[test]
fn disconnect_in_each_state() {
    for from in ALL {
        for graceful in [false, true] {
            let mut machine = at(from);
            let step = machine.on_disconnect(graceful);
            let (expected, to) = match (from, graceful) {
                (State::Connected, true) => {
                    (Ok(DisconnectStep::Graceful), State::DisconnectPending)
                }
                (State::Connected | State::Active | State::CompletionPending, _) => {
                    (Ok(DisconnectStep::Abrupt), State::DisconnectPending)
                }
                (State::DisconnectPending, true) => (Err(None), from),
                (State::DisconnectPending, false) => (Ok(DisconnectStep::Abrupt), from),
                (State::Disconnected, _) => (Ok(DisconnectStep::AlreadyOver), from),
                _ => (Err(Some(WrongState(from))), from),
            };
            assert_eq!(step, expected, "{from:?} graceful {graceful}");
            assert_eq!(machine.state, to, "{from:?} graceful {graceful}");
        }
    }
}

#[test]
fn the_end_of_an_abrupt_disconnect_is_anticipated_only_while_it_is_pending() {
    for from in ALL {
        let mut machine = at(from);
        let event = machine.on_abrupt_done();
        if from == State::DisconnectPending {
            assert_eq!(event, Some(DAT_CONNECTION_EVENT_DISCONNECTED));
            assert_eq!((machine.state, machine.ends_due), (State::Disconnected, 1));
        } else {
            assert_eq!(event, None);
            assert_eq!((machine.state, machine.ends_due), (from, 0));
        }
    }
}

#[test]
fn reset_in_each_state() {
    for from in ALL {
        let mut machine = at(from);
        let result = machine.on_reset();
        match from {
            State::Unconnected => assert_eq!(result, Ok(false)),
            State::Disconnected => assert_eq!(result, Ok(true)),
            _ => assert_eq!(result, Err(WrongState(from))),
        }
        let to = if result.is_ok() {
            State::Unconnected
        } else {
            from
        };
        assert_eq!(machine.state, to);
    }
}

#[test]
fn a_refused_start_in_each_state() {
    for from in ALL {
        let mut machine = at(from);
        let event = machine.on_start_refused();
        let (expected, to) = match from {
            State::Active | State::CompletionPending => (None, State::Unconnected),
            State::DisconnectPending => {
                (Some(DAT_CONNECTION_EVENT_DISCONNECTED), State::Disconnected)
            }
            other => (None, other),
        };
        assert_eq!((event, machine.state), (expected, to), "{from:?}");
    }
}

#[test]
fn an_endpoint_is_disconnected_after_a_failed_reset_of_the_queue_pair() {
    for from in ALL {
        let mut machine = at(from);
        machine.on_reset_failed();
        let to = if from == State::Unconnected {
            State::Disconnected
        } else {
            from
        };
        assert_eq!(machine.state, to);
    }
}

#[test]
fn every_state_has_the_code_and_the_subtype_of_the_c_headers() {
    let codes: Vec<_> = ALL.iter().map(|s| s.code()).collect();
    assert_eq!(codes, [0, 2, 2, 4, 7, 6, 12, 9, 10, 11]);
    let subtypes: Vec<_> = ALL.iter().map(|s| WrongState(*s).subtype().0).collect();
    assert_eq!(subtypes, [47, 53, 53, 49, 50, 48, 54, 51, 55, 52]);
}

#[test]
fn simultaneous_disconnects_cause_one_event() {
    let mut machine = at(State::Connected);
    assert_eq!(machine.on_disconnect(false), Ok(DisconnectStep::Abrupt));
    let event = machine.on_ended(Ending::Disconnected);
    assert_eq!(event, Some(DAT_CONNECTION_EVENT_DISCONNECTED));
    assert_eq!(machine.on_abrupt_done(), None);
    assert_eq!(machine.on_ended(Ending::Disconnected), None);
}

#[test]
fn events_of_an_old_connection_do_not_affect_the_next_one() {
    let mut machine = at(State::Connected);
    machine.on_disconnect(false).unwrap();
    assert!(machine.on_abrupt_done().is_some());
    assert_eq!(machine.on_reset(), Ok(true));
    machine.on_connect().unwrap();
    let event = machine.on_established();
    assert_eq!(event, None, "an event of the old connection");
    assert_eq!(machine.on_ended(Ending::Disconnected), None);
    assert_eq!(machine.state(), State::Active);
    let event = machine.on_established();
    assert_eq!(event, Some(DAT_CONNECTION_EVENT_ESTABLISHED));
}

#[test]
fn a_refused_start_cancels_an_anticipated_end() {
    let mut machine = at(State::Active);
    machine.on_disconnect(false).unwrap();
    assert!(machine.on_abrupt_done().is_some());
    assert_eq!(machine.on_start_refused(), None);
    assert_eq!(machine.ends_due, 0);
}
