//! Selects the threads that serve the descriptor of an RNIC.
//!
//! ```text
//!        many polls without a sleep              a consumer sleeps
//!  ENGINE ────────────────────> POLLERS ──────────────────────────> SLEEPER
//!    ^ ^                         |   ^                               |  |
//!    | '-- tick without a poll, -'   '----- it wakes within ticks, --'  |
//!    |     or one of several                or soon after the last      |
//!    |     consumers sleeps                 wake-up, or another polls   |
//!    '--- wakes after the end of the timer, or a second sleeps ---------'
//!
//!         one consumer sleeps
//!  ENGINE ───────────────────> SLEEPER, whose timer has ended
//!
//!             begin                close
//!      CLOSED ─────> ENGINE    any ─────> CLOSED
//! ```
//!
//! * `Closed`: consumers take no part, because the adapter has no connection yet or its device was
//!   removed.
//! * `Engine`: the RNIC's own thread sleeps on the descriptor.
//! * `Pollers`: consumers are awake and serve the descriptor. A timer detects that they have
//!   stopped. The provider may ask that the engine waits for a few events in each tick, because
//!   peers notify only if no consumer polls. The engine serves such an event without a change of
//!   the state, and takes over at a second one if no consumer has polled since the first.
//! * `Sleeper`: one consumer sleeps on the descriptor. The timer continues for a few ticks and then
//!   ends. Until then a consumer that wakes and sleeps often does not wake the engine each time.
//!
//! If several consumers sleep at once, none of them sleeps on the descriptor, because the kernel
//! would wake all of them for every event. The engine then serves the descriptor and wakes the
//! consumer that has an event. An exception is a consumer that waits for many connections
//! ([`Waker::serves_others`]): it leaves the descriptor to a consumer that waits for one queue.
//!
//! A provider owns one [`Arbiter`] for each adapter, and calls one method of it for each event. The
//! arbiter calls back with a [`Todo`] if the provider must add the descriptor to those of its
//! engine, remove it, or start the timer for a tick. The provider defines the length of a tick.
//!
//! | Method | Called by | Providers |
//! |---|---|---|
//! | `begin` | the call that opens the adapter or makes its first connection | both |
//! | `on_sleep` | a consumer, before it sleeps | both |
//! | `on_poll` | a consumer that polls, or has woken | software, where a poll makes progress |
//! | `on_wake` | a consumer that has woken | devices |
//! | `on_tick` | the engine, when the timer has expired | both |
//! | `on_event` | the engine, when it has served an event of the descriptor | software |
//! | `close` | the engine | devices |

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use host::locks::lock;

use super::{Arm, Waker};

/// Number of ticks that a consumer must sleep through before the timer ends.
const QUIET_TICKS: u8 = 4;
/// The number of polls without a sleep before the engine hands the descriptor to the poller. A
/// program that polls rarely, or wakes for single messages, causes no change.
const POLLS_MIN: u8 = 32;
/// The number of events in a tick for which the engine waits while consumers poll: a consumer that
/// polls at long intervals costs few wake-ups of the engine.
const GUARDS: u8 = 2;
/// The time for which the engine serves the descriptor after several consumers slept at once,
/// because they are expected to sleep again.
const CROWD_TIME: Duration = Duration::from_millis(100);

/// The state; see the module's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attendant {
    Closed,
    Engine {
        /// Polls since the engine took over or a consumer slept; fewer than [`POLLS_MIN`].
        polls: u8,
    },
    Pollers {
        /// True if the consumer that has woken waits for many connections.
        serves_others: bool,
    },
    Sleeper {
        serves_others: bool,
        /// The number of ticks that the consumer has slept through. At [`QUIET_TICKS`] the timer
        /// has ended.
        quiet: u8,
    },
}

/// The states of an [`Arbiter`] without their counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Consumers take no part.
    Closed,
    /// The engine sleeps on the descriptor.
    Engine,
    /// Consumers poll.
    Pollers,
    /// A consumer sleeps on the descriptor.
    Sleeper,
    /// A consumer sleeps on the descriptor, and the timer has ended.
    QuietSleeper,
}

impl Phase {
    /// True if the engine waits for the descriptor. It also does so once the device is removed.
    const fn is_engines(self) -> bool {
        matches!(self, Self::Closed | Self::Engine)
    }

    /// True if the timer runs.
    const fn is_timed(self) -> bool {
        matches!(self, Self::Pollers | Self::Sleeper)
    }
}

