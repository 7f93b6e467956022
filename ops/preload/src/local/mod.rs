//! Connections within the host: the program's descriptor is a stream socket of `AF_UNIX`.
//!
//! The kernel moves the bytes, keeps the state and wakes who waits; no call that moves bytes finds
//! anything of ours behind the number. What is left for this library is that the socket is called
//! and set as one of TCP.
//!
//! | File | What |
//! |---|---|
//! | `mod` | a connection that was connected or accepted; the addresses that calls return |
//! | `options` | `getsockopt` and `setsockopt` where the two kinds of sockets differ |
//! | `spinning` | polling before sleeping, where `opsrun --spin` asks for it |

pub(crate) mod options;
pub(crate) mod spinning;

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::Arc;

use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, sockaddr, socklen_t, ssize_t};
use ops::{KernelConnection, OffloadProtocol};
use ops_local_protocol::Addresses;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};
use rustix::net::SocketFlags;
use stand_in::Flags;

use crate::process::{self, errno, guard, real};
use crate::registrations::Registrations;
use crate::socket::local::LocalSocket;
use crate::table::{self, Entry};
use crate::tcp::carried::Carried;
use crate::tcp::kept::Kept;
use crate::tcp::names::{self, Family};
use crate::{numbers, observing};

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

/// Puts a connection in the place of the program's TCP socket. A socket that does not block gets
/// the answer that TCP gives, and is writable when the program asks.
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
    // Sets that watch the number watch the TCP socket behind it, which may live on.
    let registrations = Registrations::of(fd);
    registrations.withdraw();
    let replaced = numbers::replace(&connection.socket, fd, shown);
    registrations.renew();
    replaced?;
    let socket = LocalSocket::listed(record, kept);
    numbers::place(fd, Entry::Local(Arc::new(socket)));
    if is_nonblocking {
        Err(Errno::INPROGRESS)
    } else {
        Ok(())
    }
}

/// Gives an accepted connection to the program.
pub(crate) fn accepted(connection: KernelConnection, protocol: &str, kept: Kept) -> c_int {
    let record = observing::local(connection.local, connection.peer, protocol);
    let socket = LocalSocket::listed(record, kept);
    numbers::place(
        connection.socket.as_raw_fd(),
        Entry::Local(Arc::new(socket)),
    );
    connection.socket.into_raw_fd()
}

/// The flags of an `accept4` for the kernel.
pub(crate) fn accept_flags(flags: c_int) -> SocketFlags {
    let mut all = SocketFlags::empty();
    all.set(SocketFlags::NONBLOCK, flags & SOCK_NONBLOCK != 0);
    all.set(SocketFlags::CLOEXEC, flags & SOCK_CLOEXEC != 0);
    all
}

/// The addresses of a connection within the host; `None` for every other descriptor.
pub(crate) fn addresses(fd: c_int) -> Option<(Family, Addresses)> {
    if fd < 0 {
        return None;
    }
    let _inside = guard::enter();
    // SAFETY: a number from 0 up; the kernel says EBADF when it names nothing.
    let of = Addresses::of(unsafe { BorrowedFd::borrow_raw(fd) })?;
    let family = if of.is_ipv6 { Family::V6 } else { Family::V4 };
    Some((family, of))
}

/// Returns true for a connection within the host, without asking the kernel where the table knows.
pub(crate) fn is_local(fd: c_int) -> bool {
    table::is_local(fd) || (table::is_plain(fd) && addresses(fd).is_some())
}

/// Answers a call for a name, if the descriptor is a connection within the host.
///
/// # Safety
/// `address` and `len` are null or what the C call demands.
pub(crate) unsafe fn name(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    choose: fn(&Addresses) -> SocketAddr,
) -> Option<Result<(), Errno>> {
    let (family, of) = addresses(fd)?;
    // SAFETY: the caller answers for the pointers.
    Some(unsafe { names::give(choose(&of), family, address, len) })
}

/// Receives with a flag that the two kinds of sockets take for different things. `None`: the flags
/// have none of those, or the descriptor is no connection within the host.
pub(crate) fn receive_by_flag(
    fd: c_int,
    len: impl FnOnce() -> usize,
    flags: c_int,
) -> Option<ssize_t> {
    if flags & (libc::MSG_TRUNC | libc::MSG_ERRQUEUE) == 0 || !table::is_local(fd) {
        return None;
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        // TCP has reports only for sockets that asked for them, and those stay on TCP.
        errno::set(libc::EAGAIN);
        return Some(-1);
    }
    Some(discard(fd, len(), flags))
}

/// Throws bytes away, as TCP does where `MSG_TRUNC` asks for it.
fn discard(fd: c_int, len: usize, flags: c_int) -> ssize_t {
    const MOST: usize = 1 << 20;
    let mut room = vec![0_u8; len.min(MOST)];
    let (to, len) = (room.as_mut_ptr().cast(), room.len());
    // SAFETY: so much room of ours.
    unsafe { real::recv(fd, to, len, flags & !libc::MSG_TRUNC) }
}

/// Returns the state of a connection in this process, and makes it at the first use. `None`: the
/// descriptor is no such connection.
fn remembered(fd: c_int) -> Option<Arc<LocalSocket>> {
    if let Some(Entry::Local(socket)) = table::entry(fd) {
        return Some(socket);
    }
    if !table::is_plain(fd) {
        return None;
    }
    addresses(fd)?;
    let socket = Arc::new(LocalSocket::default());
    if !process::is_vforked() {
        numbers::place(fd, Entry::Local(Arc::clone(&socket)));
    }
    Some(socket)
}
