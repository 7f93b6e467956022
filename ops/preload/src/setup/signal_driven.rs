//! Signal-driven I/O of a listener: `O_ASYNC`, `F_SETOWN` and `F_SETSIG`.
//!
//! The kernel listener of a protocol gets the settings of the TCP listener next to it. The kernel
//! writes the number with which `O_ASYNC` was set into the signal, and the program expects the
//! number of its listener. So the settings are made by a thread with descriptors of its own, in
//! which that number refers to the kernel listener.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{F_GETFL, F_SETFL, O_ASYNC};
use rustix::io::DupFlags;

use crate::fd;
use crate::listener::Listener;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, errno, guard, real};

/// From `asm-generic/fcntl.h`, as the next three.
pub(crate) const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
pub(crate) const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;

/// The process, process group or thread that receives the signals: `struct f_owner_ex`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Owner {
    kind: c_int,
    id: c_int,
}

/// Handles a change of these settings by the program.
pub(crate) fn on_changed(fd: c_int) {
    if !fd::is_listener(fd) || guard::is_inside() || !process::owns_table() {
        return;
    }
    if let Some(listener) = Listener::of(fd) {
        let why = errno::get();
        copy(fd, &listener);
        errno::set(why);
    }
}

/// Copies the settings of a TCP listener to the kernel listener next to it, unless neither ever
/// sent a signal. Without memory for the thread, the kernel listener sends no signals.
pub(crate) fn copy(fd: c_int, listener: &Listener) {
    let Some(kernel) = listener.kernel() else {
        return;
    };
    let number = kernel.number();
    let get = |fd, command| control(fd, command, 0);
    let (flags, own) = (get(fd, F_GETFL), get(number, F_GETFL));
    if flags < 0 || own < 0 || (flags | own) & O_ASYNC == 0 {
        return;
    }
    // The program waits for a signal.
    listener.on_awaited();
    let mut owner = Owner::default();
    control(fd, F_GETOWN_EX, (&raw mut owner).addr());
    let signal = get(fd, F_GETSIG);
    let wanted = own & !O_ASYNC | flags & O_ASYNC;
    let work = move || set_apart(fd, number, owner, signal, wanted);
    let _signals_blocked = SignalsBlocked::begin();
    let _inside = guard::enter();
    if let Ok(thread) = host::threads::spawn_quiet("ops-signals", work) {
        thread.join();
    }
}

/// Makes the settings on a thread with descriptors of its own.
fn set_apart(fd: c_int, number: c_int, owner: Owner, signal: c_int, flags: c_int) {
    // SAFETY: the call takes no pointers. The thread uses only the descriptors below.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        return;
    }
    // SAFETY: the caller waits for this thread, and its listener keeps the descriptor open.
    let kernel = unsafe { BorrowedFd::borrow_raw(number) };
    // SAFETY: the number is the copy of this thread, which ends with the thread.
    let mut shown = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    if rustix::io::dup3(kernel, &mut shown, DupFlags::CLOEXEC).is_err() {
        return;
    }
    let shown = shown.as_raw_fd();
    control(shown, F_SETOWN_EX, (&raw const owner).addr());
    control(shown, F_SETSIG, usize::try_from(signal).unwrap_or(0));
    control(shown, F_SETFL, flags.unsigned_abs() as usize);
}

/// Calls the C library's `fcntl`. An argument that is an address is that of a local value.
fn control(fd: c_int, command: c_int, argument: usize) -> c_int {
    // SAFETY: the callers pass numbers, or addresses of local values.
    unsafe { real::fcntl(fd, command, argument) }
}
