//! The state machine of the thread that reads the completion channel of an adapter.
//!
//! ```text
//!              a consumer sleeps
//!  ENGINE ──────────────────────────> CONSUMER
//!    ^ <─── a wake-up now and then ──── |  ^
//!    | <─── a tick without a sleep ──── |  |
//!    | <─── a second consumer sleeps ── |  |
//!                                       '--' wake-ups at short intervals
//! ```
//!
//! * `Engine`: the engine's thread waits for events of the channel.
//! * `Consumer`: one consumer sleeps on the channel, or has just woken and will sleep again. The
//!   engine does not wait for the channel, because it would wake for each completion as well. While
//!   wake-ups follow each other quickly, a tick detects that the consumer has stopped.
//!
//! The waiter of a CNO leaves the channel to a consumer that waits for one queue. If several such
//! consumers sleep at once, none of them reads the channel, because the kernel would wake all of
//! them for every completion. The engine then reads it, and wakes the right consumer.

use std::time::{Duration, Instant};

/// The time after which the engine takes over from a consumer that does not sleep again.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// The interval of wake-ups below which a tick is worthwhile.
const QUICK: Duration = Duration::from_millis(5);

/// The time for which the engine keeps the channel after several consumers slept at once, because
/// they are expected to sleep again.
const CROWD_TIME: Duration = Duration::from_millis(100);

/// A consumer that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sleeper {
    /// The address of the consumer's waker.
    pub(super) id: usize,
    pub(super) serves_others: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attendant {
    Engine,
    Consumer {
        sleeper: Sleeper,
        is_asleep: bool,
        /// True while ticks are due.
        is_ticking: bool,
        /// True if the consumer has begun to sleep since the last tick.
        has_slept: bool,
    },
}

/// The actions that a transition requires of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Todo {
    /// `Some(true)`: the engine starts to wait for the channel. `Some(false)`: the engine stops.
    /// `None`: no change.
    pub(super) engine_listens: Option<bool>,
    /// True if the consumer that sleeps on the channel must be woken, because another consumer
    /// sleeps on the channel from now on.
    pub(super) must_wake_former: bool,
    /// True if the engine must be woken, so that it starts to tick.
    pub(super) must_start_ticks: bool,
}

/// The state. The `on_*` methods are the only writers.
#[derive(Debug)]
pub(super) struct Attendance {
    attendant: Attendant,
    last_wake: Option<Instant>,
    crowd_until: Option<Instant>,
    /// True once the device is removed: no consumer sleeps on the channel any more.
    has_failed: bool,
}

impl Attendance {
    pub(super) const fn new() -> Self {
        Self {
            attendant: Attendant::Engine,
            last_wake: None,
            crowd_until: None,
            has_failed: false,
        }
    }

    /// Called when a consumer is about to sleep. Returns true if the consumer must sleep on the
    /// channel as well, false if another thread reads the channel.
    pub(super) fn on_sleep(&mut self, new: Sleeper, now: impl Fn() -> Instant) -> (bool, Todo) {
        let mut todo = Todo::default();
        match &mut self.attendant {
            _ if self.has_failed => return (false, todo),
            Attendant::Engine if self.crowd_until.is_some_and(|until| now() < until) => {
                return (false, todo);
            }
            Attendant::Engine => {
                todo.engine_listens = Some(false);
                self.attendant = Attendant::Consumer {
                    sleeper: new,
                    is_asleep: true,
                    is_ticking: false,
                    has_slept: true,
                };
            }
            Attendant::Consumer {
                sleeper,
                is_asleep,
                has_slept,
                ..
            } => {
                let is_other = sleeper.id != new.id;
                if is_other && new.serves_others && !sleeper.serves_others {
                    return (false, todo);
                }
                let is_rival = new.serves_others == sleeper.serves_others;
                if is_other && *is_asleep && is_rival {
                    self.crowd_until = Some(now() + CROWD_TIME);
                    self.attendant = Attendant::Engine;
                    todo.engine_listens = Some(true);
                    return (false, todo);
                }
                todo.must_wake_former = is_other && *is_asleep;
                (*sleeper, *is_asleep, *has_slept) = (new, true, true);
            }
        }
        (true, todo)
    }

    /// Called when a consumer has woken and read the channel.
    pub(super) fn on_wake(&mut self, id: usize, now: impl FnOnce() -> Instant) -> Todo {
        let mut todo = Todo::default();
        let Attendant::Consumer {
            sleeper,
            is_asleep,
            is_ticking,
            has_slept,
        } = &mut self.attendant
        else {
            return todo;
        };
        if sleeper.id != id {
            return todo;
        }
        *is_asleep = false;
        *has_slept = true;
        if *is_ticking {
            return todo;
        }
        let now = now();
        let last = self.last_wake.replace(now);
        if last.is_some_and(|last| now - last < QUICK) {
            *is_ticking = true;
            todo.must_start_ticks = true;
        } else {
            self.attendant = Attendant::Engine;
            todo.engine_listens = Some(true);
        }
        todo
    }

    /// Called at the end of a tick.
    pub(super) fn on_tick(&mut self) -> Todo {
        let mut todo = Todo::default();
        let Attendant::Consumer {
            is_asleep,
            is_ticking,
            has_slept,
            ..
        } = &mut self.attendant
        else {
            return todo;
        };
        let has_slept = std::mem::take(has_slept);
        if !has_slept && *is_asleep {
            *is_ticking = false;
        } else if !has_slept {
            self.attendant = Attendant::Engine;
            todo.engine_listens = Some(true);
        }
        todo
    }

