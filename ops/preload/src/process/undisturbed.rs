//! Work of the stack that no signal handler of the program interrupts.
//!
//! A handler may call this library, or leave by `siglongjmp` and never return: iperf3 has one.
//! Locks that the thread held, the allocator's among them, then stay held, and the next thread that
//! needs them waits for ever, at the end of the process at the latest. So work that takes long and
//! is done rarely (beginning to listen, accepting, closing) runs with signals blocked; the handlers
//! run after it. Blocking costs two system calls, which is little compared with the calls of such
//! work, but too much for calls that send or receive. A close that lingers waits with signals
//! unblocked, because a signal ends that wait.

use std::marker::PhantomData;

use libc::sigset_t;

/// A guard that blocks the program's signals in the calling thread.
pub(crate) struct Undisturbed {
    before: sigset_t,
    // The signal mask belongs to the thread, so the guard must not be sent to another one.
    _of_this_thread: PhantomData<*const ()>,
}

impl Undisturbed {
    pub(crate) fn begin() -> Self {
        Self {
            before: host::threads::block_signals(),
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        host::threads::restore_signals(&self.before);
    }
}
