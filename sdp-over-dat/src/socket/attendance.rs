//! The thread that takes the events of a socket from the socket's dispatchers.
//!
//! ```text
//!             hand over, service wanted
//!   CALLS ─────────────────────────────────> STACK
//!    ^ ^ <───────────────────────────────────  |
//!    | |     hand over, no service wanted      |
//!    | |                                       | begin to poll
//!    | '─ tick without a poll, end ─ POLLERS <─┤
//!    |                                         | begin to sleep
//!    '── end of the sleep ────────── SLEEPER <─'
//!           begin to poll or to sleep: also from CALLS
//! ```

/// A dispatcher of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Completions,
    Connections,
}

/// The state, as the module's diagram shows it. The `on_*` methods are the only writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attendance {
    /// No thread sleeps; each call polls the dispatchers.
    Calls,
    /// Calls that wait poll the dispatchers, so that the stack's thread does not wake for each
    /// message. A tick of that thread detects that the calls have stopped.
    Pollers {
        /// True if a call has polled since the last tick.
        has_polled: bool,
    },
    /// The dispatchers trigger the CNO on which the stack's thread sleeps; calls poll as well.
    Stack,
    /// The thread of a call sleeps in this dispatcher. No other thread polls it, because DAT
    /// permits one waiter and no dequeue at the same time.
    Sleeper {
        queue: Queue,
        /// True if the sleeper was woken although there is no event.
        is_kicked: bool,
    },
}

impl Attendance {
    /// Called when the thread of a call is about to sleep in a dispatcher. Returns true if the
    /// dispatchers are to be detached from the CNO: the stack's thread would wake for the same
    /// events.
    pub(super) fn on_begin_sleep(&mut self, queue: Queue) -> bool {
        let before = std::mem::replace(
            self,
            Self::Sleeper {
                queue,
                is_kicked: false,
            },
        );
        before == Self::Stack
    }

    /// Called when the sleeper is awake. Returns true if it was kicked. Then its dispatcher is
    /// unwaitable, and the caller must make it waitable again.
    pub(super) fn on_end_sleep(&mut self) -> bool {
        match *self {
            Self::Sleeper { is_kicked, .. } => {
                *self = Self::Calls;
                is_kicked
            }
            Self::Calls | Self::Pollers { .. } | Self::Stack => false,
        }
    }

    /// Called when something changed that is not an event of a dispatcher. Returns the dispatcher
    /// whose sleeper is to be woken: the caller makes it unwaitable.
    pub(super) fn on_kick(&mut self) -> Option<Queue> {
        match self {
            Self::Sleeper { queue, is_kicked } if !*is_kicked => {
                *is_kicked = true;
                Some(*queue)
            }
            Self::Calls | Self::Pollers { .. } | Self::Stack | Self::Sleeper { .. } => None,
        }
    }

    /// Called when a call that waits is about to poll. Returns the former state. `None`: the call
    /// cannot poll, because a thread sleeps in a dispatcher.
    pub(super) fn on_begin_polling(&mut self) -> Option<Self> {
        let polls = Self::Pollers { has_polled: true };
        (!self.has_sleeper()).then(|| std::mem::replace(self, polls))
    }

    /// Called when the calls stop polling. The hand-over that follows selects the thread.
    pub(super) fn on_end_polling(&mut self) {
        if matches!(self, Self::Pollers { .. }) {
            *self = Self::Calls;
        }
    }

    /// Called at a tick. Returns true if another tick is wanted.
    pub(super) fn on_tick(&mut self) -> bool {
        let Self::Pollers { has_polled } = *self else {
            return false;
        };
        *self = match has_polled {
            true => Self::Pollers { has_polled: false },
            false => Self::Calls,
        };
        has_polled
    }

    /// Called when a call ends. `wants_service` is true if events must be handled while no call is
    /// in progress. Returns true if the dispatchers are to be attached to the CNO, false if they
    /// are to be detached from it, and `None` if nothing changes.
    pub(super) fn on_hand_over(&mut self, wants_service: bool) -> Option<bool> {
        let next = match *self {
            Self::Calls if wants_service => Self::Stack,
            Self::Stack if !wants_service => Self::Calls,
            Self::Calls | Self::Pollers { .. } | Self::Stack | Self::Sleeper { .. } => return None,
        };
        *self = next;
        Some(wants_service)
    }

    /// True while a thread sleeps in either dispatcher.
    pub(super) fn has_sleeper(self) -> bool {
        matches!(self, Self::Sleeper { .. })
    }

    /// True while a thread sleeps in this dispatcher.
    pub(super) fn sleeps_in(self, it: Queue) -> bool {
        matches!(self, Self::Sleeper { queue, .. } if queue == it)
    }

