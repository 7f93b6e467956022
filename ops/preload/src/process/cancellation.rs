//! Threads that are cancelled while they sleep in a call on an offloaded connection.
//!
//! A thread that sleeps in this library holds references, so it must not be unwound there. The
//! library therefore disables cancellation in the C library, which then does not wake the thread
//! either. The hook of `pthread_cancel` records the thread and wakes all sleeping threads. The
//! cancelled thread returns from its sleep with [`CANCELLED`], and ends at a point where its frames
//! have nothing to drop. A call that has moved bytes returns their number; the next call ends the
//! thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::pthread_t;
use rustix::io::Errno;

use crate::process::guard;

/// The result of a call whose thread was cancelled. No program ever sees it.
pub(crate) const CANCELLED: Errno = Errno::CANCELED;

/// The number of threads that may be cancelled before the first of them has run.
const THREADS_MAX: usize = 4096;

/// The most recently cancelled threads, as a ring of atomic words. The ring has no lock, so signal
/// handlers may read it, and a fork cannot leave a lock held in the child.
static THREADS: [AtomicUsize; THREADS_MAX] = [const { AtomicUsize::new(0) }; THREADS_MAX];
/// The number of threads that were ever cancelled.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The value of [`COUNT`] when the thread's call began. Earlier entries of the ring belong to a
    /// former thread with the same id, or were already tested.
    static BEFORE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Records a cancelled thread. The caller must wake all sleeping threads afterwards; a thread that
/// is about to sleep then finds either the record or the wake-up.
pub(crate) fn record(thread: pthread_t) {
    let at = COUNT.fetch_add(1, Ordering::SeqCst) % THREADS_MAX;
    THREADS[at].store(thread as usize, Ordering::SeqCst);
}

/// Begins a call that may sleep. The thread ends here if it was cancelled before. The frames of the
/// callers must have nothing to drop.
pub(crate) fn begin_call() {
    let _ = BEFORE.try_with(|before| before.set(COUNT.load(Ordering::SeqCst)));
    guard::test_cancel();
}

/// Returns true if the calling thread was cancelled since its call began, and must return from the
/// call.
pub(crate) fn is_cancelled() -> bool {
    let count = COUNT.load(Ordering::SeqCst);
    let before = BEFORE.try_with(Cell::get).unwrap_or(count);
    if before >= count || !guard::was_cancellable() {
        return false;
    }
    // SAFETY: the call has no arguments. The id of a thread is never 0.
    let me = unsafe { libc::pthread_self() } as usize;
    let first = before.max(count.saturating_sub(THREADS_MAX));
    (first..count).any(|it| THREADS[it % THREADS_MAX].load(Ordering::SeqCst) == me)
}
