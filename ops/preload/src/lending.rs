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
//! be cancelled in it: then what the sleep has left in the stack is ended by the thread's next wait
//! or its end, or by whoever sleeps next.
//!
//! Signals are blocked from before the first look until the wait ends, and wherever else a wait has
//! the stack do something: handlers may call us, and the stack's locks may be held. The kernel
//! opens them for as long as it sleeps, as in a wait that was not preceded by looks. A handler may
//! wait as well, anywhere outside, so what is known of a thread is changed in single steps.
//!
//! Nobody serves where another thread of the program sleeps, which would not be shown what arrives
//! behind our wait, nor where connections are shared with other processes: those are fed by the
//! event thread. A thread that is about to sleep says so and then looks whether anybody serves; one
//! that has served says so and then looks whether anybody sleeps: one of the two sees the other.
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
use ops::{OffloadProtocol, Switch};

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
const SKIPPED_WAITS_MAX: u32 = 64;
/// Descriptors of a wait that are slept on in the place of the stack's threads.
const FDS_MAX: usize = 44;
/// Those of the stack.
const STACKS_MAX: usize = 20;
/// So many waits do not look after one that could not sleep in the stack's place: making its thread
/// leave and come back is two wake-ups.
const SKIPPED_WAITS_AWAKE: u32 = 16;
/// So many calls that do not wait are made in vain while another thread is said to look, which may
/// have left its sleep for good.
const EMPTY_POLLS_MAX: u32 = 64;
/// After so many failures in a row the pauses grow no more: 16 waits.
const FAILED_TRIES_MAX: u32 = 4;

/// The thread that looks, or 0.
static POLLING_THREAD: AtomicUsize = AtomicUsize::new(0);
/// Threads aside may have been told that we look.
static PROGRESS_ON_CALLER: AtomicBool = AtomicBool::new(false);
/// Threads of the program that sleep until somebody shows them something.
static ASLEEP: AtomicU32 = AtomicU32::new(0);
/// Failures in a row, and waits that sleep at once before the next try.
static FAILED_TRIES: AtomicU32 = AtomicU32::new(0);
static BACKOFF: AtomicU32 = AtomicU32::new(0);
/// Waits that do not look, because looking was no use.
static SKIPPED_WAITS: AtomicU32 = AtomicU32::new(0);
/// Calls that do not wait since somebody has looked.
static EMPTY_POLLS: AtomicU32 = AtomicU32::new(0);
/// Whether a thread that looks leaves a processor to those who answer; -1: not known yet.
static HAS_ROOM: AtomicI8 = AtomicI8::new(-1);

thread_local! {
    /// Nothing of it is dropped, so it is there as long as the thread.
    static MINE: Mine = const { Mine::new() };
    static END: End = const { End };
}

/// What is known of a thread.
struct Mine {
    /// When it looked last, and how long its last wait was.
    look: Cell<Option<Instant>>,
    wait: Cell<Duration>,
    /// A wait of it is counted among those that sleep.
    is_asleep: AtomicBool,
    /// Calls of the stack's in which it sleeps, one within a handler in another; counted as one.
    parked: AtomicU32,
    /// It sleeps in the place of the stack's threads, or has not come back from there.
    sleeps: AtomicBool,
}

impl Mine {
    const fn new() -> Self {
        Self {
            look: Cell::new(None),
            wait: Cell::new(Duration::MAX),
            is_asleep: AtomicBool::new(false),
            parked: AtomicU32::new(0),
            sleeps: AtomicBool::new(false),
        }
    }
}

/// Is dropped when the thread ends, be it that it was cancelled in a wait.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        let looks = sleeps() || POLLING_THREAD.load(Ordering::SeqCst) == myself();
        come_back();
        if MINE.with(|mine| mine.parked.swap(0, Ordering::SeqCst)) > 0 {
            ASLEEP.fetch_sub(1, Ordering::SeqCst);
        }
        if looks {
            leave_to_threads();
        }
    }
}

/// Whether the thread is being torn down. It is not counted any more, and does not serve.
fn has_ended() -> bool {
    END.try_with(|_| ()).is_err()
}

