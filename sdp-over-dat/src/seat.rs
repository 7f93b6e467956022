//! Who serves the sockets whose users do something else: the stack's thread, or threads of the
//! program that lend themselves.
//!
//! A thread of the program that waits for its sockets would be woken by the stack's thread, which
//! the kernel has woken before. Where it looks itself, nobody needs to be woken. So the seat is
//! lent to it, and stays lent while it comes back: the stack's thread sleeps aside, looks once a
//! tick whether somebody has served since, and takes the seat back when nobody has.
//!
//! ```text
//!              lend                          the thread steps aside
//!   THREAD'S ────────> LENT, thread at it ──────────────────────────> LENT, thread aside
//!      ^                    │ reclaim                                      │ reclaim, or a tick
//!      └────────────────────┴──────────────────────────────────────────────┘ without a look
//! ```

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

/// How soon the thread looks whether the seat is still used.
const TICK_MIN: Duration = Duration::from_millis(1);

/// How rarely, while the time between two looks doubles.
const TICK_MAX: Duration = Duration::from_millis(10);

/// How long somebody who wants to sleep in the seat waits for the thread to step aside.
const PATIENCE: Duration = Duration::from_millis(5);

/// Who has the seat. What is an atomic is read without the lock and written under it, but for the
/// count.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    lent: AtomicBool,
    /// The thread waits for no events.
    aside: AtomicBool,
    /// Somebody sleeps in the seat.
    taken: AtomicBool,
    /// The thread sleeps for longer than a tick, because somebody sleeps in the seat.
    sleeps_long: AtomicBool,
    /// Counts looks of those to whom it is lent.
    looks: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

/// What the thread knows of those who have the seat.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: u32,
    tick: Duration,
    until: Option<Instant>,
    /// Nobody has looked for a tick, but somebody sleeps in the seat.
    is_quiet: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            seen: 0,
            tick: TICK_MIN,
            until: None,
            is_quiet: false,
        }
    }
}

impl Seat {
    /// Lends it to the calling thread, for this look and until others stop coming. `true`: the
    /// thread is to be woken, so that it steps aside.
    pub(crate) fn lend(&self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if self.is_lent() {
            return false;
        }
        let _lock = self.lock();
        !self.lent.swap(true, Ordering::SeqCst) && !self.is_aside()
    }