    /// Called when the device is removed.
    pub(super) fn on_failure(&mut self) -> Todo {
        self.has_failed = true;
        let before = std::mem::replace(&mut self.attendant, Attendant::Engine);
        Todo {
            engine_listens: (before != Attendant::Engine).then_some(true),
            // A sleep on a channel that has failed ends at once.
            must_wake_former: matches!(
                before,
                Attendant::Consumer {
                    is_asleep: true,
                    ..
                }
            ),
            must_start_ticks: false,
        }
    }

    /// True if ticks are due.
    pub(super) const fn is_ticking(&self) -> bool {
        matches!(
            self.attendant,
            Attendant::Consumer {
                is_ticking: true,
                ..
            }
        )
    }

    /// True if this consumer sleeps on the channel.
    pub(super) fn is_slept_on_by(&self, id: usize) -> bool {
        let Attendant::Consumer {
            sleeper, is_asleep, ..
        } = self.attendant
        else {
            return false;
        };
        is_asleep && sleeper.id == id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Sleeper = Sleeper {
        id: 1,
        serves_others: false,
    };
    const B: Sleeper = Sleeper {
        id: 2,
        serves_others: false,
    };
    const CNO: Sleeper = Sleeper {
        id: 3,
        serves_others: true,
    };
    const NOTHING: Todo = Todo {
        engine_listens: None,
        must_wake_former: false,
        must_start_ticks: false,
    };
    const STOPS: Todo = Todo {
        engine_listens: Some(false),
        ..NOTHING
    };
    const LISTENS: Todo = Todo {
        engine_listens: Some(true),
        ..NOTHING
    };

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn a_consumer_that_wakes_now_and_then_needs_no_tick() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        for round in 0..3 {
            let now = after(start, round * 100);
            assert_eq!(it.on_sleep(CNO, || now), (true, STOPS));
            assert!(it.is_slept_on_by(CNO.id) && !it.is_ticking());
            assert_eq!(it.on_wake(CNO.id, || after(now, 50)), LISTENS);
            assert!(!it.is_slept_on_by(CNO.id));
        }
    }

    /// Makes a consumer wake at short intervals.
    fn quick(it: &mut Attendance, sleeper: Sleeper, start: Instant) {
        assert_eq!(it.on_sleep(sleeper, || start), (true, STOPS));
        assert_eq!(it.on_wake(sleeper.id, || start), LISTENS);
        assert_eq!(it.on_sleep(sleeper, || start), (true, STOPS));
        let todo = Todo {
            must_start_ticks: true,
            ..NOTHING
        };
        assert_eq!(it.on_wake(sleeper.id, || after(start, 1)), todo);
        assert!(it.is_ticking());
    }

    #[test]
    fn quick_wake_ups_change_nothing_until_a_tick_passes_without_a_sleep() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        quick(&mut it, A, start);
        for _ in 0..5 {
            assert_eq!(it.on_sleep(A, || start), (true, NOTHING));
            assert_eq!(it.on_tick(), NOTHING);
            assert_eq!(it.on_wake(A.id, || start), NOTHING);
        }
        assert_eq!(it.on_tick(), NOTHING, "the consumer has slept");
        assert_eq!(it.on_tick(), LISTENS, "the consumer has not slept again");
        assert!(!it.is_ticking());
    }

    #[test]
    fn ticks_end_while_a_consumer_sleeps() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        quick(&mut it, A, start);
        it.on_sleep(A, || start);
        assert_eq!([it.on_tick(), it.on_tick()], [NOTHING; 2]);
        assert!(!it.is_ticking() && it.is_slept_on_by(A.id));
    }

    #[test]
    fn the_waiter_of_a_cno_yields_to_the_waiter_of_one_queue() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        assert_eq!(it.on_sleep(CNO, || start), (true, STOPS));
        let must_wake_former = Todo {
            must_wake_former: true,
            ..NOTHING
        };
        assert_eq!(it.on_sleep(A, || start), (true, must_wake_former));
        assert_eq!(
            it.on_wake(CNO.id, || start),
            NOTHING,
            "the waiter of the CNO does not read the channel"
        );
        assert_eq!(it.on_sleep(CNO, || start), (false, NOTHING));
        assert_eq!(it.on_wake(A.id, || start), LISTENS);
        assert_eq!(it.on_sleep(CNO, || start), (true, STOPS));
    }

    #[test]
    fn of_two_waiters_of_single_queues_neither_reads_the_channel() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        it.on_sleep(A, || start);
        assert_eq!(it.on_sleep(B, || start), (false, LISTENS));
        assert_eq!(it.on_wake(A.id, || start), NOTHING);
        assert_eq!(it.on_sleep(A, || after(start, 50)), (false, NOTHING));
        assert_eq!(
            it.on_sleep(A, || after(start, 150)),
            (true, STOPS),
            "B may have stopped"
        );
    }

    #[test]
    fn no_consumer_sleeps_on_a_failed_channel() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        it.on_sleep(A, || start);
        let wakes = Todo {
            must_wake_former: true,
            ..LISTENS
        };
        assert_eq!(it.on_failure(), wakes);
        assert_eq!(it.on_failure(), NOTHING);
        assert_eq!(it.on_sleep(A, || start), (false, NOTHING));
    }
}
