//! Threads of the program that are about to wait look after the offloaded connections themselves.
//!
//! What arrives would wake a thread of the stack, which would show it on the program's descriptor,
//! which would wake the program's thread: two wake-ups, and a wake-up costs more than all the rest.
//! So a thread that waits serves the stack for a moment first, where its last wait was short, and
//! asks the kernel behind each look. What it finds it has shown itself, and nobody was woken. The
//! stack's own threads stay aside meanwhile, and for a while after it ([`ops::OffloadProtocol`]).
//!
//! Signals are blocked from before the first look until the wait ends: handlers may call us, and
//! the stack's locks may be held. The kernel opens them for as long as it sleeps, as in a wait that
//! was not preceded by looks.
//!
//! Nobody serves where another thread of the program sleeps, which would not be shown what arrives
//! behind our wait, nor where connections are shared with other processes: those are fed by the
//! steward.
//!
//! System calls of a wait that a look ends: two for the signals, one that asks the kernel, two that
//! ask which process this is, and those of the provider's looks. One that ends with bytes that were
//! shown before makes one.

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libc::sigset_t;
use ops::Switch;

use crate::sharing::relay;
use crate::{errno, guard, switch};

/// A wait that was longer than this makes the next one sleep at once.
const WORTH: Duration = Duration::from_micros(100);
/// How long a wait looks before it sleeps.
const LOOKS_FOR: Duration = Duration::from_micros(50);
/// So long after a look the kernel is asked first: what was shown then may not have been taken.
const FRESH: Duration = Duration::from_micros(20);
/// After so many failures in a row the pauses grow no more: 64 waits.
const LOSSES_MAX: u32 = 6;

/// A thread looks.
static LOOKING: AtomicBool = AtomicBool::new(false);
/// Threads aside may have been told that we look.
static LENT: AtomicBool = AtomicBool::new(false);
/// Threads of the program that sleep until somebody shows them something.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// Failures in a row, and waits that sleep at once before the next try.
static LOSSES: AtomicU32 = AtomicU32::new(0);
static PAUSE: AtomicU32 = AtomicU32::new(0);
/// Whether a thread that looks leaves a processor to those who answer; -1: not known yet.
static HAS_ROOM: AtomicI8 = AtomicI8::new(-1);

thread_local! {
    static LAST: Cell<Last> = const {
        Cell::new(Last { look: None, wait: Duration::MAX, is_asleep: false })
    };
}

/// What a thread knows of its last wait.
#[derive(Clone, Copy)]
struct Last {
    look: Option<Instant>,
    wait: Duration,
    /// It is counted among those that sleep.
    is_asleep: bool,
}

/// What a program's wait is.
pub(crate) struct Waiting<A, S> {
    /// How long it may last; `None`: for ever.
    pub(crate) limit: Option<Duration>,
    /// The signal mask that it brings along, or null.
    pub(crate) mask: *const sigset_t,
    /// Asks the kernel without waiting.
    pub(crate) ask: A,
    /// Waits in the kernel, for its time less what has passed, with this mask if it is not null.
    pub(crate) sleep: S,
}

/// What came of serving.
enum Served {
    /// The wait is over.
    Done(c_int),
    /// Nothing has come so far. These signals were open before.
    Until(sigset_t),
    /// It was not tried.
    Not,
}

/// Waits. Nothing is to be dropped while `sleep` runs, which a cancellation may leave.
pub(crate) fn wait<A, S>(mut waiting: Waiting<A, S>) -> c_int
where
    A: FnMut() -> c_int,
    S: FnOnce(*const sigset_t, Duration) -> c_int,
{
    let mask = waiting.mask;
    if guard::is_inside() {
        return (waiting.sleep)(mask, Duration::ZERO);
    }
    if waiting.limit == Some(Duration::ZERO) {
        let ready = (waiting.sleep)(mask, Duration::ZERO);
        return match ready {
            0 if LENT.load(Ordering::Relaxed) => look_once(&mut waiting.ask),
            _ => ready,
        };
    }
    // A handler has left the last sleep for good, or calls us in the midst of it.
    end_sleep();
    let begun = Instant::now();
    let (opened, result) = match serve(begun, &mut waiting) {
        Served::Done(ready) => return ready,
        Served::Until(before) => {
            begin_sleep();
            let mask = if mask.is_null() {
                &raw const before
            } else {
                mask
            };
            (Some(before), (waiting.sleep)(mask, begun.elapsed()))
        }
        Served::Not => {
            begin_sleep();
            (None, (waiting.sleep)(mask, Duration::ZERO))
        }
    };
    end_sleep();
    note(begun);
    if let Some(before) = opened {
        open_signals(&before);
    }
    result
}

/// A thread of the program is about to sleep until it is shown something, or told.
pub(crate) fn begin_sleep() {
    if !counts(true) {
        ASLEEP.fetch_add(1, Ordering::SeqCst);
    }
    leave_to_threads();
}

