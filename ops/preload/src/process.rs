//! Which process is this: the one whose table this is, a forked child, or a `vfork`ed one?
//!
//! The child of a `vfork` (and of `posix_spawn`) closes and duplicates numbers in the memory of its
//! parent before it becomes another program. What it does concerns its own numbers, which are a
//! copy, so the table must not follow. No handler runs in it; it is told by its process id.

use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::sharing::{forking, leaving, relay};
use crate::undisturbed::Undisturbed;
use crate::{errno, event_thread, switch, table};

static OWNER: AtomicI32 = AtomicI32::new(0);

/// Makes the calling process the owner of the table, and of each copy of it that a `fork` makes the
/// child. Called before the first entry.
pub(crate) fn own_table() {
    static HANDLERS: AtomicBool = AtomicBool::new(false);
    if HANDLERS.load(Ordering::Acquire) {
        return;
    }
    // The first thread wins. None waits for another to have registered: where another forks, the
    // child would wait for ever.
    let _ = OWNER.compare_exchange(0, id(), Ordering::AcqRel, Ordering::Acquire);
    if !HANDLERS.swap(true, Ordering::AcqRel) {
        // SAFETY: the handlers are made to run around a fork, and at the exit.
        unsafe {
            libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
            libc::atexit(at_exit);
        }
    }
}

/// Whether the table is the calling process's. One system call; asked only when there is an entry.
pub(crate) fn owns_table() -> bool {
    OWNER.load(Ordering::Acquire) == id()
}

/// Whether this is the child of a `vfork`, in the memory of its parent.
pub(crate) fn is_vforked() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    owner != 0 && owner != id()
}

/// The process id, from the kernel: the C library's may be the parent's in a `vfork`ed child.
pub(crate) fn id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// What a thread holds that is about to fork, until both processes have begun.
pub(crate) struct Forking {
    /// What threads of ours are making in common memory is finished, and nothing more begins.
    _making: Vec<MutexGuard<'static, ()>>,
    /// Dropped last.
    _undisturbed: Option<Undisturbed>,
}

/// A thread is about to fork. What may take locks of the stack's, or end a connection that nobody
/// else has any more, is done here and not among the handlers: those of libraries that a protocol
/// has loaded run before ours, and the thread would wait for what it holds for the fork itself.
pub(crate) fn before_fork() -> Forking {
    if is_vforked() {
        return Forking {
            _making: Vec::new(),
            _undisturbed: None,
        };
    }
    // A handler that forks in the midst of this would wait for this thread.
    let undisturbed = Undisturbed::begin();
    if OWNER.load(Ordering::Acquire) != 0 {
        // It may open an adapter, which is a making of its own.
        forking::prepare();
    }
    let protocols = switch::made().map(|switch| switch.registry().protocols());
    let held = protocols.into_iter().flatten();
    Forking {
        _making: held.filter_map(|protocol| protocol.before_fork()).collect(),
        _undisturbed: Some(undisturbed),
    }
}

impl Drop for Forking {
    fn drop(&mut self) {
        // Where no handler has been there to do it. The error of a fork that failed stays.
        let why = errno::get();
        forking::drop_prepared();
        errno::set(why);
    }
}

extern "C" fn before() {
    if !forking::is_prepared() {
        // A fork that has not come through our hook.
        forking::prepare();
    }
}

extern "C" fn in_parent() {
    forking::drop_prepared();
}

extern "C" fn in_child() {
    table::unlock_after_fork();
    OWNER.store(id(), Ordering::Release);
    event_thread::reset_after_fork();
    relay::reset_after_fork();
    forking::inherit();
}

extern "C" fn at_exit() {
    leaving::await_others();
}
