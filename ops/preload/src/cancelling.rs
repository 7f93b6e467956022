//! Threads that are cancelled while they sleep in a call on an offloaded connection.
//!
//! What sleeps for us holds references, so nobody is unwound out of there: the C library is told
//! not to, and then wakes nobody either. The hook of `pthread_cancel` notes the thread and wakes
//! all that sleep. The one that is meant leaves its call with [`CANCELLED`], and ends where nothing
//! is to be dropped any more. A call that has moved bytes tells how many; the next one ends the
//! thread.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::pthread_t;
use rustix::io::Errno;

use crate::table::{self, Entry};
use crate::{guard, real, restarting};

/// A call is to end for that. No program ever sees it.
pub(crate) const CANCELLED: Errno = Errno::CANCELED;

/// So many threads may be cancelled before the first of them has run.
const THREADS_MAX: usize = 4096;

/// The last threads that were cancelled, one behind the other. Words alone, so that handlers may
/// look too, and children of a fork find no lock.
static THREADS: [AtomicUsize; THREADS_MAX] = [const { AtomicUsize::new(0) }; THREADS_MAX];
/// How many there were.
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// How many there were when the thread's call began. One of those had this thread's name before
    /// it, or was tested for then.
    static BEFORE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Hook of `pthread_cancel`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the caller's thread.
    let error = unsafe { real::pthread_cancel(thread) };
    if error == 0 && (table::has_connections() || table::has_listeners()) {
        wake(thread);
    }
    error
}

fn wake(thread: pthread_t) {
    let place = COUNT.fetch_add(1, Ordering::SeqCst) % THREADS_MAX;
    THREADS[place].store(thread as usize, Ordering::SeqCst);
    // Whoever is about to sleep finds the word above, or a wake-up that came before the sleep.
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        if let Some(Entry::Socket(socket)) = table::entry(fd) {
            socket.observer().wait_queue().wake();
        }
    }
    restarting::wake_all();
}

/// A call begins that may sleep: the thread ends here if it was cancelled before. Nothing is to be
/// dropped by those who call this.
pub(crate) fn begin_call() {
    let _ = BEFORE.try_with(|before| before.set(COUNT.load(Ordering::SeqCst)));
    guard::test_cancel();
}

/// Whether the calling thread has been cancelled since its call began, and is to leave it.
pub(crate) fn is_asked() -> bool {
    let count = COUNT.load(Ordering::SeqCst);
    let before = BEFORE.try_with(Cell::get).unwrap_or(count);
    if before >= count || !guard::was_cancellable() {
        return false;
    }
    // SAFETY: it takes nothing. A thread's own is never 0.
    let me = unsafe { libc::pthread_self() } as usize;
    let first = before.max(count.saturating_sub(THREADS_MAX));
    (first..count).any(|it| THREADS[it % THREADS_MAX].load(Ordering::SeqCst) == me)
}
