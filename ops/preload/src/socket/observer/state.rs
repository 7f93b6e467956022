//! The state machine of what the program's descriptor shows: a product of small machines with one
//! function for all transitions.
//!
//! ```text
//! writes  On ── WritingEnds ──> Ending ── WritingEnded ──> Ended     (On ──> Ended as well)
//! reads   On ── EndRead ──> AtEnd ── ReadingEnded ──> Ended          (On ──> Ended as well)
//!            EndRead has no effect while the users are ThisProcess
//! peer    Sends ── PeerEnded ──> Ended
//! users   ThisProcess ── Shared ──> Several
//! pair    Steered ── HandedOver ──> Carrying ── Left ──> Gone
//!         Steered <── TakenBack ── Carrying, Steered ── Broken ──> Gone
//! shown   Nothing ──> HalfClosed ──> HungUp                          (Renewed: back to Nothing)
//! ```
//!
//! An end is *held back* while several processes use the connection and the program has not read
//! the end: a pair that shows an end accepts no more bytes, and the unread bytes may still have to
//! pass through the pair.

/// The program's writing half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writes {
    On,
    /// Writes of the program fail. The stream is not shut down yet, or the connection ends by a
    /// close, which no descriptor shows.
    Ending,
    /// The program has shut its half down.
    Ended,
}

/// The program's reading half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    On,
    /// The program has read the end of the peer's data.
    AtEnd,
    /// The program has shut its half down.
    Ended,
}

/// The peer's writing half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Sends,
    Ended,
}

/// The processes that may use the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Users {
    ThisProcess,
    Several,
}

/// The receiver of changes of readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pair {
    /// The program's end of the pair, by signals.
    Steered,
    /// The relay, which moves the bytes.
    Carrying,
    /// None: the connection broke or has ended.
    Gone,
}

/// The ends that the pair shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Shown {
    Nothing,
    /// The program's end shows that no more bytes will be received.
    HalfClosed,
    /// Both ends of the pair show that both directions have ended.
    HungUp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    writes: Writes,
    reads: Reads,
    peer: Peer,
    users: Users,
    pair: Pair,
    shown: Shown,
    /// True while an `exec` is in progress: the next program would read signals as data.
    is_paused: bool,
}

/// An event of the stream, of the program or of other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// Bytes have arrived.
    Arrived,
    /// The stream has room for bytes again.
    Room,
    /// An urgent byte was announced or received.
    Urgent,
    /// The peer has ended its writing half.
    PeerEnded,
    /// The connection broke.
    Broken,
    /// The program has ended its reading half.
    ReadingEnded,
    /// The program has ended its writing half, and the stream is about to be shut down.
    WritingEnds,
    /// The stream was shut down.
    WritingEnded,
    /// The program has read the end of the peer's data.
    EndRead,
    /// Other processes are about to use the connection.
    Shared,
    /// A new pair has replaced a pair that showed an end.
    Renewed,
    /// The relay moves the bytes from now on.
    HandedOver,
    /// The relay has returned the pair.
    TakenBack,
    /// The relay has ended.
    Left,
    /// An `exec` is in progress.
    Paused,
    /// The `exec` has failed.
    Resumed,
}

/// A signal to the program's end of the pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    Announce,
    AnnounceUrgent,
    OpenWindow,
    HalfClose,
    HangUp,
    Reset,
}

/// The work that the caller must do after a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) signal: Option<Signal>,
    /// True if the relay, if there is one, must run.
    pub(super) nudges: bool,
    /// True if threads that sleep in calls must check the connection again.
    pub(super) wakes: bool,
}

impl Action {
    const NOTHING: Self = Self {
        signal: None,
        nudges: false,
        wakes: false,
    };

    const WAKE: Self = Self {
        wakes: true,
        ..Self::NOTHING
    };

    const NUDGE: Self = Self {
        nudges: true,
        ..Self::WAKE
    };
}

impl State {
    /// The state of a new connection.
    pub(super) const NEW: Self = Self {
        writes: Writes::On,
        reads: Reads::On,
        peer: Peer::Sends,
        users: Users::ThisProcess,
        pair: Pair::Steered,
        shown: Shown::Nothing,
        is_paused: false,
    };

    /// Returns true if writes of the program fail.
    pub(crate) fn refuses_writes(self) -> bool {
        self.writes != Writes::On || self.is_broken()
    }

    /// Returns true if the program has ended its writing half, by a shutdown or a close.
    pub(crate) fn has_writing_ended(self) -> bool {
        self.writes != Writes::On
    }

    /// Returns true if the program has shut its writing half down.
    pub(crate) fn has_shut_down(self) -> bool {
        self.writes == Writes::Ended
    }

    /// Returns true if the program has shut its reading half down.
    pub(crate) fn has_reading_ended(self) -> bool {
        self.reads == Reads::Ended
    }

    pub(crate) fn has_peer_ended(self) -> bool {
        self.peer == Peer::Ended
    }

