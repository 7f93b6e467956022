//! Which thread reads the completion channel of an adapter.
//!
//! ```text
//!              a consumer sleeps
//!  ENGINE ──────────────────────────> CONSUMER
//!    ^ <─── a wake-up now and then ──── |  ^
//!    | <─── a tick without a sleep ──── |  |
//!    | <─── a second one sleeps ─────── |  |
//!                                       '--' wake-ups in quick succession
//! ```
//!
//! * `Engine`: the engine's thread listens to the channel.
//! * `Consumer`: one consumer sleeps on the channel, or has just woken and will sleep again. The
//!   engine does not listen, or it would wake for each completion as well. While such wake-ups
//!   follow each other quickly, a tick finds out that the consumer has stopped.
//!
//! A consumer that serves others (the waiter of a CNO) leaves the channel to one that waits for
//! itself. Of several that wait for themselves none reads the channel: the kernel would wake all of
//! them for every completion. Then the engine does, and wakes the one that is concerned.

use std::time::{Duration, Instant};

/// The time after which the engine takes over from a consumer that does not come back.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// Wake-ups at shorter intervals than this are worth a tick.
const QUICK: Duration = Duration::from_millis(5);

/// The time for which the engine keeps the channel after several consumers slept at once: they are
/// expected to sleep again.
const CROWD_TIME: Duration = Duration::from_millis(100);

/// A consumer that sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sleeper {
    /// Its waker's address.
    pub(super) id: usize,
    pub(super) serves_others: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attendant {
    Engine,
    Consumer {
        sleeper: Sleeper,
        is_asleep: bool,
        /// A tick is due.
        ticks: bool,
        /// The consumer has begun to sleep since the last tick.
        has_slept: bool,
    },
}

/// The work that a transition leaves to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Todo {
    /// `Some(true)`: the engine starts to listen to the channel. `Some(false)`: the engine stops.
    /// `None`: no change.
    pub(super) engine_listens: Option<bool>,
    /// The consumer that sleeps on the channel is to be woken, because another one does from now
    /// on.
    pub(super) replaces: bool,
    /// The engine is to be woken, so that it begins to tick.
    pub(super) begins_ticks: bool,
}

/// The state. `on_*` are the only writers.
#[derive(Debug)]
pub(super) struct Attendance {
    attendant: Attendant,
    last_wake: Option<Instant>,
    crowd_until: Option<Instant>,
    /// The device is gone: nobody sleeps on the channel any more.
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