/// The actions that a change of the state requires of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Todo {
    /// True if the engine must wait for the descriptor from now on, false if it must not; `None`:
    /// no change.
    pub engine_listens: Option<bool>,
    /// True if the timer must be started.
    pub tick: bool,
}

impl Attendant {
    const NEW: Self = Self::Engine { polls: 0 };

    /// Called when the engine begins to wait for the descriptor.
    fn on_begin(&mut self) {
        if *self == Self::Closed {
            *self = Self::NEW;
        }
    }

    /// Called when a consumer polls, or has woken. `is_soon`: soon after the last wake-up.
    fn on_poll(&mut self, is_soon: bool) {
        *self = match *self {
            Self::Engine { polls } if polls + 1 < POLLS_MIN => Self::Engine { polls: polls + 1 },
            Self::Engine { .. } => Self::Pollers {
                serves_others: false,
            },
            Self::Sleeper {
                serves_others,
                quiet,
            } if is_soon || quiet < QUIET_TICKS => Self::Pollers { serves_others },
            Self::Sleeper { .. } => Self::Engine { polls: 1 },
            Self::Closed | Self::Pollers { .. } => *self,
        };
    }

    /// Called when a consumer is about to sleep. `is_crowd` is true if other consumers sleep too.
    /// Returns true if the consumer must sleep on the descriptor.
    fn on_sleep(&mut self, serves_others: bool, is_crowd: bool) -> bool {
        let quiet = match *self {
            Self::Closed => return false,
            Self::Pollers {
                serves_others: false,
            }
            | Self::Sleeper {
                serves_others: false,
                ..
            } if serves_others => return false,
            Self::Sleeper {
                serves_others: true,
                quiet,
            } if !serves_others => Some(quiet),
            Self::Engine { .. } if !is_crowd => Some(QUIET_TICKS),
            Self::Pollers { .. } if !is_crowd => Some(0),
            _ => None,
        };
        *self = quiet.map_or(Self::NEW, |quiet| Self::Sleeper {
            serves_others,
            quiet,
        });
        quiet.is_some()
    }

    /// Called when the timer expires. `was_polled`: a consumer polled or went to sleep meanwhile.
    fn on_tick(&mut self, was_polled: bool) {
        match self {
            Self::Pollers { .. } if !was_polled => *self = Self::NEW,
            Self::Sleeper { quiet, .. } if was_polled => *quiet = 0,
            Self::Sleeper { quiet, .. } => *quiet = (*quiet + 1).min(QUIET_TICKS),
            Self::Closed | Self::Engine { .. } | Self::Pollers { .. } => {}
        }
    }

    /// Called when the device is removed.
    fn on_close(&mut self) {
        *self = Self::Closed;
    }

    fn phase(self) -> Phase {
        match self {
            Self::Closed => Phase::Closed,
            Self::Engine { .. } => Phase::Engine,
            Self::Pollers { .. } => Phase::Pollers,
            Self::Sleeper { quiet, .. } if quiet < QUIET_TICKS => Phase::Sleeper,
            Self::Sleeper { .. } => Phase::QuietSleeper,
        }
    }
}

/// The state that all threads of an adapter share.
#[derive(Debug)]
pub struct Arbiter {
    soon: Duration,
    state: Mutex<State>,
    /// The [`Phase`], for polls that change nothing.
    phase: AtomicU8,
    /// The count of polls. Two threads may lose a count; the number still changes.
    polls: AtomicU32,
}

#[derive(Debug)]
struct State {
    attendant: Attendant,
    /// The waker of the consumer that sleeps on the descriptor, if the consumer has passed it.
    sleeper: Option<Arc<Waker>>,
    /// True if the timer was started and has not expired.
    has_timer: bool,
    /// True if the engine waits for the descriptor.
    listens: bool,
    /// The number of events for which the engine waits although consumers poll.
    guards: u8,
    polls_at_tick: u32,
    /// The count of polls at the last event that the engine served while consumers polled.
    polls_at_event: u32,
    last_wake: Option<Instant>,
    crowd_until: Option<Instant>,
}

impl State {
    fn is_crowd(&self) -> bool {
        self.crowd_until.is_some_and(|until| Instant::now() < until)
    }

    fn is_slept_on_by(&self, waker: &Arc<Waker>) -> bool {
        let sleeper = self.sleeper.as_ref();
        sleeper.is_some_and(|sleeper| Arc::ptr_eq(sleeper, waker))
    }