    /// Returns true if both directions have ended.
    pub(crate) fn is_over(self) -> bool {
        self.has_peer_ended() && self.has_shut_down()
    }

    /// Returns true if the connection broke, or its relay has ended.
    pub(crate) fn is_broken(self) -> bool {
        self.pair == Pair::Gone
    }

    /// Returns true if the pair shows the end of both directions because of [`Signal::HangUp`].
    /// Processes can then only read that end, and a hang-up does not mean that no process holds the
    /// pair.
    pub(crate) fn shows_hang_up(self) -> bool {
        self.shown == Shown::HungUp
    }

    /// Returns the state after an event, and the action of the transition.
    pub(super) fn on(self, event: Event) -> (Self, Action) {
        let mut next = self;
        let action = match event {
            Event::Arrived => self.signal(Signal::Announce),
            Event::Room => self.signal(Signal::OpenWindow),
            Event::Urgent => self.signal(Signal::AnnounceUrgent),
            Event::PeerEnded => {
                next.peer = Peer::Ended;
                next.show_end()
            }
            Event::Broken => next.break_off(),
            Event::ReadingEnded => {
                next.reads = Reads::Ended;
                next.show_end()
            }
            Event::WritingEnds => {
                if self.writes == Writes::On {
                    next.writes = Writes::Ending;
                }
                Action::NOTHING
            }
            Event::WritingEnded => {
                next.writes = Writes::Ended;
                next.show_end()
            }
            Event::EndRead if self.users == Users::Several && self.reads == Reads::On => {
                next.reads = Reads::AtEnd;
                next.show_end()
            }
            Event::EndRead => Action::NOTHING,
            Event::Shared => {
                next.users = Users::Several;
                Action::NOTHING
            }
            Event::Renewed => {
                next.shown = Shown::Nothing;
                Action::NOTHING
            }
            Event::HandedOver => next.move_pair(Pair::Steered, Pair::Carrying),
            Event::TakenBack => next.move_pair(Pair::Carrying, Pair::Steered),
            Event::Left => next.move_pair(Pair::Carrying, Pair::Gone),
            Event::Paused => {
                next.is_paused = true;
                Action::NOTHING
            }
            Event::Resumed => {
                next.is_paused = false;
                next.show_end()
            }
        };
        (next, action)
    }

    fn move_pair(&mut self, from: Pair, to: Pair) -> Action {
        if self.pair == from {
            self.pair = to;
        }
        Action::WAKE
    }

    /// Returns the action that reports a change of readiness.
    fn signal(self, signal: Signal) -> Action {
        match self.pair {
            Pair::Steered if self.is_paused => Action::WAKE,
            Pair::Steered => Action {
                signal: Some(signal),
                ..Action::WAKE
            },
            Pair::Carrying => Action::NUDGE,
            Pair::Gone => Action::WAKE,
        }
    }

    /// Shows the ends that the pair may show in this state.
    fn show_end(&mut self) -> Action {
        if self.peer == Peer::Sends && self.reads == Reads::On {
            return Action::WAKE;
        }
        if self.users == Users::Several && self.reads == Reads::On {
            // The end is held back: the pair shows only that there is something to read.
            return Action {
                nudges: true,
                ..self.signal(Signal::Announce)
            };
        }
        let (shown, signal) = match self.writes {
            Writes::On | Writes::Ending => (Shown::HalfClosed, Signal::HalfClose),
            Writes::Ended => (Shown::HungUp, Signal::HangUp),
        };
        let action = self.signal(signal);
        if action.signal.is_some() {
            if self.shown >= shown {
                return Action::WAKE;
            }
            self.shown = shown;
        }
        action
    }

    fn break_off(&mut self) -> Action {
        if self.is_over() {
            // After both directions have ended, TCP has closed and receives no reset.
            return Action::NOTHING;
        }
        match self.pair {
            Pair::Steered => {
                self.pair = Pair::Gone;
                Action {
                    signal: Some(Signal::Reset),
                    ..Action::WAKE
                }
            }
            // The relay detects the break after the last byte.
            Pair::Carrying => Action::NUDGE,
            Pair::Gone => Action::WAKE,
        }
    }

    /// Returns the state as one word.
    pub(super) const fn packed(self) -> u32 {
        self.writes as u32
            | (self.reads as u32) << 2
            | (self.peer as u32) << 4
            | (self.users as u32) << 5
            | (self.pair as u32) << 6
            | (self.shown as u32) << 8
            | (self.is_paused as u32) << 10
    }

