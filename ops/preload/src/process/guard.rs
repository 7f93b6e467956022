//! Distinguishes the calls of the program from those of the stack that serves it.
//!
//! The DAT stack is in the same process and opens sockets too; those must stay on TCP. The calls of
//! a thread between [`enter`] and the drop of the guard are the stack's, and so is every thread
//! that is started meanwhile.
//!
//! The thread is not cancelled meanwhile: it holds locks, and its frames must not be unwound.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// True if the thread could be cancelled before it began to work for the stack.
    static WAS_CANCELLABLE: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread works for the stack while this lives.
#[derive(Debug)]
pub(crate) struct Inside {
    /// The cancellation state from before, as the C library has it.
    before: c_int,
    // The depth is the thread's, so this stays with it.
    _of_this_thread: PhantomData<*const ()>,
}

/// From here on the thread's calls are the stack's.
pub(crate) fn enter() -> Inside {
    // A thread that is being torn down has no depth any more; what it still calls is native.
    let before = set_cancellation(DISABLE);
    let outermost = DEPTH.try_with(|depth| depth.replace(depth.get() + 1) == 0);
    if outermost == Ok(true) {
        let _ = WAS_CANCELLABLE.try_with(|was| was.set(before != DISABLE));
    }
    Inside {
        before,
        _of_this_thread: PhantomData,
    }
}

/// Returns true if the thread's calls are the stack's.
pub(crate) fn is_inside() -> bool {
    DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(true)
}

/// The thread is not cancelled while this lives, in calls of the program's.
pub(crate) struct Uncancelled {
    before: c_int,
    _of_this_thread: PhantomData<*const ()>,
}

impl Uncancelled {
    pub(crate) fn begin() -> Self {
        Self {
            before: set_cancellation(DISABLE),
            _of_this_thread: PhantomData,
        }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        set_cancellation(self.before);
    }
}

/// Returns true if the thread, which works for the stack, could be cancelled before.
pub(crate) fn was_cancellable() -> bool {
    WAS_CANCELLABLE.try_with(Cell::get).unwrap_or(false)
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
        set_cancellation(self.before);
    }
}

/// The thread ends here if it was cancelled. The frames of the callers must have nothing to drop.
pub(crate) fn test_cancel() {
    // SAFETY: the caller's frames, and those of the program, may be unwound.
    unsafe { pthread_testcancel() }
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// No system call. Says what was set before.
fn set_cancellation(state: c_int) -> c_int {
    let mut before = state;
    // SAFETY: a state that the C library knows, and a place of this frame for the former one.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}
