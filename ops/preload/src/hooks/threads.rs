//! Threads: `pthread_create`, `pthread_cancel`.
//!
//! A thread that the stack starts works for the stack from its first instruction on.

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::events::restarting;
use crate::process::real::{self, StartRoutine};
use crate::process::{cancelling, guard};
use crate::table::{self, Entry};

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

/// Hook of `pthread_cancel`, which wakes the thread where it sleeps in a call of ours.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: the caller's thread.
    let error = unsafe { real::pthread_cancel(thread) };
    if error == 0 && (table::has_connections() || table::has_listeners()) {
        cancelling::note(thread);
        wake_all();
    }
    error
}

fn wake_all() {
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        if let Some(Entry::Socket(socket)) = table::entry(fd) {
            socket.observer().wait_queue().wake();
        }
    }
    restarting::wake_all();
}
