//! Adds, replaces and removes the table entries of the program's descriptors.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use host::stand_in::Flags;
use ops::observe::NativeRecord;
use rustix::io::{DupFlags, Errno};

use crate::deferred_removal;
use crate::events::restarting;
use crate::process::signals_blocked::SignalsBlocked;
use crate::process::{self, guard};
use crate::socket::Socket;
use crate::table::{self, Entry};

/// Stores an entry for a descriptor. The entry has already counted this descriptor.
pub(crate) fn insert(fd: c_int, entry: Entry) {
    process::own_table();
    deferred_removal::on_new_object(fd);
    // A former entry means that the descriptor was closed by a call without a hook. A descriptor
    // beyond the table gets no entry; the kernel gives such numbers only if an administrator
    // permits it.
    let gone = table::insert(fd, entry).unwrap_or_else(Some);
    gone.and_then(release);
}

/// Lists a socket that stays on TCP, until its last descriptor in this process is closed.
pub(crate) fn list(fd: c_int, record: NativeRecord) {
    process::own_table();
    table::list(fd, record).and_then(release);
}

/// Removes the entry of a descriptor that is about to be closed.
pub(crate) fn forget(fd: c_int) {
    if table::is_plain(fd) {
        return;
    }
    deferred_removal::make();
    if !process::owns_table() {
        return close_copy(fd);
    }
    if table::unlist(fd) {
        return;
    }
    let lingering = {
        let _signals_blocked = SignalsBlocked::begin();
        let removed = table::remove(fd);
        let is_undecided = matches!(removed, Some(Entry::Undecided(_)));
        let lingering = removed.and_then(release);
        if is_undecided {
            // The attempt may have ended before it was cancelled, and have made another entry.
            table::remove(fd).and_then(release)
        } else {
            lingering
        }
    };
    // A signal ends this wait, as it does in the kernel.
    if let Some((socket, until)) = lingering {
        let _inside = guard::enter();
        socket.await_delivery(until);
    }
}

/// Closes the object of an entry if this descriptor was its last. Returns a connection that
/// lingers, with its deadline: `close` waits for it, the end of the process does not.
pub(crate) fn release(entry: Entry) -> Option<(Arc<Socket>, Instant)> {
    let _inside = guard::enter();
    match entry {
        // An entry from before a fork belongs to the process that made it. Closing a copy does not
        // end the connection, and the memory is not freed, because the descriptors in it belong to
        // that process.
        Entry::Socket(socket) if !socket.is_of_this_process() => std::mem::forget(socket),
        Entry::Listener(listener) if !listener.is_of_this_process() => std::mem::forget(listener),
        Entry::Undecided(undecided) if !undecided.is_of_this_process() => {
            std::mem::forget(undecided)
        }
        Entry::Socket(socket) if socket.remove_number() => match socket.observer().relay() {
            // Other processes may hold the connection. It ends when no process holds it.
            Some(relay) => relay.on_owner_closed(),
            None => return socket.close().map(|until| (socket, until)),
        },
        // A listener stops when its last reference is dropped.
        Entry::Listener(listener) => restarting::drop_left(&listener),
        Entry::Undecided(undecided) => undecided.cancel(),
        // The kernel counts the holders of a pair.
        Entry::Socket(_) | Entry::RelayClient(_) | Entry::Local(_) | Entry::Listed(_) => {}
    }
    None
}

/// Handles a close in a process that shares or copied the memory of the table's owner but has its
/// own descriptors. The kernel listener next to a listening socket is closed as well, because its
/// name would otherwise stay in use. The entry of a copy is forgotten, because the program may get
/// the number again for any file.
fn close_copy(fd: c_int) {
    if let Some(listener) = table::find_listener(fd)
        // Only the table and this function hold a reference: no other descriptor names the
        // listener.
        && Arc::strong_count(&listener) == 2
    {
        listener.kernel().inspect(|it| it.close_copy());
    }
    if process::memory::is_copied() {
        table::forget_copied(fd);
    }
}

/// Makes a descriptor number of the program refer to the kernel object of `with`.
pub(crate) fn replace(with: impl AsFd, fd: c_int, flags: Flags) -> Result<(), Errno> {
    let mut dup = DupFlags::empty();
    dup.set(DupFlags::CLOEXEC, flags.close_on_exec);
    // SAFETY: the number belongs to the program, and `ManuallyDrop` prevents that it is closed
    // here.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(fd) });
    rustix::io::dup3(with, &mut target, dup)
}
