//! Descriptors that another program may use: their pairs carry bytes from then on.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use host::descriptors::raise;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_getfd};
use tracing::info;

use crate::fd::{self, Operations as _};
use crate::process::{self, guard, past_library};
use crate::sharing::adopting;
use crate::sharing::share;
use crate::socket::Socket;
use crate::socket::relay_client::{self, RelayClient};

/// Makes a descriptor carry bytes, because a program without this library would read signals as
/// data.
pub(crate) fn expose(fd: c_int) {
    if fd < 0 {
        return;
    }
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    fd::settle(fd);
    if let Some(socket) = fd::find::<Socket>(fd) {
        expose_own(borrowed, &socket);
    } else if let Some(client) = fd::find::<RelayClient>(fd) {
        client.use_bytes(borrowed);
        adopting::sign(borrowed, client.identity());
    }
}

/// Makes a descriptor carry bytes if it is standard input, output or error, because the streams of
/// the C library read and write these with internal calls.
pub(crate) fn expose_standard(fd: c_int) {
    if (0..=2).contains(&fd) {
        expose(fd);
    }
}

/// Makes a new connection carry bytes if the program may use its descriptor past this library.
pub(crate) fn expose_new(fd: c_int) {
    if (0..=2).contains(&fd) || past_library::is_used_now() {
        expose(fd);
    }
}

/// Does what [`expose_new`] does on the event thread, before the program finds the connection.
pub(crate) fn carry_new(socket: &Arc<Socket>, fd: c_int) {
    if (0..=2).contains(&fd) || past_library::is_used_now() {
        carry(socket);
    }
}

/// Makes all connections carry bytes, because the program can use their descriptors past this
/// library from now on.
pub(crate) fn expose_all() {
    past_library::set_used();
    if fd::has_connections() && process::owns_table() {
        fd::all().for_each(expose);
    }
}

/// Makes all connections carry bytes, because the program has used one past this library. Called on
/// the event thread.
pub(crate) fn on_bytes(socket: &Arc<Socket>) {
    let _inside = guard::enter();
    if !past_library::set_used() {
        info!("the program sends past the library, so its connections pass through socket pairs");
    }
    carry(socket);
    for fd in fd::all() {
        if let Some(other) = fd::find::<Socket>(fd)
            && other.is_of_this_process()
        {
            carry(&other);
        }
    }
}

/// Makes a connection of this process carry bytes. Called on the event thread.
///
/// Bytes that were sent past the library must not vanish. If they cannot be carried, the connection
/// is reset.
fn carry(socket: &Arc<Socket>) {
    let state = socket.observer().state();
    // A pair that shows an end must be renewed, and the bytes are in the old one.
    let is_renewable = !(state.has_peer_ended() && socket.stream().unread() > 0);
    let relay = is_renewable.then(|| share(socket).ok()).flatten();
    match (relay, duplicate(socket)) {
        (Some(relay), Some(program)) => relay.begin_past_library(program),
        _ if socket.observer().has_bytes() => socket.stream().abort(),
        _ => {}
    }
}

/// Duplicates a descriptor of the program's end.
fn duplicate(socket: &Arc<Socket>) -> Option<OwnedFd> {
    fd::numbers_of(&**socket).find_map(|fd| {
        // The entry is held meanwhile, so the number is not closed and used again.
        fd::while_held(fd, &**socket, || {
            // SAFETY: the table has an entry for the number, so it is not negative.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            fcntl_dupfd_cloexec(fd, 0).and_then(raise).ok()
        })?
    })
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
    if !fd::has_connections() {
        return;
    }
    fd::all().for_each(expose_if_kept);
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
    if !fd::has_connections() || !process::owns_table() {
        return;
    }
    let _inside = guard::enter();
    for fd in fd::all() {
        fd::settle(fd);
        if let Some(socket) = fd::find::<Socket>(fd) {
            // In the child, a connection that cannot be shared carries no bytes.
            let _ = share(&socket);
        }
    }
}
