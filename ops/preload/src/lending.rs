//! Threads of the program that wait look after the offloaded connections themselves.
//!
//! What arrives would wake a thread of the stack, which would show it on the program's descriptor,
//! which would wake the program's thread: two wake-ups, and a wake-up costs more than all the rest.
//! So a thread that waits serves the stack: it looks, asks the kernel what is ready, looks again
//! for a moment where its last wait was short, and then sleeps on what it waits for and on what the
//! stack waits for at once. What comes it shows itself, and one thread was woken. The stack's own
//! threads stay aside meanwhile, and for a while after it ([`ops::OffloadProtocol`]).
//!
//! The sleep is a `ppoll` of the C library's. A handler may leave it for good, and the thread may
//! be cancelled in it: then whoever waits next ends what the sleep has left in the stack.
//!
//! Signals are blocked from before the first look until the wait ends: handlers may call us, and
//! the stack's locks may be held. The kernel opens them for as long as it sleeps, as in a wait that
//! was not preceded by looks.
//!
//! Nobody serves where another thread of the program sleeps, which would not be shown what arrives
//! behind our wait, nor where connections are shared with other processes: those are fed by the
//! event thread.
//!
//! | A wait that ends | makes these system calls, beside those of the provider's looks | and wakes |
//! |---|---|---|
//! | with what was shown before | one that asks the kernel | nobody |
//! | with a look | two for the signals, one that asks, two that ask which process this is | nobody |
//! | with a sleep | the same, `ppoll`, one that asks, four that ask which process this is | one thread |

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI8, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::{nfds_t, pollfd, sigset_t};
use ops::Switch;

use crate::hooks::waits;
use crate::sharing::relay;
use crate::{errno, guard, real, switch};

/// A wait that was longer than this makes the next one look once before it sleeps.
const WORTH: Duration = Duration::from_micros(100);
/// How long a wait looks before it sleeps.
const LOOKS_FOR: Duration = Duration::from_micros(50);
/// So long after a look the kernel is asked first: what was shown then may not have been taken.
const FRESH: Duration = Duration::from_micros(20);
/// So many waits do not look where there is nothing to be looked after, or too much.
const SKIPS_MAX: u32 = 64;
/// Descriptors of a wait that are slept on in the place of the stack's threads.
const FDS_MAX: usize = 44;
/// Those of the stack.
const STACKS_MAX: usize = 20;
/// After so many failures in a row the pauses grow no more: 16 waits.
const LOSSES_MAX: u32 = 4;

/// The thread that looks, or 0.
static LOOKER: AtomicUsize = AtomicUsize::new(0);
/// Threads aside may have been told that we look.
static LENT: AtomicBool = AtomicBool::new(false);
/// Threads of the program that sleep until somebody shows them something.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// Failures in a row, and waits that sleep at once before the next try.
static LOSSES: AtomicU32 = AtomicU32::new(0);
static PAUSE: AtomicU32 = AtomicU32::new(0);
/// Waits that do not look, because looking was no use.
static SKIPS: AtomicU32 = AtomicU32::new(0);
/// Whether a thread that looks leaves a processor to those who answer; -1: not known yet.
static HAS_ROOM: AtomicI8 = AtomicI8::new(-1);

thread_local! {
    static LAST: Cell<Last> = const {
        Cell::new(Last { look: None, wait: Duration::MAX, is_asleep: false, sleeps: false })
    };
}

/// What a thread knows of its last wait.
#[derive(Clone, Copy)]
struct Last {
    look: Option<Instant>,
    wait: Duration,
    /// It is counted among those that sleep.
    is_asleep: bool,
    /// It sleeps in the place of the stack's threads, or has not come back from there.
    sleeps: bool,
}

/// What a program's wait is.
pub(crate) struct Waiting<'a, A, S> {
    /// How long it may last; `None`: for ever.
    pub(crate) limit: Option<Duration>,
    /// The signal mask that it brings along, or null.
    pub(crate) mask: *const sigset_t,
    /// What the kernel can be asked to sleep on in its place.
    pub(crate) fds: &'a [pollfd],
    /// Asks the kernel without waiting.
    pub(crate) ask: A,
    /// Waits in the kernel, for its time less what has passed, with this mask if it is not null.
    pub(crate) sleep: S,
}

