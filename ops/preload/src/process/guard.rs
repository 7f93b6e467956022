//! Distinguishes the calls of the program from those of the stack that serves it.
//!
//! The DAT stack is in the same process and opens sockets too, which must stay on TCP. The calls of
//! a thread between [`enter`] and the drop of the guard are the stack's, and so is every thread
//! that is started meanwhile.
//!
//! The thread is not cancelled while the guard exists: it holds locks, and its frames must not be
//! unwound.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// True if the thread could be cancelled before it began to work for the stack.
    static WAS_CANCELLABLE: Cell<bool> = const { Cell::new(false) };
}

/// A guard: the calling thread works for the stack while it exists.
#[derive(Debug)]
pub(crate) struct Inside {
    /// The former cancellation state of the C library.
    before: c_int,
    // The depth belongs to the thread, so the guard must not be sent to another one.
    _of_this_thread: PhantomData<*const ()>,
}

/// Marks the thread's calls as the stack's until the guard is dropped.
pub(crate) fn enter() -> Inside {
    // A thread that is being torn down has no depth any more; its further calls are native.
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

/// A guard that disables cancellation of the thread, for calls of the program.
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

/// Ends the thread if it was cancelled. The frames of the callers must have nothing to drop.
pub(crate) fn test_cancel() {
    // SAFETY: callers have nothing to drop, and the program's frames may be unwound at such a call.
    unsafe { pthread_testcancel() }
}

/// `PTHREAD_CANCEL_DISABLE`.
const DISABLE: c_int = 1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// Sets the cancellation state and returns the former one. Makes no system call.
fn set_cancellation(state: c_int) -> c_int {
    let mut before = state;
    // SAFETY: the state is valid for the C library, and the pointer is to a local variable.
    unsafe { pthread_setcancelstate(state, &raw mut before) };
    before
}