    fn on_poll(&mut self, soon: Duration) {
        let mut is_soon = false;
        if self.attendant.phase() == Phase::QuietSleeper {
            let now = Instant::now();
            let last = self.last_wake.replace(now);
            is_soon = last.is_some_and(|last| now - last < soon);
        }
        self.attendant.on_poll(is_soon);
    }
}

impl Arbiter {
    /// Creates an arbiter of a descriptor that no thread serves yet. `soon`: the interval of
    /// wake-ups below which a timer costs less than two calls that hand over the descriptor; zero
    /// if the number of polls decides alone.
    #[must_use]
    pub const fn new(soon: Duration) -> Self {
        Self {
            soon,
            state: Mutex::new(State {
                attendant: Attendant::Closed,
                sleeper: None,
                has_timer: false,
                listens: true,
                guards: 0,
                polls_at_tick: 0,
                polls_at_event: 0,
                last_wake: None,
                crowd_until: None,
            }),
            phase: AtomicU8::new(Phase::Closed as u8),
            polls: AtomicU32::new(0),
        }
    }

    /// The number of polls so far. The count wraps.
    pub fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// True if the arbiter is in `phase`. The result may be out of date on return.
    pub fn is(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::Relaxed) == phase as u8
    }

    /// True if the consumer of this waker sleeps on the descriptor.
    pub fn is_slept_on_by(&self, waker: &Arc<Waker>) -> bool {
        lock(&self.state).is_slept_on_by(waker)
    }

    /// Runs `call` if consumers poll, and prevents changes of the state until it returns. Returns
    /// false if none polls.
    pub fn while_polled(&self, call: impl FnOnce()) -> bool {
        let state = lock(&self.state);
        let is_polled = state.attendant.phase() == Phase::Pollers;
        if is_polled {
            call();
        }
        is_polled
    }

    /// Starts the engine's service of the descriptor by `start`, unless it was started before.
    ///
    /// # Errors
    /// The error of `start`.
    pub fn begin<E>(&self, start: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        self.change(drop, |state| {
            if state.attendant == Attendant::Closed {
                start()?;
            }
            state.attendant.on_begin();
            Ok(())
        })
    }

    /// Called when a consumer polls, or has woken.
    #[inline]
    pub fn on_poll(&self, act: impl FnOnce(Todo)) {
        self.count();
        if !self.is(Phase::Pollers) && !self.is(Phase::Closed) {
            self.change(act, |state| state.on_poll(self.soon));
        }
    }

    /// Called when the consumer of this waker has woken and handled an event of the descriptor.
    pub fn on_wake(&self, waker: &Arc<Waker>, act: impl FnOnce(Todo)) {
        self.change(act, |state| {
            if state.is_slept_on_by(waker) {
                self.count();
                state.on_poll(self.soon);
            }
        });
    }

    /// Called when a consumer is about to sleep. A waker is passed if consumers that serve others
    /// leave the descriptor to those that do not. Returns [`Arm::Sleep`] if the consumer must sleep
    /// on the descriptor too.
    pub fn on_sleep(&self, waker: Option<&Arc<Waker>>, act: impl FnOnce(Todo)) -> Arm {
        let serves_others = waker.is_some_and(|waker| waker.serves_others());
        let (sleeps_on_it, former) = self.change(act, |state| {
            let before = state.attendant;
            let is_crowd = state.is_crowd();
            if state.attendant.on_sleep(serves_others, is_crowd) {
                self.count();
                return (true, std::mem::replace(&mut state.sleeper, waker.cloned()));
            }
            if matches!(before, Attendant::Sleeper { .. }) && state.attendant != before {
                state.crowd_until = Some(Instant::now() + CROWD_TIME);
            }
            (false, None)
        });
        if let Some(former) = former {
            former.wake();
        }
        match sleeps_on_it {
            true => Arm::Sleep,
            false => Arm::Attended,
        }
    }

    /// Called when the timer has expired. `guards`: the engine is to wait for events while
    /// consumers poll.
    pub fn on_tick(&self, guards: bool, act: impl FnOnce(Todo)) {
        self.change(act, |state| {
            state.guards = if guards { GUARDS } else { 0 };
            state.has_timer = false;
            let polls = self.polls();
            let was_polled = std::mem::replace(&mut state.polls_at_tick, polls) != polls;
            state.attendant.on_tick(was_polled);
        });
    }

    /// Called when the engine has served an event of the descriptor, which has used up its
    /// interest. `is_busy`: consumers held the connections of the event. Returns true if the engine
    /// takes over from consumers that have polled.
    pub fn on_event(&self, is_busy: bool, act: impl FnOnce(Todo)) -> bool {
        self.change(act, |state| {
            state.listens = false;
            if state.attendant.phase() != Phase::Pollers {
                return false;
            }
            let polls = self.polls();
            let was_polled = std::mem::replace(&mut state.polls_at_event, polls) != polls;
            state.guards = state.guards.saturating_sub(1);
            if was_polled || is_busy {
                return false;
            }
            // A consumer that returns polls again at once.
            state.attendant = Attendant::Engine {
                polls: POLLS_MIN - 1,
            };
            true
        })
    }

    /// Called when the device is removed. A sleep on its descriptor would end at once.
    pub fn close(&self, act: impl FnOnce(Todo)) {
        let sleeper = self.change(act, |state| {
            state.attendant.on_close();
            state.sleeper.take()
        });
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }

    fn count(&self) {
        let polls = self.polls().wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
    }

    /// Changes the state and performs the actions under the lock, so that actions have the order of
    /// the changes.
    fn change<T>(&self, act: impl FnOnce(Todo), change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = lock(&self.state);
        let result = change(&mut state);
        let after = state.attendant.phase();
        self.phase.store(after as u8, Ordering::Relaxed);
        if after != Phase::Pollers {
            state.guards = 0;
        }
        if !matches!(after, Phase::Sleeper | Phase::QuietSleeper) {
            state.sleeper = None;
        }
        let had_timer = std::mem::replace(&mut state.has_timer, after.is_timed());
        let listens = after.is_engines() || state.guards > 0;
        let listened = std::mem::replace(&mut state.listens, listens);
        let todo = Todo {
            engine_listens: (listened != listens).then_some(listens),
            tick: after.is_timed() && !had_timer,
        };
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

    const fn sleeper(serves_others: bool, quiet: u8) -> Attendant {
        Sleeper {
            serves_others,
            quiet,
        }
    }

    const NEW: Attendant = Attendant::NEW;
    const POLLED: Attendant = Engine { polls: 1 };
    const ALMOST: Attendant = Engine {
        polls: POLLS_MIN - 1,
    };
    const AWAKE: Attendant = Pollers {
        serves_others: false,
    };
    const CNO_AWAKE: Attendant = Pollers {
        serves_others: true,
    };
    const ASLEEP: Attendant = sleeper(false, 0);
    const CNO_ASLEEP: Attendant = sleeper(true, 0);
    const QUIET: Attendant = sleeper(false, QUIET_TICKS);
    const CNO_QUIET: Attendant = sleeper(true, QUIET_TICKS);
    const BEFORE: [Attendant; 8] = [
        Closed, NEW, ALMOST, AWAKE, CNO_AWAKE, ASLEEP, CNO_ASLEEP, QUIET,
    ];

    macro_rules! rows {
        ($($name:literal: $event:expr => $after:expr;)+) => { [$(($name, $event, $after)),+] };
    }

    #[test]
    fn every_event_in_every_state() {
        type Row = (&'static str, fn(&mut Attendant), [Attendant; 8]);
        let rows: [Row; 10] = rows! {
            "begin": Attendant::on_begin
                => [NEW, NEW, ALMOST, AWAKE, CNO_AWAKE, ASLEEP, CNO_ASLEEP, QUIET];
            "poll": |it| it.on_poll(false)
                => [Closed, POLLED, AWAKE, AWAKE, CNO_AWAKE, AWAKE, CNO_AWAKE, POLLED];
            "wake-up soon after the last one": |it| it.on_poll(true)
                => [Closed, POLLED, AWAKE, AWAKE, CNO_AWAKE, AWAKE, CNO_AWAKE, AWAKE];
            "sleep alone": |it| _ = it.on_sleep(false, false)
                => [Closed, QUIET, QUIET, ASLEEP, ASLEEP, NEW, ASLEEP, NEW];
            "sleep in a crowd": |it| _ = it.on_sleep(false, true)
                => [Closed, NEW, NEW, NEW, NEW, NEW, ASLEEP, NEW];
            "sleep alone and serve others": |it| _ = it.on_sleep(true, false)
                => [Closed, CNO_QUIET, CNO_QUIET, AWAKE, CNO_ASLEEP, ASLEEP, NEW, QUIET];
            "sleep in a crowd and serve others": |it| _ = it.on_sleep(true, true)
                => [Closed, NEW, NEW, AWAKE, NEW, ASLEEP, NEW, QUIET];
            "tick with polls": |it| it.on_tick(true)
                => [Closed, NEW, ALMOST, AWAKE, CNO_AWAKE, ASLEEP, CNO_ASLEEP, ASLEEP];
            "tick without polls": |it| it.on_tick(false)
                => [Closed, NEW, ALMOST, NEW, NEW, sleeper(false, 1), sleeper(true, 1), QUIET];
            "close": Attendant::on_close
                => [Closed; 8];
        };
        for (name, event, after) in rows {
            for (before, expected) in BEFORE.into_iter().zip(after) {
                let mut state = before;
                event(&mut state);
                assert_eq!(state, expected, "{name} in {before:?}");
            }
        }
    }

    const fn to_do(engine_listens: Option<bool>, tick: bool) -> Todo {
        Todo {
            engine_listens,
            tick,
        }
    }

    const NOTHING: Todo = to_do(None, false);
    const LISTEN: Todo = to_do(Some(true), false);
    const LEAVE: Todo = to_do(Some(false), false);
    const TICK: Todo = to_do(None, true);

    /// An arbiter of a descriptor that the engine serves.
    fn arbiter(soon: Duration) -> Arbiter {
        let arbiter = Arbiter::new(soon);
        arbiter.begin(|| Ok::<_, ()>(())).unwrap();
        arbiter
    }

    /// The actions that a call requires.
    fn todo(call: impl FnOnce(&mut dyn FnMut(Todo))) -> Todo {
        let mut done = NOTHING;
        call(&mut |todo| done = todo);
        done
    }

    #[test]
    fn consumers_take_no_part_until_the_engine_has_begun() {
        let arbiter = Arbiter::new(Duration::ZERO);
        arbiter.on_poll(drop);
        assert_eq!(arbiter.on_sleep(None, drop), Arm::Attended);
        assert_eq!(arbiter.begin(|| Err(7)), Err(7));
        assert!(arbiter.is(Phase::Closed));
        assert_eq!(arbiter.begin(|| Ok::<_, i32>(())), Ok(()));
        assert_eq!(arbiter.begin(|| Err(7)), Ok(()), "it has begun");
        assert_eq!(arbiter.on_sleep(None, drop), Arm::Sleep);
    }

    #[test]
    fn the_engine_takes_over_one_tick_after_the_last_poll() {
        let arbiter = arbiter(Duration::ZERO);
        for _ in 1..POLLS_MIN {
            assert_eq!(todo(|act| arbiter.on_poll(act)), NOTHING);
        }
        let tick = true;
        assert_eq!(todo(|act| arbiter.on_poll(act)), Todo { tick, ..LEAVE });
        assert!(arbiter.is(Phase::Pollers));
        let expire = || todo(|act| arbiter.on_tick(false, act));
        assert_eq!(expire(), TICK);
        arbiter.on_poll(drop);
        assert_eq!([expire(), expire(), expire()], [TICK, LISTEN, NOTHING]);
    }

    #[test]
    fn the_engine_serves_events_of_pollers_and_takes_over_if_none_has_polled_between_two() {
        let arbiter = arbiter(Duration::ZERO);
        let event = |is_busy| {
            let mut took_over = false;
            let done = todo(|act| took_over = arbiter.on_event(is_busy, act));
            (took_over, done)
        };
        let tick = || todo(|act| arbiter.on_tick(true, act));
        let guarded = Todo {
            tick: true,
            ..LISTEN
        };
        assert_eq!(event(false), (false, LISTEN), "the interest is used up");
        (0..POLLS_MIN).for_each(|_| arbiter.on_poll(drop));
        assert_eq!(tick(), guarded);
        assert_eq!(event(false), (false, LISTEN));
        arbiter.on_poll(drop);
        assert_eq!(
            event(false),
            (false, NOTHING),
            "the last event of this tick"
        );
        assert_eq!(tick(), guarded);
        assert_eq!(event(true), (false, LISTEN), "a consumer is at work");
        assert!(arbiter.is(Phase::Pollers));
        assert_eq!(event(false), (true, LISTEN));
        assert!(arbiter.is(Phase::Engine));
        arbiter.on_poll(drop);
        assert!(arbiter.is(Phase::Pollers), "the consumer has returned");
    }

    #[test]
    fn the_engine_does_not_wait_for_events_while_a_consumer_sleeps() {
        let arbiter = arbiter(Duration::ZERO);
        (0..POLLS_MIN).for_each(|_| arbiter.on_poll(drop));
        arbiter.on_tick(true, drop);
        assert_eq!(todo(|act| _ = arbiter.on_sleep(None, act)), LEAVE);
        assert_eq!(todo(|act| arbiter.on_tick(true, act)), TICK);
        assert_eq!(todo(|act| _ = arbiter.on_event(false, act)), NOTHING);
        assert_eq!(todo(|act| arbiter.on_poll(act)), NOTHING);
        assert!(arbiter.is(Phase::Pollers));
    }

    #[test]
    fn the_timer_ends_while_a_consumer_sleeps() {
        let arbiter = arbiter(Duration::ZERO);
        (0..POLLS_MIN).for_each(|_| arbiter.on_poll(drop));
        assert_eq!(todo(|act| _ = arbiter.on_sleep(None, act)), NOTHING);
        let expire = || todo(|act| arbiter.on_tick(false, act));
        assert!((0..QUIET_TICKS).all(|_| expire() == TICK));
        assert!(arbiter.is(Phase::Sleeper));
        assert_eq!(expire(), NOTHING);
        assert!(arbiter.is(Phase::QuietSleeper));
        assert_eq!(todo(|act| arbiter.on_poll(act)), LISTEN);
    }

    #[test]
    fn of_several_waiters_none_sleeps_on_the_descriptor_for_some_time() {
        let arbiter = arbiter(Duration::ZERO);
        let [a, b] = [(); 2].map(|()| Arc::new(Waker::new()));
        assert_eq!(todo(|act| _ = arbiter.on_sleep(Some(&a), act)), LEAVE);
        assert!(arbiter.is_slept_on_by(&a) && !arbiter.is_slept_on_by(&b));
        assert_eq!(todo(|act| _ = arbiter.on_sleep(Some(&b), act)), LISTEN);
        assert!(!arbiter.is_slept_on_by(&a) && !a.take_wake());
        assert_eq!(todo(|act| arbiter.on_wake(&a, act)), NOTHING);
        assert_eq!(arbiter.on_sleep(Some(&a), drop), Arm::Attended);
        lock(&arbiter.state).crowd_until = Some(Instant::now());
        assert_eq!(arbiter.on_sleep(Some(&a), drop), Arm::Sleep);
    }

    #[test]
    fn wake_ups_in_quick_succession_start_the_timer() {
        let waker = Arc::new(Waker::new());
        for (soon, second) in [(Duration::ZERO, LISTEN), (Duration::MAX, TICK)] {
            let arbiter = arbiter(soon);
            for expected in [LISTEN, second] {
                assert_eq!(arbiter.on_sleep(Some(&waker), drop), Arm::Sleep);
                assert_eq!(todo(|act| arbiter.on_wake(&waker, act)), expected);
            }
        }
    }

    #[test]
    fn the_waiter_of_a_cno_yields_to_the_waiter_of_one_queue() {
        let arbiter = arbiter(Duration::ZERO);
        let (one, cno) = (Arc::new(Waker::new()), Arc::new(Waker::serving_others()));
        assert_eq!(arbiter.on_sleep(Some(&cno), drop), Arm::Sleep);
        assert_eq!(arbiter.on_sleep(Some(&one), drop), Arm::Sleep);
        assert!(cno.take_wake());
        assert_eq!(todo(|act| arbiter.on_wake(&cno, act)), NOTHING);
        let polls = arbiter.polls();
        assert_eq!(arbiter.on_sleep(Some(&cno), drop), Arm::Attended);
        // The waiter of one queue may have stopped, and the timer must detect that.
        assert_eq!(arbiter.polls(), polls);
        assert_eq!(todo(|act| arbiter.on_wake(&one, act)), LISTEN);
        assert_eq!(arbiter.on_sleep(Some(&cno), drop), Arm::Sleep);
    }

    #[test]
    fn no_consumer_sleeps_on_the_descriptor_of_a_removed_device() {
        let arbiter = arbiter(Duration::ZERO);
        let waker = Arc::new(Waker::new());
        assert_eq!(arbiter.on_sleep(Some(&waker), drop), Arm::Sleep);
        assert_eq!(todo(|act| arbiter.close(act)), LISTEN);
        assert!(waker.take_wake());
        assert_eq!(todo(|act| arbiter.close(act)), NOTHING);
        assert_eq!(arbiter.on_sleep(Some(&waker), drop), Arm::Attended);
    }
}
