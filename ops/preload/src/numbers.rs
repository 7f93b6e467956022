//! Numbers of the program: the entries behind them, and the work when they are closed.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use host::stand_in::Flags;
use ops::observe::Record;
use rustix::io::{DupFlags, Errno};

use crate::process::undisturbed::Undisturbed;
use crate::process::{self, guard};
use crate::socket::Socket;
use crate::table::{self, Entry};

/// Puts an entry behind a number. The entry's count of numbers includes it already.
pub(crate) fn place(fd: c_int, entry: Entry) {
    process::own_table();
    // A former entry means that its number was closed by a call without a hook. A number beyond the
    // table stays the bare end of a pair; the kernel gives such numbers only if an administrator
    // permits it.
    let gone = table::insert(fd, entry).unwrap_or_else(Some);
    gone.and_then(release);
}

/// Lists a socket that stays on TCP, until its last number in this process is closed.
pub(crate) fn list(fd: c_int, record: Record) {
    place(fd, Entry::Listed(Arc::new(record)));
}

/// Removes the entry of a number that is about to be closed.
pub(crate) fn forget(fd: c_int) {
    if table::is_plain(fd) {
        return;
    }
    if !process::owns_table() {
        return close_copy(fd);
    }
    let lingering = {
        let _undisturbed = Undisturbed::begin();
        table::remove(fd).and_then(release)
    };
    // A signal ends this wait, as it does in the kernel.
    if let Some((socket, until)) = lingering {
        let _inside = guard::enter();
        socket.await_delivery(until);
    }
}

/// Closes the object of an entry if this number was its last. Returns a connection that lingers,
/// and its deadline: a call that closes the connection waits for it, the end of a process does not.
pub(crate) fn release(entry: Entry) -> Option<(Arc<Socket>, Instant)> {
    let _inside = guard::enter();
    match entry {
        // An entry from before a fork belongs to the process that made it. Closing a copy ends
        // nothing, and its memory is not freed, because its parts are shared with that process.
        Entry::Socket(socket) if !socket.is_of_this_process() => std::mem::forget(socket),
        Entry::Listener(listener) if !listener.is_of_this_process() => std::mem::forget(listener),
        Entry::Socket(socket) if socket.unnamed() => match socket.observer().relay() {
            // Other processes may hold the connection; it ends when none of them does.
            Some(relay) => relay.left_by_owner(),
            None => return socket.close().map(|until| (socket, until)),
        },
        // A listener stops when its last reference is dropped; the kernel counts the users of a
        // pair.
        Entry::Socket(_)
        | Entry::Listener(_)
        | Entry::Relayed(_)
        | Entry::Local(_)
        | Entry::Listed(_) => {}
    }
    None
}

/// Handles a close in a process that shares or has copied the memory of the table's owner and has
/// its own numbers. The kernel listener next to a listening socket is closed as well, because its
/// name would stay in use otherwise.
fn close_copy(fd: c_int) {
    if let Some(listener) = table::find_listener(fd)
        // The table's reference and this one are the only ones: no other number names the listener.
        && Arc::strong_count(&listener) == 2
    {
        listener.kernel().inspect(|it| it.close_copy());
    }
}

/// Makes a number of the program name another kernel object.
pub(crate) fn replace(with: &OwnedFd, fd: c_int, flags: Flags) -> Result<(), Errno> {
    let mut dup = DupFlags::empty();
    dup.set(DupFlags::CLOEXEC, flags.close_on_exec);
    // SAFETY: the number belongs to the program; `ManuallyDrop` makes sure that it is not closed
    // here.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    rustix::io::dup3(with, &mut target, dup)
}
