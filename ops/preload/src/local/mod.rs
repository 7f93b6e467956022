//! Connections within the host: the program's descriptor is a stream socket of `AF_UNIX`.
//!
//! The kernel moves the bytes, keeps the state and wakes waiting threads. This library only makes
//! the socket show the name and the options of a TCP socket.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | a connection that was connected or accepted; the addresses that calls return |
//! | `operations` | the answers of a connection to calls on its descriptors |
//! | `ends` | the ends of the two directions, where the kernel does not show those of TCP |
//! | `readiness` | the events of `poll` and `epoll` |
//! | `options` | `getsockopt` and `setsockopt` where the two kinds of sockets differ |
//! | `sending` | sends to a peer that has closed |
//! | `polling_policy` | which waits poll first |
//! | `spinning` | polling before sleeping |

pub(crate) mod ends;
mod operations;
mod options;
mod polling_policy;
pub(crate) mod readiness;
pub(crate) mod sending;
pub(crate) mod spinning;

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::ptr;
use std::sync::Arc;

use host::stand_in::Flags;
use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, ssize_t};
use ops::{KernelConnection, OffloadProtocol};
use ops_local_protocol::Addresses;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::SocketFlags;

use crate::fd::{self, Entry};
use crate::observing;
use crate::process::{self, errno, guard, real};
use crate::socket::local::LocalSocket;
use crate::tcp::carried::Carried;
use crate::tcp::kept::Kept;
use crate::tcp::names::Family;

/// Returns the flags of the program's descriptor of a socket.
pub(crate) fn flags_of(socket: BorrowedFd<'_>) -> Result<SocketFlags, Errno> {
    let mut flags = SocketFlags::empty();
    flags.set(
        SocketFlags::NONBLOCK,
        fcntl_getfl(socket)?.contains(OFlags::NONBLOCK),
    );
    flags.set(
        SocketFlags::CLOEXEC,
        fcntl_getfd(socket)?.contains(FdFlags::CLOEXEC),
    );
    Ok(flags)
}

/// Replaces the program's TCP socket by a connection. For a non-blocking socket the result is
/// `EINPROGRESS`, as for TCP, and the socket is writable at once.
pub(crate) fn take_over(
    fd: c_int,
    tcp: BorrowedFd<'_>,
    family: Family,
    flags: SocketFlags,
    protocol: &dyn OffloadProtocol,
    connection: KernelConnection,
) -> Result<(), Errno> {
    let kept = Carried::of_connecting(tcp, family).apply(connection.socket.as_fd());
    let record = observing::local(connection.local, connection.peer, protocol.name());
    let is_nonblocking = flags.contains(SocketFlags::NONBLOCK);
    let shown = Flags {
        nonblocking: is_nonblocking,
        close_on_exec: flags.contains(SocketFlags::CLOEXEC),
    };
    let socket = match is_nonblocking {
        true => LocalSocket::connected_later(record, kept),
        false => LocalSocket::connected(record, kept),
    };
    fd::change_object(&connection.socket, fd, shown, || {
        fd::store(fd, Arc::new(socket));
    })?;
    if is_nonblocking {
        Err(Errno::INPROGRESS)
    } else {
        Ok(())
    }
}

/// Passes an accepted connection to the program.
pub(crate) fn accepted(
    connection: KernelConnection,
    family: Family,
    protocol: &str,
    kept: Kept,
) -> c_int {
    let (local, peer) = (connection.local, connection.peer);
    let addresses = Addresses {
        is_ipv6: family == Family::V6,
        local,
        peer,
    };
    let record = observing::local(local, peer, protocol);
    let socket = LocalSocket::accepted(record, kept, addresses);
    fd::store(connection.socket.as_raw_fd(), Arc::new(socket));
    connection.socket.into_raw_fd()
}

/// Converts the flags of `accept4` for the kernel.
pub(crate) fn accept_flags(flags: c_int) -> SocketFlags {
    let mut all = SocketFlags::empty();
    all.set(SocketFlags::NONBLOCK, flags & SOCK_NONBLOCK != 0);
    all.set(SocketFlags::CLOEXEC, flags & SOCK_CLOEXEC != 0);
    all
}

