//! The driver role: who serves the sockets whose users do something else, the stack's thread or
//! threads of the program that lend themselves.
//!
//! A thread of the program that waits for its sockets would be woken by the stack's thread, which
//! the kernel has woken before. Where it looks itself, nobody needs to be woken. So the role is
//! lent to it, and stays lent while it comes back: the stack's thread sleeps aside, looks once a
//! tick whether somebody has served since, and takes the role back when nobody has.
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

/// How soon the thread looks whether the borrowers still come.
const TICK_MIN: Duration = Duration::from_millis(1);

/// How rarely, while the time between two looks doubles.
const TICK_MAX: Duration = Duration::from_millis(10);

/// How long a borrower who wants to sleep waits for the thread to step aside, at most: he hears of
/// nothing else meanwhile.
const PATIENCE: Duration = Duration::from_micros(500);

/// Who waits for the completions of a stack's sockets, and serves them. The atomics are written
/// under the lock, all but `looks`, and read without it.
#[derive(Debug, Default)]
pub(crate) struct DriverRole {
    lent: AtomicBool,
    /// The thread waits for no events.
    aside: AtomicBool,
    /// A borrower sleeps and will come back.
    has_waiter: AtomicBool,
    /// The thread sleeps for longer than a tick, because a borrower sleeps.
    sleeps_long: AtomicBool,
    /// Counts looks of those to whom it is lent.
    looks: AtomicU32,
    lock: Mutex<()>,
    changed: Condvar,
}

/// What the thread knows of the borrowers.
#[derive(Debug)]
pub(crate) struct IdleWatch {
    seen: u32,
    tick: Duration,
    until: Option<Instant>,
    /// Nobody has looked for a tick, but a borrower sleeps.
    is_quiet: bool,
}

impl Default for IdleWatch {
    fn default() -> Self {
        Self {
            seen: 0,
            tick: TICK_MIN,
            until: None,
            is_quiet: false,
        }
    }
}

impl DriverRole {
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

    /// The caller is about to sleep, for no longer than `left`, and keeps the role: nobody takes it
    /// meanwhile. `false`: he does not have it, or the thread does not step aside soon.
    pub(crate) fn begin_wait(&self, left: Duration) -> bool {
        let mut lock = self.lock();
        let until = Instant::now() + left.min(PATIENCE);
        while self.is_lent() && !self.is_aside() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(lock, left);
            lock = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let is_lent = self.is_lent();
        self.has_waiter.store(is_lent, Ordering::SeqCst);
        drop(lock);
        is_lent
    }

    /// He has woken, and may go away from now on.
    pub(crate) fn end_wait(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.has_waiter.store(false, Ordering::SeqCst);
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

    /// The thread: sleeps while others serve, no longer than `pause`, and takes the role back when
    /// nobody has looked for a tick.
    pub(crate) fn step_aside(&self, watch: &mut IdleWatch, pause: Duration) {
        let mut lock = self.lock();
        if self.is_lent() {
            if !self.aside.swap(true, Ordering::SeqCst) {
                self.changed.notify_all();
            }
            lock = self.sleep(lock, watch, pause);
        }
        if !self.is_lent() {
            *watch = IdleWatch::default();
            self.aside.store(false, Ordering::SeqCst);
        }
        drop(lock);
    }

    fn sleep<'a>(
        &'a self,
        mut lock: MutexGuard<'a, ()>,
        watch: &mut IdleWatch,
        pause: Duration,
    ) -> MutexGuard<'a, ()> {
        // Said first: whoever ends a wait looks at it afterwards.
        self.sleeps_long.store(watch.is_quiet, Ordering::SeqCst);
        let sleeps_long = watch.is_quiet && self.has_waiter.load(Ordering::SeqCst);
        let now = Instant::now();
        let until = *watch.until.get_or_insert(now + watch.tick);
        let tick = until.saturating_duration_since(now);
        let pause = if sleeps_long { pause } else { pause.min(tick) };
        let waited = self.changed.wait_timeout(lock, pause);
        lock = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.sleeps_long.store(false, Ordering::SeqCst);
        if self.is_lent() && Instant::now() >= until {
            let is_used = watch.look(self.looks.load(Ordering::Relaxed));
            watch.is_quiet = !is_used && self.has_waiter.load(Ordering::SeqCst);
            self.lent.store(is_used || watch.is_quiet, Ordering::SeqCst);
        }
        lock
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdleWatch {
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
        let (role, mut watch) = (DriverRole::default(), IdleWatch::default());
        assert!(role.lend(), "it waits for events");
        assert!(!role.lend(), "it has been woken");
        assert!(!role.is_aside());
        role.step_aside(&mut watch, Duration::ZERO);
        assert!(role.is_aside());
        role.reclaim();
        assert!(!role.lend(), "it has not come back yet, and need not");
        assert!(role.is_aside());
    }

    #[test]
    fn the_thread_takes_back_what_nobody_uses_and_nothing_else() {
        let (role, mut watch) = (DriverRole::default(), IdleWatch::default());
        role.lend();
        for _ in 0..10 {
            role.lend();
            while watch.until.is_none() {
                role.step_aside(&mut watch, Duration::ZERO);
            }
            while watch.until.is_some() {
                role.step_aside(&mut watch, FOR_EVER);
            }
            assert!(role.is_lent(), "somebody has looked");
        }
        while role.is_lent() {
            role.step_aside(&mut watch, FOR_EVER);
        }
        assert!(!role.is_aside());
        assert_eq!(watch.tick, TICK_MIN, "the next one to lend is unknown");
        assert!(role.lend(), "it waits for events again");
    }

    #[test]
    fn who_has_no_time_does_not_wait_for_the_thread_and_nobody_does_for_long() {
        let role = DriverRole::default();
        role.lend();
        let begun = Instant::now();
        for _ in 0..10_000 {
            assert!(!role.begin_wait(Duration::ZERO), "the thread is not aside");
        }
        assert!(!role.begin_wait(FOR_EVER));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn nobody_takes_the_role_of_one_who_sleeps() {
        let (role, mut watch) = (DriverRole::default(), IdleWatch::default());
        assert!(!role.begin_wait(FOR_EVER), "it is the thread's");
        role.lend();
        role.step_aside(&mut watch, Duration::ZERO);
        assert!(role.begin_wait(Duration::ZERO));
        while !watch.is_quiet {
            role.step_aside(&mut watch, FOR_EVER);
        }
        // However often the thread looks: it has other work, too.
        for _ in 0..100 {
            role.step_aside(&mut watch, Duration::ZERO);
            assert!(role.is_lent());
        }
        role.end_wait();
        while role.is_lent() {
            role.step_aside(&mut watch, FOR_EVER);
        }
        assert!(!role.begin_wait(FOR_EVER), "it is the thread's again");
    }

    #[test]
    fn a_thread_aside_comes_back_when_it_is_told() {
        let role = DriverRole::default();
        role.lend();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut watch = IdleWatch::default();
                while role.is_lent() {
                    role.lend();
                    role.step_aside(&mut watch, FOR_EVER);
                }
            });
            while !role.is_aside() {
                std::thread::yield_now();
            }
            role.reclaim();
            while !thread.is_finished() {
                // It may lend once more between its own looks.
                role.reclaim();
                std::thread::yield_now();
            }
        });
        assert!(!role.is_aside());
    }
}
