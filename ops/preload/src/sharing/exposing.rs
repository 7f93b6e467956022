//! Descriptors that another program may use: their pairs carry bytes from then on.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::{FdFlags, fcntl_getfd};

use crate::process::{self, guard};
use crate::sharing::adopting;
use crate::sharing::share;
use crate::socket::{Socket, relay_client};
use crate::table::{self, Entry};

/// Makes a descriptor carry bytes, because a program without this library would read signals as
/// data.
pub(crate) fn expose(fd: c_int) {
    if fd < 0 {
        return;
    }
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    table::settle(fd);
    match table::entry(fd) {
        Some(Entry::Socket(socket)) => expose_own(borrowed, &socket),
        Some(Entry::RelayClient(client)) => {
            client.use_bytes(borrowed);
            adopting::sign(borrowed, client.identity());
        }
        _ => {}
    }
}

/// Makes a connection carry bytes if its descriptor is standard input, output or error, because the
/// streams of the C library read and write these with internal calls.
pub(crate) fn expose_standard(fd: c_int) {
    if (0..=2).contains(&fd) {
        expose(fd);
    }
}

fn expose_own(fd: BorrowedFd<'_>, socket: &Arc<Socket>) {
    let _inside = guard::enter();
    // Without memory or descriptors for a relay, the other program gets a socket that carries no
    // bytes.
    let Ok(relay) = share(socket) else {
        return;
    };
    if relay_client::obtain(fd, relay.shared_state()) {
        socket.identity().apply_timeouts(fd);
    }
    adopting::sign(fd, &socket.identity());
}

/// Makes all connections carry bytes whose descriptors stay open over an `exec`.
pub(crate) fn expose_connections() {
    if !table::has_connections() {
        return;
    }
    table::within(0, usize::MAX).for_each(expose_if_kept);
}

/// Makes a descriptor carry bytes if it stays open over an `exec`.
pub(crate) fn expose_if_kept(fd: c_int) {
    // SAFETY: the table has an entry for the number, so it is not negative.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    if fcntl_getfd(borrowed).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
        expose(fd);
    }
}

/// Prepares all connections for a `vfork`, because only the child decides which of them it passes
/// on. The child cannot renew a pair, because it has the memory of this process but its own
/// descriptors.
pub(crate) fn share_all() {
    if !table::has_connections() || !process::owns_table() {
        return;
    }
    let _inside = guard::enter();
    for fd in table::within(0, usize::MAX) {
        table::settle(fd);
        if let Some(Entry::Socket(socket)) = table::entry(fd) {
            // In the child, a connection that cannot be shared carries no bytes.
            let _ = share(&socket);
        }
    }
}
