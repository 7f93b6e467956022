//! Selects the threads that serve the connections of an adapter.
//!
//! ```text
//!        many polls without a sleep              a consumer sleeps
//!  ENGINE ────────────────────> POLLERS ──────────────────────────> SLEEPER
//!    ^ ^                         |   ^                               |  |
//!    | '-- tick without a poll, -'   '----- it wakes within ticks, --'  |
//!    |     or one of several                or another consumer polls   |
//!    |     consumers sleeps                                             |
//!    '--- wakes after the end of the timer, or a second sleeps ------'
//!
//!        records arrive, no consumer calls
//!  ENGINE ─────────────────────────────> SPINNER
//!    ^                                    |
//!    '-- slices without a record,  ------'
//!        a consumer polls, or one
//!        of several consumers sleeps
//!
//!                  one consumer sleeps
//!  ENGINE, SPINNER ───────────────────> SLEEPER, whose timer has ended
//! ```
//!
//! * `Engine`: the engine's thread sleeps on the [`ConnSet`](super::conn_set::ConnSet).
//! * `Pollers`: consumers poll, and the engine does not wait for the set. A timer of [`TICK`]
//!   detects that they have stopped.
//! * `Spinner`: the engine's thread polls in slices of [`SLICE`], if a processor is free. The
//!   consumer makes no calls and polls its memory, and a wake-up for each message would take longer
//!   than the message.
//! * `Sleeper`: one consumer sleeps on the set. The timer continues for [`QUIET_TICKS`] ticks and
//!   then ends. Until then a consumer that wakes and sleeps many times in a tick does not wake the
//!   engine each time.
//!
//! If several consumers sleep at once, none of them sleeps on the set, because the kernel would
//! wake all of them for every message. The engine then serves the set and wakes the consumer that
//! has an event.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;

/// The time without a poll after which the engine takes over.
pub(super) const TICK: Duration = Duration::from_millis(1);
/// Number of ticks that a consumer must sleep through before the timer ends.
const QUIET_TICKS: u8 = 16;
/// The number of polls without a sleep before the engine hands the set to the poller. A program
/// that polls rarely, or wakes for single messages, causes no change.
const POLLS_MIN: u8 = 32;
/// The time for which the engine polls before it checks its other sources.
pub(super) const SLICE: Duration = Duration::from_micros(50);
/// Slices without a record before the engine sleeps: 200 us.
const IDLE_SLICES: u8 = 4;
/// The time for which the engine serves the set after several consumers slept at once, because
/// they are expected to sleep again.
const CROWD_TIME: Duration = Duration::from_millis(100);

/// The state; see the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attendant {
    Engine {
        /// Polls since the engine took over or a consumer slept; fewer than [`POLLS_MIN`].
        polls: u8,
    },
    Pollers,
    Spinner {
        /// The number of slices since the last record.
        idle: u8,
    },
    Sleeper {
        /// The number of ticks that the consumer has slept through. At [`QUIET_TICKS`] the timer
        /// has ended.
        quiet: u8,
    },
}

/// The actions that a transition requires of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Todo {
    /// True if the engine must wait for the set from now on; `None`: no change.
    pub(super) engine_listens: Option<bool>,
    /// True if the timer must be started.
    pub(super) tick: bool,
}

impl Attendant {
    const NEW: Self = Self::Engine { polls: 0 };

    /// Called when a consumer polls, or has woken.
    fn on_poll(&mut self) -> Todo {
        let (next, todo) = match *self {
            Self::Engine { polls } if polls + 1 < POLLS_MIN => {
                (Self::Engine { polls: polls + 1 }, Todo::default())
            }
            Self::Engine { .. } => {
                let todo = Todo {
                    engine_listens: Some(false),
                    tick: true,
                };
                (Self::Pollers, todo)
            }
            Self::Pollers => (Self::Pollers, Todo::default()),
            Self::Spinner { .. } | Self::Sleeper { quiet: QUIET_TICKS } => {
                (Self::Engine { polls: 1 }, Todo::LISTEN)
            }
            Self::Sleeper { .. } => (Self::Pollers, Todo::default()),
        };
        *self = next;
        todo
    }