    /// Whether somebody else than the thread has it.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent.load(Ordering::SeqCst)
    }

    /// Whether the thread has stepped aside, so that others may take what has triggered.
    pub(crate) fn is_aside(&self) -> bool {
        self.aside.load(Ordering::SeqCst)
    }

    /// The caller is about to sleep in the seat: nobody takes it meanwhile. `false`: he does not
    /// have it, or the thread does not step aside.
    pub(crate) fn take(&self) -> bool {
        let mut lock = self.lock();
        let until = Instant::now() + PATIENCE;
        while self.is_lent() && !self.is_aside() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(lock, left);
            lock = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_lent = self.is_lent();
        self.taken.store(is_lent, Ordering::SeqCst);
        drop(lock);
        is_lent
    }

    /// He has woken, and may go away from now on.
    pub(crate) fn rise(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.taken.store(false, Ordering::SeqCst);
        self.nudge();
    }

    /// The thread, if it sleeps for long, looks again how long it may sleep.
    pub(crate) fn nudge(&self) {
        if self.sleeps_long.load(Ordering::SeqCst) {
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    /// The thread takes it from now on.
    pub(crate) fn reclaim(&self) {
        if !self.is_lent() {
            return;
        }
        let lock = self.lock();
        self.lent.store(false, Ordering::SeqCst);
        drop(lock);
        self.changed.notify_all();
    }

    /// The thread: sleeps while others serve, no longer than `pause`, and takes the seat back when
    /// nobody has looked for a tick.
    pub(crate) fn step_aside(&self, watch: &mut Watch, pause: Duration) {
        let mut lock = self.lock();
        if self.is_lent() {
            if !self.aside.swap(true, Ordering::SeqCst) {
                self.changed.notify_all();
            }
            lock = self.sleep(lock, watch, pause);
        }
        if !self.is_lent() {
            *watch = Watch::default();
            self.aside.store(false, Ordering::SeqCst);
        }
        drop(lock);
    }

    fn sleep<'a>(
        &'a self,
        mut lock: MutexGuard<'a, ()>,
        watch: &mut Watch,
        pause: Duration,
    ) -> MutexGuard<'a, ()> {
        // Said first: who rises looks at it afterwards.
        self.sleeps_long.store(watch.is_quiet, Ordering::SeqCst);
        let sleeps_long = watch.is_quiet && self.taken.load(Ordering::SeqCst);
        let now = Instant::now();
        let until = *watch.until.get_or_insert(now + watch.tick);
        let tick = until.saturating_duration_since(now);
        let pause = if sleeps_long { pause } else { pause.min(tick) };
        let waited = self.changed.wait_timeout(lock, pause);
        lock = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.sleeps_long.store(false, Ordering::SeqCst);
        if self.is_lent() && Instant::now() >= until {
            let is_used = watch.look(self.looks.load(Ordering::Relaxed));
            watch.is_quiet = !is_used && self.taken.load(Ordering::SeqCst);
            self.lent.store(is_used || watch.is_quiet, Ordering::SeqCst);
        }
        lock
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// A tick is over. Whether somebody has looked since the last one.
    fn look(&mut self, looks: u32) -> bool {
        let is_used = std::mem::replace(&mut self.seen, looks) != looks;
        self.tick = (self.tick * 2).min(TICK_MAX);
        self.until = None;
        is_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever has not happened by then does not happen.
    const FOR_EVER: Duration = Duration::from_secs(3600);

    #[test]
    fn the_thread_is_woken_by_the_first_who_lends_and_by_nobody_once_it_is_aside() {
        let (seat, mut watch) = (Seat::default(), Watch::default());
        assert!(seat.lend(), "it waits for events");
        assert!(!seat.lend(), "it has been woken");
        assert!(!seat.is_aside());
        seat.step_aside(&mut watch, Duration::ZERO);
        assert!(seat.is_aside());
        seat.reclaim();
        assert!(!seat.lend(), "it has not come back yet, and need not");
        assert!(seat.is_aside());
    }

    #[test]
    fn the_thread_takes_back_what_nobody_uses_and_nothing_else() {
        let (seat, mut watch) = (Seat::default(), Watch::default());
        seat.lend();
        for _ in 0..10 {
            seat.lend();
            while watch.until.is_none() {
                seat.step_aside(&mut watch, Duration::ZERO);
            }
            while watch.until.is_some() {
                seat.step_aside(&mut watch, FOR_EVER);
            }
            assert!(seat.is_lent(), "somebody has looked");
        }
        while seat.is_lent() {
            seat.step_aside(&mut watch, FOR_EVER);
        }
        assert!(!seat.is_aside());
        assert_eq!(watch.tick, TICK_MIN, "the next one to lend is unknown");
        assert!(seat.lend(), "it waits for events again");
    }

    #[test]
    fn nobody_takes_the_seat_in_which_somebody_sleeps() {
        let (seat, mut watch) = (Seat::default(), Watch::default());
        assert!(!seat.take(), "it is the thread's");
        seat.lend();
        seat.step_aside(&mut watch, Duration::ZERO);
        assert!(seat.take());
        while !watch.is_quiet {
            seat.step_aside(&mut watch, FOR_EVER);
        }
        // However often the thread looks: it has other work, too.
        for _ in 0..100 {
            seat.step_aside(&mut watch, Duration::ZERO);
            assert!(seat.is_lent());
        }
        seat.rise();
        while seat.is_lent() {
            seat.step_aside(&mut watch, FOR_EVER);
        }
        assert!(!seat.take(), "it is the thread's again");
    }

    #[test]
    fn a_thread_aside_comes_back_when_it_is_told() {
        let seat = Seat::default();
        seat.lend();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut watch = Watch::default();
                while seat.is_lent() {
                    seat.lend();
                    seat.step_aside(&mut watch, FOR_EVER);
                }
            });
            while !seat.is_aside() {
                std::thread::yield_now();
            }
            seat.reclaim();
            while !thread.is_finished() {
                // It may lend once more between its own looks.
                seat.reclaim();
                std::thread::yield_now();
            }
        });
        assert!(!seat.is_aside());
    }
}
