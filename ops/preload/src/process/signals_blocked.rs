//! A guard that blocks signals, for work that a signal handler must not interrupt.
//!
//! A handler may call this library, or end by `siglongjmp` and never return (iperf3 has one). Locks
//! that the interrupted thread held, such as the allocator's, then stay held, and the next thread
//! that needs them waits for ever. So rare and long work (listening, accepting, closing) runs with
//! signals blocked, and the handlers run after it. Blocking costs two system calls, which is little
//! for such work but too much for calls that send or receive. A close that lingers waits with
//! signals unblocked, because a signal ends that wait.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, sigset_t};

use crate::process;

/// True once the program has created a thread.
static HAS_THREADS: AtomicBool = AtomicBool::new(false);

/// Called before the program creates a thread.
pub(crate) fn on_new_thread() {
    HAS_THREADS.store(true, Ordering::Relaxed);
}

/// A guard that blocks the program's signals in the calling thread.
pub(crate) struct SignalsBlocked {
    before: sigset_t,
    // The signal mask belongs to the thread, so the guard must not be sent to another one.
    _of_this_thread: PhantomData<*const ()>,
}

impl SignalsBlocked {
    pub(crate) fn begin() -> Self {
        Self {
            before: host::threads::block_signals(),
            _of_this_thread: PhantomData,
        }
    }

    /// Blocks the signals in a thread that polls. `None` in the first thread of a process with
    /// other threads: the kernel gives a signal of the process to the first thread unless that
    /// thread blocks it, and programs rely on that. CPython runs handlers in the first thread only.
    pub(crate) fn begin_polling() -> Option<Self> {
        let has_threads = HAS_THREADS.load(Ordering::Relaxed);
        let is_first = || rustix::thread::gettid().as_raw_pid() == process::id();
        (!has_threads || !is_first()).then(Self::begin)
    }

    /// Returns true if a handler runs at the end of the guard, and the kernel would end a sleep for
    /// it: any handler (`ends_by_any`), or one without `SA_RESTART`.
    pub(crate) fn will_interrupt(&self, ends_by_any: bool) -> bool {
        self.pending().any(|number| interrupts(number, ends_by_any))
    }

    /// Returns true if a signal is delivered at the end of the guard.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending().next().is_some()
    }

    /// Returns the signals that are delivered at the end of the guard.
    fn pending(&self) -> impl Iterator<Item = c_int> {
        let mut pending = MaybeUninit::uninit();
        // SAFETY: the call writes the set, and cannot fail with this argument.
        let pending: sigset_t = unsafe {
            libc::sigpending(pending.as_mut_ptr());
            pending.assume_init()
        };
        // SAFETY: both sets are valid.
        let is_in = |set: &sigset_t, number| unsafe { libc::sigismember(set, number) == 1 };
        let before = self.before;
        (1..=libc::SIGRTMAX())
            .filter(move |number| is_in(&pending, *number) && !is_in(&before, *number))
    }

    /// Runs `work`, which sleeps, with the former signal mask. A handler may leave it by
    /// `siglongjmp`.
    pub(crate) fn unblock_during<R>(&self, work: impl FnOnce() -> R) -> R {
        host::threads::restore_signals(&self.before);
        let done = work();
        let _ = host::threads::block_signals();
        done
    }
}

/// Returns true if the kernel ends a sleep for this signal: it has a handler, which any sleep ends
/// for (`ends_by_any`), or which was installed without `SA_RESTART`.
fn interrupts(number: c_int, ends_by_any: bool) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: the call only writes the present action.
    if unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call has written the action.
    let action = unsafe { action.assume_init() };
    let has_handler = !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN);
    has_handler && (ends_by_any || action.sa_flags & libc::SA_RESTART == 0)
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        host::threads::restore_signals(&self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn handler(_: c_int) {}

    /// Sets the action of a signal.
    fn set(number: c_int, handler: libc::sighandler_t, flags: c_int) {
        // SAFETY: an action of zeros is valid, and the handler is a function of this module.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            action.sa_flags = flags;
            assert_eq!(
                libc::sigaction(number, &raw const action, ptr::null_mut()),
                0
            );
        }
    }

    /// Returns true for each of two sleeps that a signal ends: one that any handler ends, and one
    /// that handlers with `SA_RESTART` do not end.
    fn interrupted(number: c_int) -> [bool; 2] {
        let blocked = SignalsBlocked::begin();
        // SAFETY: the thread sends the signal to itself.
        assert_eq!(unsafe { libc::raise(number) }, 0);
        [true, false].map(|ends_by_any| blocked.will_interrupt(ends_by_any))
    }

    #[test]
    fn a_signal_interrupts_as_its_action_says() {
        let with_handler = handler as extern "C" fn(c_int) as libc::sighandler_t;
        set(libc::SIGUSR1, with_handler, 0);
        assert_eq!(interrupted(libc::SIGUSR1), [true, true]);
        set(libc::SIGUSR1, with_handler, libc::SA_RESTART);
        assert_eq!(interrupted(libc::SIGUSR1), [true, false]);
        set(libc::SIGUSR1, libc::SIG_IGN, 0);
        assert_eq!(interrupted(libc::SIGUSR1), [false, false]);
        // The default action of this signal is to do nothing.
        assert_eq!(interrupted(libc::SIGURG), [false, false]);
        set(libc::SIGUSR1, with_handler, 0);
        let outer = SignalsBlocked::begin();
        assert_eq!(
            interrupted(libc::SIGUSR1),
            [false, false],
            "it was blocked before"
        );
        assert!(outer.will_interrupt(false) && outer.has_pending());
    }
}