    /// Called when a consumer is about to sleep. `is_crowd` is true if other consumers sleep too.
    fn on_sleep(&mut self, is_crowd: bool) -> (Sleep, Todo) {
        let (next, sleep, todo) = match *self {
            Self::Engine { .. } if is_crowd => (Self::NEW, Sleep::OnWaker, Todo::default()),
            Self::Engine { .. } | Self::Spinner { .. } if !is_crowd => (
                Self::Sleeper { quiet: QUIET_TICKS },
                Sleep::OnSet,
                Todo::LEAVE,
            ),
            Self::Pollers if !is_crowd => {
                (Self::Sleeper { quiet: 0 }, Sleep::OnSet, Todo::default())
            }
            _ => (Self::NEW, Sleep::OnWaker, Todo::LISTEN),
        };
        *self = next;
        (sleep, todo)
    }

    /// Called when the timer expires. `was_polled`: a consumer polled or went to sleep meanwhile.
    fn on_tick(&mut self, was_polled: bool) -> Todo {
        let (next, todo) = match *self {
            Self::Engine { .. } | Self::Spinner { .. } => (*self, Todo::default()),
            Self::Pollers if was_polled => (*self, Todo::TICK),
            Self::Pollers => (Self::NEW, Todo::LISTEN),
            Self::Sleeper { .. } if was_polled => (Self::Sleeper { quiet: 0 }, Todo::TICK),
            Self::Sleeper { quiet } => {
                let quiet = (quiet + 1).min(QUIET_TICKS);
                let todo = Todo {
                    tick: quiet < QUIET_TICKS,
                    ..Todo::default()
                };
                (Self::Sleeper { quiet }, todo)
            }
        };
        *self = next;
        todo
    }

    /// Called when the engine found a record of a connection that can be polled without a system
    /// call, and no consumer has called since the previous record.
    fn on_find(&mut self) -> Todo {
        if matches!(self, Self::Engine { .. }) {
            *self = Self::Spinner { idle: 0 };
        }
        Todo::default()
    }

    /// Called when the engine has polled for a slice. `has_found` is true if there was a record.
    fn on_slice(&mut self, has_found: bool) -> Todo {
        let Self::Spinner { idle } = *self else {
            return Todo::default();
        };
        let idle = if has_found { 0 } else { idle + 1 };
        if idle < IDLE_SLICES {
            *self = Self::Spinner { idle };
            return Todo::default();
        }
        *self = Self::NEW;
        Todo::LISTEN
    }

    fn as_byte(self) -> u8 {
        match self {
            Self::Spinner { .. } => SPINNER,
            Self::Engine { .. } => ENGINE,
            Self::Pollers => POLLERS,
            Self::Sleeper { quiet: QUIET_TICKS } => QUIET_SLEEPER,
            Self::Sleeper { .. } => SLEEPER,
        }
    }
}

const ENGINE: u8 = 0;
const POLLERS: u8 = 1;
const SLEEPER: u8 = 2;
const QUIET_SLEEPER: u8 = 3;
const SPINNER: u8 = 4;

impl Todo {
    const LISTEN: Self = Self {
        engine_listens: Some(true),
        tick: false,
    };
    const LEAVE: Self = Self {
        engine_listens: Some(false),
        tick: false,
    };
    const TICK: Self = Self {
        engine_listens: None,
        tick: true,
    };
}

/// The descriptors on which a consumer sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// The consumer's waker and the set.
    OnSet,
    /// The consumer's waker alone, because the engine serves the set.
    OnWaker,
}

/// Distinguishes the first call of [`Attendance::begin`] from later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Now,
    Before,
}

/// An [`Attendant`] that all threads share.
#[derive(Debug)]
pub(super) struct Attendance {
    state: Mutex<State>,
    /// [`Attendant::as_byte`] of the state, for polls that change nothing.
    attendant: AtomicU8,
    /// The count of polls. Two threads may lose a count; the number still changes.
    polls: AtomicU32,
}

