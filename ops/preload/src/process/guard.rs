//! Distinguishes the program's calls from the calls of the offload stack.
//!
//! The DAT stack runs in the same process and opens sockets too, which must stay on TCP. The calls
//! of a thread between [`enter`] and the drop of the guard belong to the stack, and so do the
//! threads that it starts meanwhile.
//!
//! The thread cannot be cancelled while the guard exists, because it may hold locks and its frames
//! must not be unwound.

use std::cell::Cell;
use std::ffi::c_int;
use std::marker::PhantomData;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// True if the thread could be cancelled before it entered the stack.
    static WAS_CANCELLABLE: Cell<bool> = const { Cell::new(false) };
}

/// A guard: while it exists, the calling thread works for the stack.
#[derive(Debug)]
pub(crate) struct Inside {
    /// The former cancellation state of the C library.
    before: c_int,
    // The depth belongs to the thread, so the guard must not be sent to another one.
    _of_this_thread: PhantomData<*const ()>,
}

/// Marks the thread's calls as calls of the stack until the guard is dropped.
pub(crate) fn enter() -> Inside {
    // In a thread that is ending, `DEPTH` is destroyed, and `is_inside` returns true.
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

/// Returns true if the thread works for the stack.
pub(crate) fn is_inside() -> bool {
    DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(true)
}

/// A guard: while it exists, the calling thread works for the program, because it sleeps.
#[derive(Debug)]
pub(crate) struct Asleep {
    depth: u32,
    _of_this_thread: PhantomData<*const ()>,
}

/// Marks the thread's calls as calls of the program until the guard is dropped. A thread sleeps
/// with this guard: a handler that interrupts the sleep belongs to the program, and may leave the
/// call by `siglongjmp`, which drops no guard.
pub(crate) fn fall_asleep() -> Asleep {
    Asleep {
        depth: DEPTH.try_with(Cell::take).unwrap_or(0),
        _of_this_thread: PhantomData,
    }
}

impl Drop for Asleep {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(self.depth));
    }
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

/// Returns true if the thread could be cancelled before it entered the stack.
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
    // SAFETY: the frames of the callers have nothing to drop, and the C library may unwind the
    // program's frames at a cancellation point.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_is_not_inside() {
        let inside = enter();
        let nested = enter();
        let asleep = fall_asleep();
        assert!(!is_inside(), "a handler runs for the program");
        {
            let _of_handler = enter();
            assert!(is_inside());
        }
        assert!(!is_inside());
        drop(asleep);
        assert!(is_inside());
        drop(nested);
        assert!(is_inside());
        drop(inside);
        assert!(!is_inside());
    }

    #[test]
    fn a_handler_may_leave_a_call_for_ever() {
        let left = (enter(), fall_asleep());
        // `siglongjmp` drops nothing.
        std::mem::forget(left);
        assert!(!is_inside());
        let cancellable = 0;
        set_cancellation(cancellable);
    }
}
