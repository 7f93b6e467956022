//! `pthread_create`, `thrd_create`, `pthread_cancel`.
//!
//! A thread that the stack starts works for the stack from its first instruction.

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use crate::events::restarting;
use crate::fd::{self, removals};
use crate::process::real::{self, StartRoutine};
use crate::process::{cancellation, guard, signals_blocked};
use crate::socket::Socket;

struct Start {
    routine: StartRoutine,
    argument: *mut c_void,
}

/// Hook of `pthread_create`. A thread that the stack starts is marked as the stack's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    routine: StartRoutine,
    argument: *mut c_void,
) -> c_int {
    removals::make();
    if !guard::is_inside() {
        real::on_thread_of_program();
        signals_blocked::on_new_thread();
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::pthread_create(thread, attributes, routine, argument) };
    }
    let start = Box::into_raw(Box::new(Start { routine, argument })).cast();
    // SAFETY: the caller's thread and attributes; `inside` takes ownership of `start`.
    let error = unsafe { real::pthread_create(thread, attributes, inside, start) };
    if error != 0 {
        // SAFETY: no thread was started, so nothing else owns the box.
        drop(unsafe { Box::from_raw(start.cast::<Start>()) });
    }
    error
}

/// Hook of C11's `thrd_create`, which the stack does not call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(
    thread: *mut pthread_t,
    routine: *const c_void,
    argument: *mut c_void,
) -> c_int {
    removals::make();
    real::on_thread_of_program();
    signals_blocked::on_new_thread();
    // SAFETY: the caller's arguments, unchanged.
    unsafe { real::thrd_create(thread, routine, argument) }
}

extern "C" fn inside(start: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` above made this box for this call alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    // The guard is never dropped: the thread belongs to the stack to its end, including the
    // destructors of its thread locals.
    std::mem::forget(guard::enter());
    (start.routine)(start.argument)
}

/// Hook of `pthread_cancel`, which wakes the thread if it sleeps in a call of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: pthread_t) -> c_int {
    // SAFETY: by the caller's contract the thread exists.
    let error = unsafe { real::pthread_cancel(thread) };
    if error == 0 && (fd::has_connections() || fd::has_listeners()) {
        cancellation::record(thread);
        wake_all();
    }
    error
}

fn wake_all() {
    let _inside = guard::enter();
    for fd in fd::all() {
        if let Some(socket) = fd::find::<Socket>(fd) {
            socket.observer().wait_queue().wake();
        }
    }
    restarting::wake_all();
}
