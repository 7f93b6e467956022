//! A guard that blocks signals, for work that a signal handler must not interrupt.
//!
//! A handler may call this library, or end by `siglongjmp` and never return (iperf3 has one). Locks
//! that the interrupted thread held, such as the allocator's, then stay held, and the next thread
//! that needs them waits for ever. So rare and long work (listening, accepting, closing) runs with
//! signals blocked, and the handlers run after it. Blocking costs two system calls, which is little
//! for such work but too much for calls that send or receive. A close that lingers waits with
//! signals unblocked, because a signal ends that wait.

use std::marker::PhantomData;

use libc::sigset_t;

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

    /// Runs `work`, which sleeps, with the former signal mask. A handler may leave it by
    /// `siglongjmp`.
    pub(crate) fn unblock_during<R>(&self, work: impl FnOnce() -> R) -> R {
        host::threads::restore_signals(&self.before);
        let done = work();
        let _ = host::threads::block_signals();
        done
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        host::threads::restore_signals(&self.before);
    }
}