/// What a program's wait is.
pub(crate) struct Waiting<A, S> {
    /// How long it may last; `None`: for ever.
    pub(crate) limit: Option<Duration>,
    /// The signal mask that it brings along, or null.
    pub(crate) mask: *const sigset_t,
    /// The descriptors that a `ppoll` can sleep on in its place, and how many these are. They are
    /// the program's, and not read before the kernel has accepted them in a call.
    pub(crate) fds: (*const pollfd, usize),
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
pub(crate) fn wait<A, S>(mut waiting: Waiting<A, S>) -> c_int
where
    A: FnMut() -> c_int,
    S: FnOnce(*const sigset_t, Duration) -> c_int,
{
    let mask = waiting.mask;
    if guard::is_inside() || has_ended() {
        return (waiting.sleep)(mask, Duration::ZERO);
    }
    // These calls are cancellation points, also when something is ready at once and nobody sleeps.
    guard::test_cancel();
    if waiting.limit == Some(Duration::ZERO) {
        if sleeps() || MINE.with(|mine| mine.is_asleep.load(Ordering::Relaxed)) {
            come_back();
        }
        let ready = (waiting.sleep)(mask, Duration::ZERO);
        return match ready {
            0 if PROGRESS_ON_CALLER.load(Ordering::Relaxed) => look_once(&mut waiting.ask),
            _ => ready,
        };
    }
    come_back();
    let begun = Instant::now();
    let (before, spent) = match serve(begun, &mut waiting) {
        Served::Done(ready) => return ready,
        Served::Until(before) => (begin_sleep(Some(before)), begun.elapsed()),
        Served::Not => (begin_sleep(None), Duration::ZERO),
    };
    let mask = match &before {
        Some(before) if mask.is_null() => ptr::from_ref(before),
        _ => mask,
    };
    let result = (waiting.sleep)(mask, spent);
    end_sleep();
    MINE.with(|mine| mine.wait.set(begun.elapsed()));
    if let Some(before) = before {
        open_signals(&before);
    }
    result
}

/// The calling thread is about to sleep in a wait. Says which signals were open before, if they are
/// blocked: given are those that have been blocked already.
fn begin_sleep(before: Option<sigset_t>) -> Option<sigset_t> {
    // Counted before it is known to be, and not afterwards: a handler that waits takes back what is
    // known.
    ASLEEP.fetch_add(1, Ordering::SeqCst);
    if MINE.with(|mine| mine.is_asleep.swap(true, Ordering::SeqCst)) {
        ASLEEP.fetch_sub(1, Ordering::SeqCst);
    }
    if !PROGRESS_ON_CALLER.load(Ordering::SeqCst) {
        return before;
    }
    let before = before.unwrap_or_else(host::threads::block_signals);
    hand_back();
    Some(before)
}

/// It has woken, or never will.
fn end_sleep() {
    if MINE.with(|mine| mine.is_asleep.swap(false, Ordering::SeqCst)) {
        ASLEEP.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The calling thread sleeps within a call of the stack's until this is dropped.
pub(crate) struct Asleep(());

/// A thread of the program is about to sleep until it is shown something, or told, in a call that
/// is not cancelled.
pub(crate) fn asleep() -> Option<Asleep> {
    if has_ended() {
        return None;
    }
    come_back();
    if MINE.with(|mine| mine.parked.fetch_add(1, Ordering::SeqCst)) == 0 {
        ASLEEP.fetch_add(1, Ordering::SeqCst);
    }
    leave_to_threads();
    Some(Asleep(()))
}

impl Drop for Asleep {
    fn drop(&mut self) {
        if MINE.with(|mine| mine.parked.fetch_sub(1, Ordering::SeqCst)) == 1 {
            ASLEEP.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// The calling thread begins to wait. A handler has left its last sleep for good, or calls us in
/// the midst of it; in both cases nothing of that sleep is to be left.
fn come_back() {
    end_sleep();
    if sleeps() {
        let before = host::threads::block_signals();
        end_external_sleep();
        open_signals(&before);
    }
    leave_off();
}

/// Whether the calling thread sleeps in the stack's place, or has not come back from there.
fn sleeps() -> bool {
    MINE.with(|mine| mine.sleeps.load(Ordering::Relaxed))
}

/// The calling thread is the one that looks. `false`: another one does.
fn begin_to_look() -> bool {
    let change = POLLING_THREAD.compare_exchange(0, myself(), Ordering::SeqCst, Ordering::SeqCst);
    change.is_ok()
}

/// The calling thread looks no more, if it did.
fn leave_off() {
    let me = myself();
    let _ = POLLING_THREAD.compare_exchange(me, 0, Ordering::SeqCst, Ordering::SeqCst);
}

/// A number that no other thread has.
fn myself() -> usize {
    MINE.with(|mine| ptr::from_ref(mine).addr())
}

/// In the child of a fork: nobody sleeps but the calling thread, if a handler of it forks; nobody
/// looks.
pub(crate) fn begin_anew() {
    let is_parked = MINE.with(|mine| {
        mine.is_asleep.store(false, Ordering::SeqCst);
        mine.sleeps.store(false, Ordering::SeqCst);
        mine.parked.load(Ordering::SeqCst) > 0
    });
    ASLEEP.store(is_parked.into(), Ordering::SeqCst);
    PROGRESS_ON_CALLER.store(false, Ordering::SeqCst);
    POLLING_THREAD.store(0, Ordering::SeqCst);
}

/// Opens the signals that were open before; the error of a call that is over stays.
fn open_signals(before: &sigset_t) {
    let why = errno::get();
    host::threads::restore_signals(before);
    errno::set(why);
}

/// The stack's own threads serve from now on.
pub(crate) fn leave_to_threads() {
    if PROGRESS_ON_CALLER.load(Ordering::SeqCst) {
        let before = host::threads::block_signals();
        hand_back();
        open_signals(&before);
    }
}

/// The same with signals blocked.
#[inline(never)]
fn hand_back() {
    if PROGRESS_ON_CALLER.swap(false, Ordering::SeqCst)
        && let Some(switch) = switch::made()
    {
        for_each_protocol(switch, |protocol| protocol.leave_to_threads());
    }
}

/// Has the stack do something, with signals blocked. `false`: it has panicked, and what is left of
/// it the next one finds.
#[inline(never)]
fn for_each_protocol(switch: &Switch, mut work: impl FnMut(&dyn OffloadProtocol)) -> bool {
    let _inside = guard::enter();
    let work = || switch.registry().for_each(|protocol| work(protocol));
    catch_unwind(AssertUnwindSafe(work)).is_ok()
}

/// Serves until something has come that is waited for, or for as long as it can.
fn serve<A, S>(begun: Instant, waiting: &mut Waiting<A, S>) -> Served
where
    A: FnMut() -> c_int,
{
    let is_asleep = || ASLEEP.load(Ordering::SeqCst) > 0;
    if is_asleep() || relay::has_any() || waiting.fds.1 > FDS_MAX || has_one_more(&SKIPPED_WAITS) {
        return Served::Not;
    }
    let Some(switch) = switch::made() else {
        return Served::Not;
    };
    let is_fresh = |at: Instant| begun.saturating_duration_since(at) < FRESH;
    if MINE.with(|mine| mine.look.get()).is_some_and(is_fresh)
        && PROGRESS_ON_CALLER.load(Ordering::Relaxed)
    {
        let ready = (waiting.ask)();
        if ready != 0 {
            return Served::Done(ready);
        }
    }
    if !begin_to_look() {
        return Served::Not;
    }
    let before = host::threads::block_signals();
    if POLLING_THREAD.load(Ordering::SeqCst) != myself() {
        // A handler has waited in between.
        return Served::Until(before);
    }
    let ready = look_and_sleep(switch, begun, waiting, &before);
    let why = errno::get();
    leave_off();
    let Some(ready) = ready else {
        return Served::Until(before);
    };
    if is_asleep() {
        hand_back();
    }
    let now = Instant::now();
    MINE.with(|mine| {
        mine.look.set(Some(now));
        mine.wait.set(now - begun);
    });
    host::threads::restore_signals(&before);
    errno::set(why);
    Served::Done(ready)
}

/// Looks, and sleeps when nothing has come. `None`: it cannot go on so.
fn look_and_sleep<A, S>(
    switch: &Switch,
    begun: Instant,
    waiting: &mut Waiting<A, S>,
    before: &sigset_t,
) -> Option<c_int>
where
    A: FnMut() -> c_int,
{
    let is_short = MINE.with(|mine| mine.wait.get()) < WORTH;
    let spins = is_short && tries() && has_room();
    match look(switch, begun, spins, &mut waiting.ask) {
        Some(0) => sleep_in_place(begun, waiting, before),
        ready => ready,
    }
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
                SKIPPED_WAITS.store(SKIPPED_WAITS_MAX, Ordering::Relaxed);
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
    waiting: &mut Waiting<A, S>,
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
    let (fds, own) = waiting.fds;
    let limit = waiting.limit;
    let left = || limit.map(|limit| limit.saturating_sub(begun.elapsed()));
    let mask = if waiting.mask.is_null() {
        ptr::from_ref(before)
    } else {
        waiting.mask
    };
    loop {
        for (at, entry) in set[..own].iter_mut().enumerate() {
            // SAFETY: the kernel has read so many there when it was asked, wherever it is.
            *entry = unsafe { fds.add(at).read_unaligned() };
        }
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

/// Has the stack's threads leave everything to the calling one, which is about to sleep for no
/// longer than `left`, and says on how many descriptors besides its own: 0 if something has come
/// about. `None`: they do not leave it.
// By itself, as what else has the stack do something: what is dropped is dropped there.
#[inline(never)]
fn begin_external_sleep(fds: &mut [pollfd], left: Duration) -> Option<usize> {
    if ASLEEP.load(Ordering::SeqCst) > 0 {
        return None;
    }
    let switch = switch::made()?;
    MINE.with(|mine| mine.sleeps.store(true, Ordering::SeqCst));
    let mut count = None;
    let is_whole = for_each_protocol(switch, |protocol| {
        if count.is_none() {
            count = protocol.begin_sleep(fds, left);
        }
    });
    if !is_whole || !matches!(count, Some(1..)) {
        end_external_sleep();
    }
    if count.is_none() {
        SKIPPED_WAITS.store(SKIPPED_WAITS_AWAKE, Ordering::Relaxed);
    }
    count
}

/// The calling thread has woken, if it slept. `false`: it did not. Signals are blocked.
#[inline(never)]
fn end_external_sleep() -> bool {
    let slept = MINE.with(|mine| mine.sleeps.swap(false, Ordering::SeqCst));
    if slept && let Some(switch) = switch::made() {
        for_each_protocol(switch, |protocol| protocol.end_sleep());
    }
    slept
}

/// One look, where the threads aside may believe that we do look.
fn look_once(ask: &mut impl FnMut() -> c_int) -> c_int {
    let Some(switch) = switch::made() else {
        return 0;
    };
    if !begin_to_look() {
        if EMPTY_POLLS.fetch_add(1, Ordering::Relaxed) >= EMPTY_POLLS_MAX {
            EMPTY_POLLS.store(0, Ordering::Relaxed);
            leave_to_threads();
        }
        return 0;
    }
    let before = host::threads::block_signals();
    serve_all(switch);
    let ready = ask();
    leave_off();
    open_signals(&before);
    ready
}

/// Serves all protocols once. `false`: that is not to be repeated.
fn serve_all(switch: &Switch) -> bool {
    let mut has_looked = false;
    let is_whole = for_each_protocol(switch, |protocol| {
        has_looked |= protocol.serve_here().is_some();
    });
    EMPTY_POLLS.store(0, Ordering::Relaxed);
    // The threads are told by each look. Who began to sleep before this is said did not hear of it.
    PROGRESS_ON_CALLER.store(true, Ordering::SeqCst);
    if ASLEEP.load(Ordering::SeqCst) > 0 {
        hand_back();
    }
    is_whole && has_looked
}

/// Whether this wait looks for longer, after those that did so in vain.
fn tries() -> bool {
    !has_one_more(&BACKOFF)
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
        FAILED_TRIES.store(0, Ordering::Relaxed);
        return;
    }
    let failed = (FAILED_TRIES.load(Ordering::Relaxed) + 1).min(FAILED_TRIES_MAX);
    FAILED_TRIES.store(failed, Ordering::Relaxed);
    BACKOFF.store(1 << failed, Ordering::Relaxed);
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
