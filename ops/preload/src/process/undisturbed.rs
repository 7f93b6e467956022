//! Work of the stack that no signal handler of the program interrupts.
//!
//! A handler may call this library, or leave by `siglongjmp` and never come back: iperf3 has one.
//! Locks that the thread held stay held then, the allocator's among them, and the next thread that
//! needs them waits for ever, at the end of the process at the latest. Work that takes long and is
//! done rarely (beginning to listen, accepting, closing) is therefore done with signals blocked;
//! the handlers run after it. Blocking is two system calls, where each of these calls makes many
//! more. For calls that send or receive it would cost too much. A close that lingers waits with
//! signals open, because a signal ends that wait.

use std::marker::PhantomData;

use libc::sigset_t;

/// Signals of the program wait while this lives.
pub(crate) struct Undisturbed {
    before: sigset_t,
    // The mask is the thread's, so this stays with it.
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