/// What came of serving.
enum Served {
    /// The wait is over.
    Done(c_int),
    /// Nothing has come so far, and it cannot go on. These signals were open before.
    Until(sigset_t),
    /// It was not tried.
    Not,
}

/// Waits. Nothing is to be dropped while `sleep` runs, which a cancellation may leave.
pub(crate) fn wait<A, S>(mut waiting: Waiting<'_, A, S>) -> c_int
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
    come_back();
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
    end_external_sleep();
    leave_off();
    if !change(|last| &mut last.is_asleep, true) {
        ASLEEP.fetch_add(1, Ordering::SeqCst);
    }
    leave_to_threads();
}

/// It has woken.
pub(crate) fn end_sleep() {
    if change(|last| &mut last.is_asleep, false) {
        ASLEEP.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The calling thread begins to wait. A handler has left its last sleep for good, or calls us in
/// the midst of it; in both cases nothing of that sleep is to be left.
fn come_back() {
    end_sleep();
    end_external_sleep();
    leave_off();
}

/// The calling thread is the one that looks. `false`: another one does.
fn begin_to_look() -> bool {
    let change = LOOKER.compare_exchange(0, myself(), Ordering::SeqCst, Ordering::SeqCst);
    change.is_ok()
}

/// The calling thread looks no more, if it did.
fn leave_off() {
    let me = myself();
    let _ = LOOKER.compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
}

/// A number that no other thread has.
fn myself() -> usize {
    LAST.try_with(|last| ptr::from_ref(last).addr())
        .unwrap_or(1)
}

/// Changes what is known of the calling thread, and says what was known before.
fn change(of: impl Fn(&mut Last) -> &mut bool, now: bool) -> bool {
    let exchange = |last: &Cell<Last>| {
        let mut known = last.get();
        let before = std::mem::replace(of(&mut known), now);
        last.set(known);
        before
    };
    // Of a thread that is being torn down nothing is known.
    LAST.try_with(exchange).unwrap_or(now)
}

/// In the child of a fork: nobody sleeps, nobody looks.
pub(crate) fn begin_anew() {
    change(|last| &mut last.is_asleep, false);
    change(|last| &mut last.sleeps, false);
    ASLEEP.store(0, Ordering::SeqCst);
    LENT.store(false, Ordering::SeqCst);
    LOOKER.store(0, Ordering::SeqCst);
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

/// Serves until something has come that is waited for, or for as long as it can.
fn serve<A, S>(begun: Instant, waiting: &mut Waiting<'_, A, S>) -> Served
where
    A: FnMut() -> c_int,
{
    let Ok(last) = LAST.try_with(Cell::get) else {
        return Served::Not;
    };
    if ASLEEP.load(Ordering::SeqCst) > 0 || relay::has_any() || waiting.fds.len() > FDS_MAX {
        return Served::Not;
    }
    if has_one_more(&SKIPS) {
        return Served::Not;
    }
    let Some(switch) = switch::made() else {
        return Served::Not;
    };
    let is_fresh = |at: Instant| begun.saturating_duration_since(at) < FRESH;
    if last.look.is_some_and(is_fresh) && LENT.load(Ordering::Relaxed) {
        let ready = (waiting.ask)();
        if ready != 0 {
            return Served::Done(ready);
        }
    }
    if !begin_to_look() {
        return Served::Not;
    }
    let before = threads::block_signals();
    LENT.store(true, Ordering::SeqCst);
    let spins = last.wait < WORTH && tries() && has_room();
    let mut ready = look(switch, begun, spins, &mut waiting.ask);
    if ready == Some(0) {
        ready = sleep_in_place(begun, waiting, &before);
    }
    let why = errno::get();
    leave_off();
    let Some(ready) = ready else {
        return Served::Until(before);
    };
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

/// Looks until something has come, or for no longer than it is worth. `None`: looking is no use.
fn look(
    switch: &Switch,
    begun: Instant,
    spins: bool,
    ask: &mut impl FnMut() -> c_int,
) -> Option<c_int> {
    loop {
        let has_looked = serve_all(switch);
        let ready = ask();
        let is_over = begun.elapsed() >= LOOKS_FOR || ASLEEP.load(Ordering::SeqCst) > 0;
        if ready != 0 || !spins || !has_looked || is_over {
            if spins {
                count(ready != 0);
            }
            if !has_looked {
                SKIPS.store(SKIPS_MAX, Ordering::Relaxed);
            }
            return (ready != 0 || has_looked).then_some(ready);
        }
    }
}

/// Sleeps in the place of the stack's threads until something has come or the time is over. `None`:
/// it cannot go on so, and others may look.
///
/// Nothing is to be dropped here: a cancellation may leave the sleep.
fn sleep_in_place<A, S>(
    begun: Instant,
    waiting: &mut Waiting<'_, A, S>,
    before: &sigset_t,
) -> Option<c_int>
where
    A: FnMut() -> c_int,
{
    let nothing = pollfd {
        fd: -1,
        events: 0,
        revents: 0,
    };
    let mut set = [nothing; FDS_MAX + STACKS_MAX];
    let own = waiting.fds.len();
    let mask = if waiting.mask.is_null() {
        ptr::from_ref(before)
    } else {
        waiting.mask
    };
    loop {
        set[..own].copy_from_slice(waiting.fds);
        let limit = waiting.limit;
        let left = || limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let count = begin_external_sleep(&mut set[own..], left().unwrap_or(Duration::MAX))?;
        let left = left();
        let mut is_interrupted = false;
        if count > 0 {
            let limit = left.map(waits::spec);
            let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
            let count = (own + count) as nfds_t;
            // SAFETY: a set of our own, of which so much is filled, a time of ours or none, and a
            // mask of ours or the caller's.
            let ready = unsafe { real::ppoll(set.as_mut_ptr(), count, limit, mask) };
            is_interrupted = ready < 0 && errno::get() == libc::EINTR;
            let has_failed = ready < 0 && !is_interrupted;
            // A handler that waited itself has got us up, and others may look since.
            let slept = end_external_sleep();
            if !slept && is_interrupted {
                errno::set(libc::EINTR);
                return Some(-1);
            }
            if !slept || has_failed {
                return None;
            }
        }
        let ready = (waiting.ask)();
        if ready != 0 {
            return Some(ready);
        }
        if is_interrupted {
            errno::set(libc::EINTR);
            return Some(-1);
        }
        if left.is_some_and(|left| left.is_zero()) {
            return Some(0);
        }
    }
}

/// Has the stack's threads leave everything to the calling one, which is about to sleep, and says
/// on how much; on nothing where something has come. `None`: they do not, or others are asleep.
// By itself, as what follows: what is dropped is dropped here.
#[inline(never)]
fn begin_external_sleep(fds: &mut [pollfd], left: Duration) -> Option<usize> {
    if ASLEEP.load(Ordering::SeqCst) > 0 {
        return None;
    }
    let switch = switch::made()?;
    change(|last| &mut last.sleeps, true);
    let _inside = guard::enter();
    let mut count = None;
    let begin_external_sleep = || {
        switch.registry().for_each(|protocol| {
            if count.is_none() {
                count = protocol.begin_sleep(fds, left);
            }
        });
    };
    let sleeps =
        catch_unwind(AssertUnwindSafe(begin_external_sleep)).is_ok() && matches!(count, Some(1..));
    if !sleeps {
        end_external_sleep();
    }
    count
}

/// The calling thread has woken, if it slept. `false`: it did not.
#[inline(never)]
fn end_external_sleep() -> bool {
    let slept = change(|last| &mut last.sleeps, false);
    if slept && let Some(switch) = switch::made() {
        let _inside = guard::enter();
        let end_all = || switch.registry().for_each(|protocol| protocol.end_sleep());
        // What is left of it the next one finds.
        let _ = catch_unwind(AssertUnwindSafe(end_all));
    }
    slept
}

/// One look, where the threads aside may believe that we do look.
fn look_once(ask: &mut impl FnMut() -> c_int) -> c_int {
    let Some(switch) = switch::made() else {
        return 0;
    };
    if !begin_to_look() {
        return 0;
    }
    let before = threads::block_signals();
    serve_all(switch);
    let ready = ask();
    leave_off();
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

/// Whether this wait looks for longer, after those that did so in vain.
fn tries() -> bool {
    !has_one_more(&PAUSE)
}

/// Counts down to 0. A count that two threads lose does not matter.
fn has_one_more(waits: &AtomicU32) -> bool {
    let left = waits.load(Ordering::Relaxed);
    if left > 0 {
        waits.store(left - 1, Ordering::Relaxed);
    }
    left > 0
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
