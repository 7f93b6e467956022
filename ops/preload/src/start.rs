//! Threads of the stack know that they are, from their first instruction.

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::{guard, real};

/// What a thread begins with.
pub(crate) type StartRoutine = extern "C" fn(*mut c_void) -> *mut c_void;

struct Start {
    routine: StartRoutine,
    argument: *mut c_void,
}

/// Hook of `pthread_create`: what the stack starts is the stack's.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: StartRoutine,
    argument: *mut c_void,
) -> c_int {
    if !guard::is_inside() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::pthread_create(thread, attributes, routine, argument) };
    }
    let start = Box::into_raw(Box::new(Start { routine, argument })).cast();
    // SAFETY: the caller's thread and attributes; `inside` takes what it is given here.
    let error = unsafe { real::pthread_create(thread, attributes, inside, start) };
    if error != 0 {
        // SAFETY: no thread was started, so the box is still ours.
        drop(unsafe { Box::from_raw(start.cast::<Start>()) });
    }
    error
}

extern "C" fn inside(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` above made this box for this one call.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // Never dropped: the thread is the stack's to its end, destructors of its locals included.
    std::mem::forget(guard::enter());
    (start.routine)(start.argument)
}
