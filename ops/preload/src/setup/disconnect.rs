//! `connect` with `AF_UNSPEC`, which ends a connection. The program's descriptor is then a new TCP
//! socket with the options of the connection, and may connect again.
//!
//! The peer sees the end of the connection and not a reset as over TCP: the kernel resets
//! connections of `AF_UNIX` for unread bytes only.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use host::stand_in::Flags;
use libc::{
    SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_PRIORITY, SO_RCVTIMEO, SO_SNDTIMEO, SOCK_STREAM,
    SOL_SOCKET,
};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};

use crate::process::guard;
use crate::registrations::Registrations;
use crate::socket::identity::Identity;
use crate::table::{self, Mover};
use crate::tcp::inherited::{self, Value};
use crate::tcp::names::Family;
use crate::tcp::{carried, made};
use crate::{local, numbers};

/// The options that the kernel keeps for a local connection. The sizes of its buffers are not those
/// of a TCP socket.
const OF_LOCAL: [c_int; 6] = [
    SO_KEEPALIVE,
    SO_LINGER,
    SO_OOBINLINE,
    SO_PRIORITY,
    SO_RCVTIMEO,
    SO_SNDTIMEO,
];

/// Ends the connection of a descriptor. `None`: no offload protocol carries the descriptor.
pub(crate) fn disconnect(fd: c_int) -> Option<Result<(), Errno>> {
    let _inside = guard::enter();
    let (family, tcp) = match table::mover(fd) {
        Mover::Own(socket) => like_identity(&socket.identity()),
        Mover::RelayClient(client) => like_identity(client.identity()),
        Mover::Kernel => like_local(fd)?,
    };
    Some(tcp.and_then(|tcp| replace(fd, family, &tcp)))
}

fn like_identity(of: &Identity) -> (Family, Result<OwnedFd, Errno>) {
    let tcp = inherited::socket(of.family, of.options().native());
    (of.family, tcp)
}

fn like_local(fd: c_int) -> Option<(Family, Result<OwnedFd, Errno>)> {
    let (family, _) = local::addresses(fd)?;
    let socket = local::local_socket(fd)?;
    let tcp = inherited::new(family).inspect(|tcp| {
        socket.kept().apply(tcp.as_fd());
        for name in OF_LOCAL {
            if let Some(value) = Value::of(fd, SOL_SOCKET, name) {
                value.set(tcp.as_raw_fd(), SOL_SOCKET, name);
            }
        }
    });
    // Other descriptors of the connection, here and in other processes, have ended too.
    // SAFETY: the kernel has just answered a call on the number, so it is open.
    let _ = rustix::net::shutdown(unsafe { BorrowedFd::borrow_raw(fd) }, Shutdown::Both);
    Some((family, tcp))
}

/// Gives the number of a connection to a TCP socket.
fn replace(fd: c_int, family: Family, tcp: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: a connection has the number, so it is open.
    let flags = local::flags_of(unsafe { BorrowedFd::borrow_raw(fd) })?;
    let shown = Flags {
        nonblocking: flags.contains(SocketFlags::NONBLOCK),
        close_on_exec: flags.contains(SocketFlags::CLOEXEC),
    };
    if shown.nonblocking {
        fcntl_setfl(tcp, OFlags::RDWR | OFlags::NONBLOCK)?;
    }
    let registrations = Registrations::of(fd);
    registrations.withdraw();
    let replaced = numbers::replace(tcp, fd, shown);
    if replaced.is_ok() {
        numbers::forget(fd);
        carried::any_may_be_set();
        made::record(fd, family.number(), SOCK_STREAM, 0);
    }
    registrations.renew();
    replaced
}