#[derive(Debug)]
struct State {
    attendant: Attendant,
    polls_at_tick: u32,
    /// The number of polls when the engine last found a record.
    polls_at_find: u32,
    crowd_until: Option<Instant>,
}

impl Attendance {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                attendant: Attendant::NEW,
                polls_at_tick: 0,
                polls_at_find: 0,
                crowd_until: None,
            }),
            attendant: AtomicU8::new(Attendant::NEW.as_byte()),
            polls: AtomicU32::new(0),
        }
    }

    /// The number of polls so far, which wraps.
    pub(super) fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// True while consumers poll.
    pub(super) fn is_polled(&self) -> bool {
        self.attendant.load(Ordering::Relaxed) == POLLERS
    }

    /// True while the engine's thread polls.
    pub(super) fn is_spinning(&self) -> bool {
        self.attendant.load(Ordering::Relaxed) == SPINNER
    }

    /// True while the engine serves the set.
    pub(super) fn is_engines(&self) -> bool {
        self.attendant.load(Ordering::Relaxed) == ENGINE
    }

    /// True while a consumer sleeps on the set. The result may be out of date.
    pub(super) fn is_slept_on(&self) -> bool {
        matches!(
            self.attendant.load(Ordering::Relaxed),
            SLEEPER | QUIET_SLEEPER
        )
    }

    /// True while a consumer sleeps on the set and the timer has ended. The result may be out of
    /// date.
    pub(super) fn is_slept_on_without_timer(&self) -> bool {
        self.attendant.load(Ordering::Relaxed) == QUIET_SLEEPER
    }

    /// Runs `call` if consumers or the engine poll, and prevents changes of the state until it
    /// returns. Returns false if neither polls.
    pub(super) fn while_polled(&self, call: impl FnOnce()) -> bool {
        let state = self.state.lock().ignore_poison();
        let is_polled = matches!(
            state.attendant,
            Attendant::Pollers | Attendant::Spinner { .. }
        );
        if is_polled {
            call();
        }
        is_polled
    }

    /// Starts the engine's service of the set, unless it was started before. Polls of consumers
    /// until then started no timer, so the engine waits for the set in any case.
    pub(super) fn begin<E>(&self, begin: impl FnOnce() -> Result<Begun, E>) -> Result<(), E> {
        let mut state = self.state.lock().ignore_poison();
        if begin()? == Begun::Now {
            state.attendant = Attendant::NEW;
            self.attendant
                .store(state.attendant.as_byte(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Called when a consumer polls, or has woken.
    #[inline]
    pub(super) fn on_poll(&self, act: impl FnOnce(Todo)) {
        self.polls
            .store(self.polls().wrapping_add(1), Ordering::Relaxed);
        if !self.is_polled() {
            self.change(act, |state| ((), state.attendant.on_poll()));
        }
    }

    /// Called when a consumer is about to sleep.
    pub(super) fn on_sleep(&self, act: impl FnOnce(Todo)) -> Sleep {
        self.polls
            .store(self.polls().wrapping_add(1), Ordering::Relaxed);
        self.change(act, |state| {
            let now = Instant::now();
            if matches!(state.attendant, Attendant::Sleeper { .. }) {
                state.crowd_until = Some(now + CROWD_TIME);
            }
            let is_crowd = state.crowd_until.is_some_and(|until| now < until);
            state.attendant.on_sleep(is_crowd)
        })
    }

    /// Called when the timer has expired.
    pub(super) fn on_tick(&self, act: impl FnOnce(Todo)) {
        self.change(act, |state| {
            let polls = self.polls();
            let was_polled = std::mem::replace(&mut state.polls_at_tick, polls) != polls;
            ((), state.attendant.on_tick(was_polled))
        });
    }

    /// Called when the engine found a record of a connection that can be polled without a system
    /// call. The engine spins from the second such record on if no consumer has called since the
    /// first, unless several consumers sleep.
    pub(super) fn on_find(&self, act: impl FnOnce(Todo)) {
        self.change(act, |state| {
            let polls = self.polls();
            let was_polled = std::mem::replace(&mut state.polls_at_find, polls) != polls;
            let is_crowd = state
                .crowd_until
                .is_some_and(|until| Instant::now() < until);
            let todo = match was_polled || is_crowd {
                true => Todo::default(),
                false => state.attendant.on_find(),
            };
            ((), todo)
        });
    }

    /// Called when the engine has polled for a slice.
    pub(super) fn on_slice(&self, has_found: bool, act: impl FnOnce(Todo)) {
        self.change(act, |state| ((), state.attendant.on_slice(has_found)));
    }

    /// Changes the state and performs the actions under the lock, so that actions have the order of
    /// the changes.
    fn change<T>(&self, act: impl FnOnce(Todo), change: impl FnOnce(&mut State) -> (T, Todo)) -> T {
        let mut state = self.state.lock().ignore_poison();
        let (result, todo) = change(&mut state);
        self.attendant
            .store(state.attendant.as_byte(), Ordering::Relaxed);
        if todo != Todo::default() {
            act(todo);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::Attendant::*;
    use super::*;

    const NOTHING: Todo = Todo {
        engine_listens: None,
        tick: false,
    };
    const LISTEN: Todo = Todo::LISTEN;
    const LEAVE: Todo = Todo::LEAVE;
    const LEAVE_AND_TICK: Todo = Todo {
        engine_listens: Some(false),
        tick: true,
    };

    type Event = fn(&mut Attendant) -> Todo;
    /// An event, and its result in each state of [`BEFORE`].
    type Row = (&'static str, Event, [(Attendant, Todo); 7]);

    macro_rules! rows {
        ($($name:literal: $event:expr => $after:expr;)+) => { [$(($name, $event, $after)),+] };
    }

    const NEW: Attendant = Attendant::NEW;
    const ALMOST: Attendant = Engine {
        polls: POLLS_MIN - 1,
    };
    const ASLEEP: Attendant = Sleeper { quiet: 0 };
    const SILENT: Attendant = Sleeper { quiet: QUIET_TICKS };
    const SPINS: Attendant = Spinner { idle: 0 };
    const IDLES: Attendant = Spinner {
        idle: IDLE_SLICES - 1,
    };
    const BEFORE: [Attendant; 7] = [NEW, ALMOST, Pollers, ASLEEP, SILENT, SPINS, IDLES];

    fn check(rows: &[Row]) {
        for (name, event, after) in rows {
            for (before, (expected, todo)) in BEFORE.into_iter().zip(after) {
                let mut state = before;
                assert_eq!(event(&mut state), *todo, "{name} in {before:?}");
                assert_eq!(state, *expected, "{name} in {before:?}");
            }
        }
    }

    #[test]
    fn every_event_of_consumers_and_timer_in_every_state() {
        check(&rows! {
            "poll": Attendant::on_poll
                => [(Engine { polls: 1 }, NOTHING), (Pollers, LEAVE_AND_TICK), (Pollers, NOTHING),
                    (Pollers, NOTHING), (Engine { polls: 1 }, LISTEN),
                    (Engine { polls: 1 }, LISTEN), (Engine { polls: 1 }, LISTEN)];
            "sleep alone": |it| it.on_sleep(false).1
                => [(SILENT, LEAVE), (SILENT, LEAVE), (ASLEEP, NOTHING), (NEW, LISTEN),
                    (NEW, LISTEN), (SILENT, LEAVE), (SILENT, LEAVE)];
            "sleep in a crowd": |it| it.on_sleep(true).1
                => [(NEW, NOTHING), (NEW, NOTHING), (NEW, LISTEN), (NEW, LISTEN), (NEW, LISTEN),
                    (NEW, LISTEN), (NEW, LISTEN)];
            "tick with polls": |it| it.on_tick(true)
                => [(NEW, NOTHING), (ALMOST, NOTHING), (Pollers, Todo::TICK), (ASLEEP, Todo::TICK),
                    (ASLEEP, Todo::TICK), (SPINS, NOTHING), (IDLES, NOTHING)];
            "tick without polls": |it| it.on_tick(false)
                => [(NEW, NOTHING), (ALMOST, NOTHING), (NEW, LISTEN),
                    (Sleeper { quiet: 1 }, Todo::TICK), (SILENT, NOTHING), (SPINS, NOTHING),
                    (IDLES, NOTHING)];
        });
    }

    #[test]
    fn every_event_of_the_engine_in_every_state() {
        check(&rows! {
            "find": Attendant::on_find
                => [(SPINS, NOTHING), (SPINS, NOTHING), (Pollers, NOTHING), (ASLEEP, NOTHING),
                    (SILENT, NOTHING), (SPINS, NOTHING), (IDLES, NOTHING)];
            "slice with a record": |it| it.on_slice(true)
                => [(NEW, NOTHING), (ALMOST, NOTHING), (Pollers, NOTHING), (ASLEEP, NOTHING),
                    (SILENT, NOTHING), (SPINS, NOTHING), (SPINS, NOTHING)];
            "slice without a record": |it| it.on_slice(false)
                => [(NEW, NOTHING), (ALMOST, NOTHING), (Pollers, NOTHING), (ASLEEP, NOTHING),
                    (SILENT, NOTHING), (Spinner { idle: 1 }, NOTHING), (NEW, LISTEN)];
        });
    }

    #[test]
    fn a_sleeper_sleeps_on_the_set_unless_another_consumer_does() {
        let sleep = |mut state: Attendant, is_crowd| state.on_sleep(is_crowd).0;
        for state in [Attendant::NEW, Pollers] {
            assert_eq!(sleep(state, false), Sleep::OnSet);
            assert_eq!(sleep(state, true), Sleep::OnWaker);
        }
        assert_eq!(sleep(Sleeper { quiet: 3 }, false), Sleep::OnWaker);
    }

    #[test]
    fn the_engine_spins_from_the_second_find_on_if_no_consumer_calls() {
        let attendance = Attendance::new();
        let find = || attendance.on_find(drop);
        attendance.on_poll(drop);
        find();
        assert!(!attendance.is_spinning(), "a consumer called");
        find();
        assert!(attendance.is_spinning());
        for _ in 0..IDLE_SLICES {
            attendance.on_slice(false, drop);
        }
        assert!(attendance.is_engines());
        assert_eq!(attendance.on_sleep(drop), Sleep::OnSet);
        assert_eq!(attendance.on_sleep(drop), Sleep::OnWaker);
        find();
        find();
        assert!(attendance.is_engines(), "several consumers sleep");
    }

    #[test]
    fn the_shared_state_follows_the_attendant() {
        let attendance = Attendance::new();
        for _ in 0..POLLS_MIN {
            assert!(!attendance.is_polled());
            attendance.on_poll(drop);
        }
        assert!(attendance.is_polled());
        assert_eq!(attendance.on_sleep(drop), Sleep::OnSet);
        assert!(attendance.is_slept_on());
        assert_eq!(attendance.on_sleep(drop), Sleep::OnWaker);
        assert!(!attendance.is_slept_on() && !attendance.is_polled());
        // The attendance still expects several sleepers.
        assert_eq!(attendance.on_sleep(drop), Sleep::OnWaker);
    }

    #[test]
    fn the_engine_takes_over_one_tick_after_the_last_poll() {
        let attendance = Attendance::new();
        (0..POLLS_MIN).for_each(|_| attendance.on_poll(drop));
        let tick = || {
            let mut done = NOTHING;
            attendance.on_tick(|todo| done = todo);
            done
        };
        assert_eq!(tick(), Todo::TICK);
        attendance.on_poll(drop);
        assert_eq!(tick(), Todo::TICK);
        assert_eq!(tick(), LISTEN);
        assert_eq!(tick(), NOTHING);
    }
}
