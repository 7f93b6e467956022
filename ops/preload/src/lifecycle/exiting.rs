//! The end of the process, which waits until all bytes that the program wrote are delivered.
//!
//! The kernel continues to send what a process wrote to TCP sockets after the process has ended.
//! Offloaded connections are part of the process, so its exit waits until the peers have received
//! the bytes. The other threads stay in their calls meanwhile ([`termination`]).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::ptr;
use std::time::Duration;

use host::stand_in::{self, Flags, LibraryEnd, Signals};
use ops::OffloadProtocol;

use crate::events;
use crate::fd::{self, Operations as _};
use crate::listener::Listener;
use crate::process::{self, guard, termination};
use crate::socket::relay_client::RelayClient;
use crate::socket::{self, Socket, relay};
use crate::switch;

/// The time by which a peer that receives nothing may delay the end of a process. Bytes that the
/// peer has not received by then are lost; the kernel's TCP would keep them.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time for work that a signal handler must not do. It is too short only if the handler has
/// interrupted a call that holds a lock; bytes that were not sent are lost then.
const HANDLER_PATIENCE: Duration = Duration::from_secs(1);

/// The loader runs this when the program has returned from `main` or called `exit`, after the
/// program's own handlers.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = finish;

unsafe extern "C" {
    /// The function behind `at_quick_exit`. The shared C library does not export `at_quick_exit`
    /// itself.
    fn __cxa_at_quick_exit(handler: extern "C" fn(*mut c_void), library: *mut c_void) -> c_int;
}

/// Registers the handler for `quick_exit`, which runs its own handlers, the latest first, and none
/// of those of `exit`.
pub(crate) fn begin() {
    // SAFETY: the function stays valid, because this library is never unloaded. If the C library
    // lacks memory to register it, `quick_exit` loses bytes that were not sent.
    unsafe { __cxa_at_quick_exit(finish_quickly, ptr::null_mut()) };
}

thread_local! {
    /// The process for whose end this thread has waited.
    static FINISHED: Cell<i32> = const { Cell::new(0) };
}

/// Waits before a `syscall` that ends the process. The C functions that end the process also call
/// this after they have waited, so a peer that receives nothing delays the end only once.
pub(crate) fn before_exit_group() {
    let has_finished = FINISHED.try_with(|finished| finished.get() == process::id());
    if has_finished == Ok(false) {
        before_end();
    }
}

extern "C" fn finish_quickly(_: *mut c_void) {
    before_end();
}

/// Waits before the process ends without the handlers of `exit`.
pub(crate) fn before_end() {
    if has_work() {
        termination::begin();
    }
    await_other_processes();
    finish();
}

/// Returns true if the connections of this process must be closed before it ends.
fn has_work() -> bool {
    switch::made().is_some()
        && process::owns_table()
        && (socket::were_made() || fd::all().any(ends_with_process))
}

/// Closes the connections that end with the process, and waits until the protocols have delivered
/// their bytes.
///
/// A signal handler may end the process, and may have interrupted the allocator. So nothing is
/// allocated or freed if the kernel closes everything.
extern "C" fn finish() {
    if has_work() {
        termination::begin();
        if run(HANDLER_PATIENCE, close_all) && socket::were_made() {
            run(PATIENCE, settle_all);
        }
        termination::connections_are_closed();
    }
    let _ = FINISHED.try_with(|finished| finished.set(process::id()));
}

fn close_all() {
    for fd in fd::all() {
        let held = fd::find::<Socket>(fd).filter(|socket| is_held_here(socket));
        let ended = match &held {
            Some(socket) => {
                // Threads that wait for the descriptor would see a hang-up.
                socket.observer().freeze();
                fd::end_connection(fd)
            }
            None if ends_with_process(fd) => fd::remove(fd),
            None => None,
        };
        if let Some(entry) = ended {
            let _ = fd::release(entry);
        }
        if let Some(socket) = held {
            // Threads that sleep in a call are held from now on.
            socket.observer().wait_queue().wake();
        }
    }
}

/// Returns true for a connection that this process has and shares with no other process.
fn is_held_here(socket: &Socket) -> bool {
    socket.is_of_this_process() && socket.observer().relay().is_none()
}

fn settle_all() {
    if let Some(switch) = switch::made() {
        let settle = |protocol: &dyn OffloadProtocol| protocol.settle(PATIENCE);
        switch.registry().for_each(settle);
    }
}

/// Returns true if the socket is more than descriptors, which the kernel closes.
fn ends_with_process(fd: c_int) -> bool {
    fd::contains(fd) || Listener::of(fd).is_some_and(|it| it.service().is_some())
}

/// Waits before the end of the process until other processes have finished with its connections.
///
/// There is no bound: a process that carries connections for other processes ends when the last of
/// them ends, or by a signal.
pub(crate) fn await_other_processes() {
    // A process that only uses the connections of others makes no system call here, which its
    // filter of `seccomp` might refuse. The kernel closes its descriptors.
    if process::owns_table() && relay::is_needed() && run(HANDLER_PATIENCE, close_shared) {
        relay::await_last();
    }
}

/// Closes the shared connections of this process. Their numbers stay open, as those of a connected
/// socket without any event: other threads may use them, and none may get `EBADF`.
fn close_shared() {
    let mut without_events = None;
    for fd in fd::all() {
        let own = fd::find::<Socket>(fd);
        let is_shared = own.is_some_and(|socket| socket.observer().relay().is_some())
            || fd::find::<RelayClient>(fd).is_some();
        if is_shared && let Some(gone) = fd::remove(fd) {
            // The relay is notified that no descriptor of this process refers to it.
            let _ = fd::release(gone);
            let other = without_events.get_or_insert_with(socket_without_events);
            let flags = Flags::default();
            let replaced = other
                .as_ref()
                .map(|(it, _)| fd::replace_object(it, fd, flags));
            if !matches!(replaced, Some(Ok(()))) {
                // SAFETY: the number is the program's, and the end of the process would close it as
                // well.
                unsafe { libc::syscall(libc::SYS_close, fd) };
            }
        }
    }
}

/// Makes a socket pair whose first end is never ready. `None`: no descriptor is free.
fn socket_without_events() -> Option<(OwnedFd, ManuallyDrop<LibraryEnd>)> {
    let (program, end) = stand_in::established(Flags::default()).ok()?;
    // The pair stays open until the process has ended.
    let end = ManuallyDrop::new(end);
    stand_in::close_window(&program, &Signals::new()).ok()?;
    Some((program, end))
}

/// Runs work that takes locks of the stack. Returns false if the work was not done.
///
/// A signal handler that ends the process may have interrupted a call that holds one of these
/// locks, or the allocator's, which a new thread needs. So the event thread does the work then, and
/// this thread waits for it at most `within`.
fn run(within: Duration, work: fn()) -> bool {
    if !guard::is_inside() {
        let _inside = guard::enter();
        work();
        return true;
    }
    events::run_for_handler(work, within)
}