/// Returns the addresses of a local connection; `None` for every other descriptor.
pub(crate) fn addresses(fd: c_int) -> Option<(Family, Addresses)> {
    if fd < 0 {
        return None;
    }
    let _inside = guard::enter();
    let known = fd::find::<LocalSocket>(fd).and_then(|socket| socket.accepted_addresses());
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    let of = Addresses::of_accepted(unsafe { BorrowedFd::borrow_raw(fd) }, known)?;
    let family = if of.is_ipv6 { Family::V6 } else { Family::V4 };
    Some((family, of))
}

/// Returns true for a local connection. Makes no system call if the table has the answer.
pub(crate) fn is_local(fd: c_int) -> bool {
    fd::is_local(fd) || (fd::is_plain(fd) && addresses(fd).is_some())
}

/// Receives where the two kinds of sockets differ in a flag. `None`: the call has no such flag, or
/// the descriptor is not a local connection.
pub(crate) fn receive_differently(
    fd: c_int,
    len: impl FnOnce() -> usize,
    flags: c_int,
) -> Option<ssize_t> {
    if !has_different_flag(flags) || !fd::is_local(fd) {
        return None;
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        // TCP queues such reports only for sockets that ask for them, and those stay on TCP.
        errno::set(libc::EAGAIN);
        return Some(-1);
    }
    Some(match len() {
        0 => receive_nothing(fd, flags),
        len => discard(fd, len, flags),
    })
}

/// Returns true for flags that a socket of `AF_UNIX` handles differently from TCP.
pub(crate) fn has_different_flag(flags: c_int) -> bool {
    flags & (libc::MSG_TRUNC | libc::MSG_ERRQUEUE) != 0
}

/// Waits for bytes and receives none.
fn receive_nothing(fd: c_int, flags: c_int) -> ssize_t {
    // SAFETY: the buffer is empty, so the pointer is not used.
    let received = unsafe { real::recv(fd, ptr::null_mut(), 0, flags & !libc::MSG_TRUNC) };
    if received < 0 && is_end_of_wait(fd, flags) {
        return 0;
    }
    received
}

/// Returns true if a receive from a local connection has failed because its wait has ended, by a
/// timeout or a signal. For a receive of no bytes, this is not an error over TCP, which returns 0.
pub(crate) fn is_end_of_wait(fd: c_int, flags: c_int) -> bool {
    fd::is_local(fd)
        && matches!(errno::get(), libc::EAGAIN | libc::EINTR)
        && flags & libc::MSG_DONTWAIT == 0
        // SAFETY: the kernel has just answered a call on the number, so it is open.
        && flags_of(unsafe { BorrowedFd::borrow_raw(fd) })
            .is_ok_and(|flags| !flags.contains(SocketFlags::NONBLOCK))
}

/// Discards bytes, as TCP does with `MSG_TRUNC`.
fn discard(fd: c_int, len: usize, flags: c_int) -> ssize_t {
    const MOST: usize = 1 << 20;
    let mut room = vec![0_u8; len.min(MOST)];
    let (to, len) = (room.as_mut_ptr().cast(), room.len());
    // SAFETY: the buffer has `len` bytes.
    unsafe { real::recv(fd, to, len, flags & !libc::MSG_TRUNC) }
}

/// Returns the state of a local connection in this process, and makes it at the first use. `None`:
/// the descriptor is not a local connection.
pub(crate) fn local_socket(fd: c_int) -> Option<Arc<LocalSocket>> {
    let known = fd::find(fd);
    if known.is_some() || !fd::is_plain(fd) {
        return known;
    }
    addresses(fd)?;
    let socket = Arc::new(LocalSocket::default());
    if !process::is_vforked() {
        fd::store(fd, Arc::clone(&socket) as Entry);
    }
    Some(socket)
}
