//! The end of the process, which waits until what the program has written is delivered.
//!
//! The kernel goes on sending what a process wrote to its TCP sockets after it has ended. The
//! offloaded connections are part of the process, so its end waits until their peers have the
//! bytes.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::time::Duration;

use crate::process::{self, guard};
use crate::socket::relay;
use crate::table::{self, Entry};
use crate::{numbers, switch};

/// The time by which a peer that takes nothing may delay the end of a process. Bytes that the peer
/// has not taken by then are lost; the kernel's TCP would keep them.
const PATIENCE: Duration = Duration::from_secs(30);

/// Run by the loader when the program has returned or called `exit`, after its own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finish;

unsafe extern "C" {
    /// The function behind `at_quick_exit`, which is none of the shared C library itself.
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Registers the end for `quick_exit`, which runs the handlers that were registered for it, the
/// last one first, and none of those of `exit`; then it ends the process by a call of its own.
pub(crate) fn begin() {
    // SAFETY: a function that stays; this library is never unloaded. Where there is no memory for
    // it, such an end loses what has not left.
    unsafe { __cxa_at_quick_exit(finish_quickly, ptr::null_mut()) };
}

thread_local! {
    /// The process for whose end this thread has waited.
    static FINISHED: Cell<i32> = const { Cell::new(0) };
}

/// Waits before a call of the program that ends the process by number. The C functions make this
/// call too, after they have waited: a peer that takes nothing does not delay the end twice.
pub(crate) fn before_exit_group() {
    let has_finished = FINISHED.try_with(|finished| finished.get() == process::id());
    if has_finished == Ok(false) {
        finish_quickly(ptr::null_mut());
    }
}

extern "C" fn finish_quickly(_: *mut c_void) {
    await_others();
    finish();
}

/// Closes the program's connections, and waits until the protocols have delivered their bytes.
pub(crate) extern "C" fn finish() {
    let Some(switch) = switch::made() else {
        return;
    };
    if !process::owns_table() {
        return;
    }
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        if let Some(entry) = table::remove(fd) {
            let _ = numbers::release(entry);
        }
    }
    for protocol in switch.registry().protocols() {
        protocol.settle(PATIENCE);
    }
    let _ = FINISHED.try_with(|finished| finished.set(process::id()));
}

/// Waits before the end of the process until other processes have finished with its connections.
///
/// There is no bound: a process that carries connections of others ends with the last of them, or
/// by a signal.
pub(crate) fn await_others() {
    if !process::owns_table() {
        return;
    }
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        let Some(entry) = table::entry(fd) else {
            continue;
        };
        let is_shared = match &entry {
            Entry::Socket(socket) => socket.observer().relay().is_some(),
            Entry::Relayed(_) => true,
            Entry::Listener(_) | Entry::Local(_) | Entry::Listed(_) => false,
        };
        if is_shared && let Some(gone) = table::remove(fd) {
            // The relay is notified that no number of this process names it.
            let _ = numbers::release(gone);
            // SAFETY: the program's number, which the end of the process would close as well.
            unsafe { libc::syscall(libc::SYS_close, fd) };
        }
    }
    relay::await_last();
}