/// It has woken.
pub(crate) fn end_sleep() {
    if counts(false) {
        ASLEEP.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the calling thread was counted among those that sleep, and is from now on.
fn counts(now: bool) -> bool {
    let exchange = |last: &Cell<Last>| {
        let before = last.get();
        last.set(Last {
            is_asleep: now,
            ..before
        });
        before.is_asleep
    };
    // A thread that is being torn down is not counted.
    LAST.try_with(exchange).unwrap_or(now)
}

/// In the child of a fork: nobody sleeps, nobody looks.
pub(crate) fn begin_anew() {
    counts(false);
    ASLEEP.store(0, Ordering::SeqCst);
    LENT.store(false, Ordering::SeqCst);
    LOOKING.store(false, Ordering::SeqCst);
}

/// A wait is over that began then.
fn note(begun: Instant) {
    let wait = begun.elapsed();
    let _ = LAST.try_with(|last| last.set(Last { wait, ..last.get() }));
}

/// Opens the signals that were open before; the error of a call that is over stays.
fn open_signals(before: &sigset_t) {
    let why = errno::get();
    threads::restore_signals(before);
    errno::set(why);
}

/// The stack's own threads serve from now on.
pub(crate) fn leave_to_threads() {
    if LENT.load(Ordering::SeqCst)
        && LENT.swap(false, Ordering::SeqCst)
        && let Some(switch) = switch::made()
    {
        let _inside = guard::enter();
        switch
            .registry()
            .for_each(|protocol| protocol.leave_to_threads());
    }
}

/// Looks until something has come that is waited for, or for no longer than it is worth.
fn serve<A, S>(begun: Instant, waiting: &mut Waiting<A, S>) -> Served
where
    A: FnMut() -> c_int,
{
    let Ok(last) = LAST.try_with(Cell::get) else {
        return Served::Not;
    };
    if last.wait > WORTH || ASLEEP.load(Ordering::SeqCst) > 0 || relay::has_any() || !tries() {
        return Served::Not;
    }
    let Some(switch) = switch::made().filter(|_| has_room()) else {
        return Served::Not;
    };
    let is_fresh = |at: Instant| begun.saturating_duration_since(at) < FRESH;
    if last.look.is_some_and(is_fresh) && LENT.load(Ordering::Relaxed) {
        let ready = (waiting.ask)();
        if ready != 0 {
            return Served::Done(ready);
        }
    }
    if LOOKING.swap(true, Ordering::SeqCst) {
        return Served::Not;
    }
    let before = threads::block_signals();
    LENT.store(true, Ordering::SeqCst);
    let ready = look(switch, begun, &mut waiting.ask);
    LOOKING.store(false, Ordering::SeqCst);
    if ready == 0 {
        return Served::Until(before);
    }
    let why = errno::get();
    if ASLEEP.load(Ordering::SeqCst) > 0 {
        leave_to_threads();
    }
    let now = Instant::now();
    let _ = LAST.try_with(|last| {
        last.set(Last {
            look: Some(now),
            wait: now - begun,
            ..last.get()
        });
    });
    threads::restore_signals(&before);
    errno::set(why);
    Served::Done(ready)
}

fn look(switch: &Switch, begun: Instant, ask: &mut impl FnMut() -> c_int) -> c_int {
    loop {
        let has_looked = serve_all(switch);
        let ready = ask();
        let is_over = begun.elapsed() >= LOOKS_FOR || ASLEEP.load(Ordering::SeqCst) > 0;
        if ready != 0 || !has_looked || is_over {
            count(ready != 0 && has_looked);
            return ready;
        }
    }
}

/// One look, where the threads aside may believe that we do look.
fn look_once(ask: &mut impl FnMut() -> c_int) -> c_int {
    let Some(switch) = switch::made() else {
        return 0;
    };
    if LOOKING.swap(true, Ordering::SeqCst) {
        return 0;
    }
    let before = threads::block_signals();
    serve_all(switch);
    let ready = ask();
    LOOKING.store(false, Ordering::SeqCst);
    open_signals(&before);
    ready
}

/// Serves all protocols once. `false`: that is not to be repeated.
fn serve_all(switch: &Switch) -> bool {
    let _inside = guard::enter();
    let mut has_looked = false;
    let serve = || {
        switch.registry().for_each(|protocol| {
            has_looked |= protocol.serve_here().is_some();
        });
    };
    catch_unwind(AssertUnwindSafe(serve)).is_ok() && has_looked
}

/// Whether this wait looks, after those that looked in vain.
fn tries() -> bool {
    let pause = PAUSE.load(Ordering::Relaxed);
    if pause > 0 {
        PAUSE.store(pause - 1, Ordering::Relaxed);
    }
    pause == 0
}

/// Each failure in a row doubles the number of waits that sleep at once: two threads that the
/// scheduler keeps on one processor take it from each other by looking.
fn count(success: bool) {
    if success {
        LOSSES.store(0, Ordering::Relaxed);
        return;
    }
    let losses = (LOSSES.load(Ordering::Relaxed) + 1).min(LOSSES_MAX);
    LOSSES.store(losses, Ordering::Relaxed);
    PAUSE.store(1 << losses, Ordering::Relaxed);
}

fn has_room() -> bool {
    let known = HAS_ROOM.load(Ordering::Relaxed);
    if known >= 0 {
        return known > 0;
    }
    let mut all = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: a set of this frame, which is valid when it is zero and filled by the call.
    let processors = unsafe {
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), all.as_mut_ptr());
        libc::CPU_COUNT(&all.assume_init())
    };
    HAS_ROOM.store(i8::from(processors > 1), Ordering::Relaxed);
    processors > 1
}