    /// True while the dispatchers are attached to the CNO.
    pub(super) fn is_stacks(self) -> bool {
        self == Self::Stack
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Attendance::{Calls, Pollers, Sleeper, Stack},
        Queue::{Completions, Connections},
        *,
    };

    const fn sleeper(queue: Queue, is_kicked: bool) -> Attendance {
        Sleeper { queue, is_kicked }
    }

    /// The result of a transition, in one type for all.
    #[derive(Debug, PartialEq, Eq)]
    enum Returned {
        Nothing,
        Flag(bool),
        Queue(Option<Queue>),
        Change(Option<bool>),
        Before(Option<Attendance>),
    }
    use Returned::{Before, Change, Flag, Nothing};

    #[test]
    fn every_event_in_every_state() {
        type Row = (
            &'static str,
            fn(&mut Attendance) -> Returned,
            [(Attendance, Returned); 7],
        );
        let asleep = sleeper(Completions, false);
        let kicked = sleeper(Completions, true);
        let connecting = sleeper(Connections, false);
        let polls = Pollers { has_polled: true };
        let quiet = Pollers { has_polled: false };
        let before = [Calls, polls, quiet, Stack, asleep, kicked, connecting];
        macro_rules! rows {
            ($($name:literal: $event:expr => $after:expr;)+) => { [$(($name, $event, $after)),+] };
        }
        let rows: [Row; 8] = rows! {
            "begin to sleep": |it| Flag(it.on_begin_sleep(Completions))
                => [(asleep, Flag(false)), (asleep, Flag(false)), (asleep, Flag(false)),
                    (asleep, Flag(true)), (asleep, Flag(false)), (asleep, Flag(false)),
                    (asleep, Flag(false))];
            "end of the sleep": |it| Flag(it.on_end_sleep())
                => [(Calls, Flag(false)), (polls, Flag(false)), (quiet, Flag(false)),
                    (Stack, Flag(false)), (Calls, Flag(false)), (Calls, Flag(true)),
                    (Calls, Flag(false))];
            "begin to poll": |it| Before(it.on_begin_polling())
                => [(polls, Before(Some(Calls))), (polls, Before(Some(polls))),
                    (polls, Before(Some(quiet))), (polls, Before(Some(Stack))),
                    (asleep, Before(None)), (kicked, Before(None)), (connecting, Before(None))];
            "end of the polls": |it| { it.on_end_polling(); Nothing }
                => [(Calls, Nothing), (Calls, Nothing), (Calls, Nothing), (Stack, Nothing),
                    (asleep, Nothing), (kicked, Nothing), (connecting, Nothing)];
            "tick": |it| Flag(it.on_tick())
                => [(Calls, Flag(false)), (quiet, Flag(true)), (Calls, Flag(false)),
                    (Stack, Flag(false)), (asleep, Flag(false)), (kicked, Flag(false)),
                    (connecting, Flag(false))];
            "kick": |it| Returned::Queue(it.on_kick())
                => [(Calls, Returned::Queue(None)), (polls, Returned::Queue(None)),
                    (quiet, Returned::Queue(None)), (Stack, Returned::Queue(None)),
                    (kicked, Returned::Queue(Some(Completions))), (kicked, Returned::Queue(None)),
                    (sleeper(Connections, true), Returned::Queue(Some(Connections)))];
            "hand over, service wanted": |it| Change(it.on_hand_over(true))
                => [(Stack, Change(Some(true))), (polls, Change(None)), (quiet, Change(None)),
                    (Stack, Change(None)), (asleep, Change(None)), (kicked, Change(None)),
                    (connecting, Change(None))];
            "hand over, no service wanted": |it| Change(it.on_hand_over(false))
                => [(Calls, Change(None)), (polls, Change(None)), (quiet, Change(None)),
                    (Calls, Change(Some(false))), (asleep, Change(None)), (kicked, Change(None)),
                    (connecting, Change(None))];
        };
        for (name, event, after) in rows {
            for (before, (expected, returned)) in before.into_iter().zip(after) {
                let mut state = before;
                assert_eq!(event(&mut state), returned, "{name} in {before:?}");
                assert_eq!(state, expected, "{name} in {before:?}");
            }
        }
    }

    #[test]
    fn a_dispatcher_has_a_sleeper_or_none() {
        for (state, has_sleeper, completions, connections, is_stacks) in [
            (Calls, false, false, false, false),
            (Pollers { has_polled: true }, false, false, false, false),
            (Stack, false, false, false, true),
            (sleeper(Completions, true), true, true, false, false),
            (sleeper(Connections, false), true, false, true, false),
        ] {
            assert_eq!(state.has_sleeper(), has_sleeper, "{state:?}");
            assert_eq!(state.sleeps_in(Completions), completions, "{state:?}");
            assert_eq!(state.sleeps_in(Connections), connections, "{state:?}");
            assert_eq!(state.is_stacks(), is_stacks, "{state:?}");
        }
    }
}
