//! `connect` with `AF_UNSPEC`, which ends a connection. The program's descriptor is then a new TCP
//! socket with the options of the connection, and may connect again.
//!
//! The peer sees the end of the connection and not a reset as over TCP: the kernel resets
//! connections of `AF_UNIX` for unread bytes only.

use std::ffi::c_int;
use std::os::fd::{BorrowedFd, OwnedFd};

use host::stand_in::Flags;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::fd::{self, Entry};
use crate::local;
use crate::process::guard;
use crate::tcp::carried;

/// Ends the connection of a descriptor. `None`: no offload protocol carries the descriptor.
pub(crate) fn disconnect(fd: c_int) -> Option<Result<(), Errno>> {
    let _inside = guard::enter();
    fd::settle(fd);
    let connection = fd::entry(fd).or_else(|| Some(local::local_socket(fd)? as Entry))?;
    // SAFETY: a connection has the number, so it is open.
    let tcp = connection.disconnected(unsafe { BorrowedFd::borrow_raw(fd) })?;
    Some(tcp.and_then(|tcp| replace(fd, &tcp)))
}

/// Gives the number of a connection to a TCP socket.
fn replace(fd: c_int, tcp: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: a connection has the number, so it is open.
    let flags = local::flags_of(unsafe { BorrowedFd::borrow_raw(fd) })?;
    let shown = Flags {
        nonblocking: flags.contains(SocketFlags::NONBLOCK),
        close_on_exec: flags.contains(SocketFlags::CLOEXEC),
    };
    if shown.nonblocking {
        fcntl_setfl(tcp, OFlags::RDWR | OFlags::NONBLOCK)?;
    }
    fd::change_object(tcp, fd, shown, || {
        carried::any_may_be_set();
        fd::on_made(fd, true);
    })
}