    /// A consumer is about to sleep. Returns true if it is to sleep on the channel as well, false
    /// if another thread reads that.
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
                    ticks: false,
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
                todo.replaces = is_other && *is_asleep;
                (*sleeper, *is_asleep, *has_slept) = (new, true, true);
            }
        }
        (true, todo)
    }

    /// A consumer has woken and read the channel.
    pub(super) fn on_wake(&mut self, id: usize, now: impl FnOnce() -> Instant) -> Todo {
        let mut todo = Todo::default();
        let Attendant::Consumer {
            sleeper,
            is_asleep,
            ticks,
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
        if *ticks {
            return todo;
        }
        let now = now();
        let last = self.last_wake.replace(now);
        if last.is_some_and(|last| now - last < QUICK) {
            *ticks = true;
            todo.begins_ticks = true;
        } else {
            self.attendant = Attendant::Engine;
            todo.engine_listens = Some(true);
        }
        todo
    }

    /// A tick is over.
    pub(super) fn on_tick(&mut self) -> Todo {
        let mut todo = Todo::default();
        let Attendant::Consumer {
            is_asleep,
            ticks,
            has_slept,
            ..
        } = &mut self.attendant
        else {
            return todo;
        };
        let has_slept = std::mem::take(has_slept);
        if !has_slept && *is_asleep {
            *ticks = false;
        } else if !has_slept {
            self.attendant = Attendant::Engine;
            todo.engine_listens = Some(true);
        }
        todo
    }

    /// The device is gone.
    pub(super) fn on_failure(&mut self) -> Todo {
        self.has_failed = true;
        let before = std::mem::replace(&mut self.attendant, Attendant::Engine);
        Todo {
            engine_listens: (before != Attendant::Engine).then_some(true),
            // A sleep on a channel that has failed ends at once.
            replaces: matches!(
                before,
                Attendant::Consumer {
                    is_asleep: true,
                    ..
                }
            ),
            begins_ticks: false,
        }
    }

    /// True if ticks are due.
    pub(super) const fn ticks(&self) -> bool {
        matches!(self.attendant, Attendant::Consumer { ticks: true, .. })
    }

    /// True if this consumer is the one that sleeps on the channel.
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
        replaces: false,
        begins_ticks: false,
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
            assert!(it.is_slept_on_by(CNO.id) && !it.ticks());
            assert_eq!(it.on_wake(CNO.id, || after(now, 50)), LISTENS);
            assert!(!it.is_slept_on_by(CNO.id));
        }
    }

    /// Brings a consumer into quick succession of wake-ups.
    fn quick(it: &mut Attendance, sleeper: Sleeper, start: Instant) {
        assert_eq!(it.on_sleep(sleeper, || start), (true, STOPS));
        assert_eq!(it.on_wake(sleeper.id, || start), LISTENS);
        assert_eq!(it.on_sleep(sleeper, || start), (true, STOPS));
        let todo = Todo {
            begins_ticks: true,
            ..NOTHING
        };
        assert_eq!(it.on_wake(sleeper.id, || after(start, 1)), todo);
        assert!(it.ticks());
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
        assert_eq!(it.on_tick(), NOTHING, "it has slept");
        assert_eq!(it.on_tick(), LISTENS, "it has not come back");
        assert!(!it.ticks());
    }

    #[test]
    fn ticks_end_while_a_consumer_sleeps() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        quick(&mut it, A, start);
        it.on_sleep(A, || start);
        assert_eq!([it.on_tick(), it.on_tick()], [NOTHING; 2]);
        assert!(!it.ticks() && it.is_slept_on_by(A.id));
    }

    #[test]
    fn a_consumer_that_serves_others_gives_way_to_one_that_waits_for_itself() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        assert_eq!(it.on_sleep(CNO, || start), (true, STOPS));
        let replaces = Todo {
            replaces: true,
            ..NOTHING
        };
        assert_eq!(it.on_sleep(A, || start), (true, replaces));
        assert_eq!(
            it.on_wake(CNO.id, || start),
            NOTHING,
            "it does not read the channel"
        );
        assert_eq!(it.on_sleep(CNO, || start), (false, NOTHING));
        assert_eq!(it.on_wake(A.id, || start), LISTENS);
        assert_eq!(it.on_sleep(CNO, || start), (true, STOPS));
    }

    #[test]
    fn of_two_consumers_that_wait_for_themselves_neither_reads_the_channel() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        it.on_sleep(A, || start);
        assert_eq!(it.on_sleep(B, || start), (false, LISTENS));
        assert_eq!(it.on_wake(A.id, || start), NOTHING);
        assert_eq!(it.on_sleep(A, || after(start, 50)), (false, NOTHING));
        assert_eq!(
            it.on_sleep(A, || after(start, 150)),
            (true, STOPS),
            "B may have gone"
        );
    }

    #[test]
    fn nobody_sleeps_on_a_channel_that_has_failed() {
        let (mut it, start) = (Attendance::new(), Instant::now());
        it.on_sleep(A, || start);
        let wakes = Todo {
            replaces: true,
            ..LISTENS
        };
        assert_eq!(it.on_failure(), wakes);
        assert_eq!(it.on_failure(), NOTHING);
        assert_eq!(it.on_sleep(A, || start), (false, NOTHING));
    }
}
