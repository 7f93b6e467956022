//! The process into which this library is loaded: its identity, threads and C library.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | the identity of the process: the owner of the table, a forked child, or a `vfork`ed child |
//! | [`memory`] | the same identity, checked without a system call where possible |
//! | [`real`] | the C library's functions |
//! | [`errno`] | `errno`, and results in the form of C functions |
//! | [`guard`] | calls and threads of the stack itself, which stay on TCP |
//! | [`signals_blocked`] | work that no signal handler of the program interrupts |
//! | [`cancellation`] | threads that are cancelled while they sleep in a call |
//! | [`termination`] | the end of the process, during which other threads stay in their calls |
//! | [`past_library`] | transfers that this library does not see: io_uring, Linux AIO |
//! | [`last_thread`] | the end of a process in which only threads of this library are left |
//! | [`restrictions`] | filters of system calls that the program has installed |
//! | [`per_process`] | values that the child of a `fork` creates again |
//!
//! The child of a `vfork` (and of `posix_spawn`) runs in the parent's memory and may close and
//! duplicate descriptors before it executes another program. Its descriptors are a copy of the
//! parent's, so the parent's table must not record these calls. No fork handler runs in such a
//! child; it is recognised by its process id. A program that has no such child needs no system
//! call.

pub(crate) mod cancellation;
pub(crate) mod errno;
pub(crate) mod guard;
pub(crate) mod last_thread;
pub(crate) mod memory;
pub(crate) mod past_library;
pub(crate) mod per_process;
pub(crate) mod real;
pub(crate) mod restrictions;
pub(crate) mod signals_blocked;
pub(crate) mod termination;

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

static OWNER: AtomicI32 = AtomicI32::new(0);

/// The function to call before the first entry; set when the library is loaded.
static ON_FIRST_ENTRY: OnceLock<fn()> = OnceLock::new();

/// The name by which the program was started. It is copied, because programs that show their state
/// to `ps` overwrite the memory of the name.
static CALLED: OnceLock<Box<CStr>> = OnceLock::new();

/// Records the name of the program and the function to call before the first entry. Called when the
/// library is loaded.
pub(crate) fn begin(called: Option<&CStr>, on_first_entry: fn()) {
    if let Some(called) = called {
        let _ = CALLED.set(called.into());
    }
    let _ = ON_FIRST_ENTRY.set(on_first_entry);
    if has_owner() {
        // A constructor of another library has already opened a connection.
        own_table();
    }
}

/// Returns the name by which the program was started, with or without directories; empty if the
/// program has none.
pub(crate) fn called() -> String {
    let called = CALLED.get().map(|called| called.to_string_lossy());
    called.unwrap_or_default().into_owned()
}

/// Makes the calling process the owner of the table. Must be called before each entry is added.
pub(crate) fn own_table() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Ordering::Acquire) {
        return;
    }
    // The first thread sets the owner. No thread waits until another has registered the handlers:
    // if that thread forked meanwhile, the child would wait for ever.
    let first = OWNER.compare_exchange(0, id(), Ordering::AcqRel, Ordering::Acquire);
    if first.is_ok() {
        memory::set_mark();
    }
    if let Some(on_first_entry) = ON_FIRST_ENTRY.get()
        && !IS_DONE.swap(true, Ordering::AcqRel)
    {
        on_first_entry();
    }
}

/// Makes the child of a `fork` the owner of its copy of the table.
pub(crate) fn own_table_in_child() {
    OWNER.store(id(), Ordering::Release);
    last_thread::begin();
    memory::set_mark();
    termination::reset_after_fork();
}

/// Returns true once the table has an owner, whichever process that is.
pub(crate) fn has_owner() -> bool {
    OWNER.load(Ordering::Acquire) != 0
}

/// Returns true if the table belongs to the calling process. This costs a system call once the
/// program has created a child that may share its memory.
pub(crate) fn owns_table() -> bool {
    OWNER.load(Ordering::Acquire) == current()
}

/// Returns true in the child of a `vfork`, which runs in the memory of its parent.
pub(crate) fn is_vforked() -> bool {
    has_owner() && !owns_table()
}

/// Returns the process id, without a system call where possible.
pub(crate) fn current() -> i32 {
    if memory::is_marked() {
        OWNER.load(Ordering::Acquire)
    } else {
        id()
    }
}

/// Returns true for a descriptor whose calls do not wait.
pub(crate) fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// Returns which of these events a descriptor shows now; errors and a hang-up are always included.
pub(crate) fn shown_events(fd: BorrowedFd<'_>, of: PollFlags) -> Result<PollFlags, Errno> {
    let mut set = [PollFd::from_borrowed_fd(fd, of)];
    poll(&mut set, Some(&Timespec::default()))?;
    Ok(set[0].revents())
}

/// Returns true if both directions of a connection have ended, or the peer has closed it.
pub(crate) fn has_hung_up(fd: BorrowedFd<'_>) -> bool {
    let shown = shown_events(fd, PollFlags::empty());
    shown.is_ok_and(|shown| shown.contains(PollFlags::HUP))
}

/// Returns the process id from the kernel. In a `vfork`ed child, the C library may return the
/// parent's.
pub(crate) fn id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}