    /// Returns the state of a word from [`packed`](Self::packed).
    pub(super) fn unpacked(word: u32) -> Self {
        Self {
            writes: match word & 3 {
                0 => Writes::On,
                1 => Writes::Ending,
                _ => Writes::Ended,
            },
            reads: match word >> 2 & 3 {
                0 => Reads::On,
                1 => Reads::AtEnd,
                _ => Reads::Ended,
            },
            peer: match word >> 4 & 1 {
                0 => Peer::Sends,
                _ => Peer::Ended,
            },
            users: match word >> 5 & 1 {
                0 => Users::ThisProcess,
                _ => Users::Several,
            },
            pair: match word >> 6 & 3 {
                0 => Pair::Steered,
                1 => Pair::Carrying,
                _ => Pair::Gone,
            },
            shown: match word >> 8 & 3 {
                0 => Shown::Nothing,
                1 => Shown::HalfClosed,
                _ => Shown::HungUp,
            },
            is_paused: word >> 10 & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const EVENTS: [Event; 16] = [
        Event::Arrived,
        Event::Room,
        Event::Urgent,
        Event::PeerEnded,
        Event::Broken,
        Event::ReadingEnded,
        Event::WritingEnds,
        Event::WritingEnded,
        Event::EndRead,
        Event::Shared,
        Event::Renewed,
        Event::HandedOver,
        Event::TakenBack,
        Event::Left,
        Event::Paused,
        Event::Resumed,
    ];

    /// Returns all states that events can lead to.
    fn reachable() -> Vec<State> {
        let mut known = BTreeSet::from([State::NEW.packed()]);
        let mut found = vec![State::NEW];
        let mut at = 0;
        while let Some(state) = found.get(at).copied() {
            at += 1;
            for event in EVENTS {
                let (next, _) = state.on(event);
                if known.insert(next.packed()) {
                    found.push(next);
                }
            }
        }
        found
    }

    #[test]
    fn every_transition_keeps_the_rules() {
        for state in reachable() {
            assert_eq!(State::unpacked(state.packed()), state);
            for event in EVENTS {
                check(state, event);
            }
        }
    }

    fn check(state: State, event: Event) {
        let (next, action) = state.on(event);
        let at = format!("{state:?} on {event:?}: {next:?}, {action:?}");
        let rank = |state: State| {
            (
                state.writes as u8,
                state.reads as u8,
                state.peer as u8,
                state.users as u8,
            )
        };
        let (before, after) = (rank(state), rank(next));
        assert!(
            before.0 <= after.0
                && before.1 <= after.1
                && before.2 <= after.2
                && before.3 <= after.3,
            "a half that had ended is open again: {at}"
        );
        assert!(
            next.shown >= state.shown || event == Event::Renewed,
            "a shown end was withdrawn: {at}"
        );
        match state.pair {
            Pair::Gone => {
                assert_eq!(next.pair, Pair::Gone, "{at}");
                assert_eq!(action.signal, None, "{at}");
            }
            Pair::Carrying => assert_eq!(
                action.signal, None,
                "a signal is sent through a pair that carries bytes: {at}"
            ),
            Pair::Steered => {}
        }
        if let Some(signal) = action.signal {
            let is_reset = signal == Signal::Reset;
            assert_eq!(is_reset, next.pair == Pair::Gone, "{at}");
            assert!(
                is_reset || !next.is_paused,
                "a signal is sent during an `exec`: {at}"
            );
            assert!(action.wakes, "{at}");
        }
        let is_held_back = next.users == Users::Several && next.reads == Reads::On;
        let is_end = matches!(action.signal, Some(Signal::HalfClose | Signal::HangUp));
        assert!(
            !(is_end && is_held_back),
            "an end that must be held back is shown: {at}"
        );
        assert_eq!(
            is_end,
            next.shown > state.shown,
            "an end is shown twice, or without its signal: {at}"
        );
        if next.shown == Shown::HungUp {
            assert_eq!(next.writes, Writes::Ended, "{at}");
        }
        if next.shown != Shown::Nothing {
            let has_end = next.peer == Peer::Ended || next.reads != Reads::On;
            assert!(
                has_end,
                "an end is shown though neither half has ended: {at}"
            );
        }
    }

    #[test]
    fn an_end_is_shown_when_it_was_read() {
        let (state, _) = State::NEW.on(Event::Shared);
        let (state, action) = state.on(Event::PeerEnded);
        assert_eq!(action.signal, Some(Signal::Announce));
        assert!(action.nudges);
        let (state, action) = state.on(Event::EndRead);
        assert_eq!(action.signal, Some(Signal::HalfClose));
        let (state, _) = state.on(Event::WritingEnds);
        let (state, action) = state.on(Event::WritingEnded);
        assert_eq!(action.signal, Some(Signal::HangUp));
        assert!(state.is_over());
        assert_eq!(state.on(Event::Broken), (state, Action::NOTHING));
    }

    #[test]
    fn a_failed_exec_shows_the_events_that_it_held_back() {
        let (state, _) = State::NEW.on(Event::Paused);
        let (state, action) = state.on(Event::PeerEnded);
        assert_eq!(action, Action::WAKE);
        let (state, action) = state.on(Event::Resumed);
        assert_eq!(action.signal, Some(Signal::HalfClose));
        assert!(!state.is_paused);
    }
}
