//! `socket`, `connect`, `listen`, `accept`.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, sockaddr, socklen_t};
use ops::observe::ReasonText;
use rustix::io::Errno;

use super::{alias, ask, jump, offloaded};
use crate::fd;
use crate::listener::Listener;
use crate::process::cancellation::{self, CANCELLED};
use crate::process::errno::{self, ToC};
use crate::process::{guard, real, termination};
use crate::setup::accept::{self, Next};
use crate::setup::connect::{self, Outcome};
use crate::setup::{disconnect, offer};
use crate::tcp::{families, names};
use crate::{local, observing};

#[unsafe(no_mangle)]
pub unsafe extern "C" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    if guard::is_inside() {
        // SAFETY: the call takes no pointers.
        let fd = unsafe { real::socket(family, kind, protocol) };
        record_made(fd, family, kind, protocol);
        return fd;
    }
    let made = families::of_socket(family, kind, protocol);
    // SAFETY: the call takes no pointers.
    let fd = unsafe { real::socket(made.family, kind, made.protocol) };
    record_made(fd, made.family, kind, made.protocol);
    fd::on_wish(fd, made.wish);
    fd
}

/// Records the result of a `socket`.
pub(super) fn record_made(fd: c_int, family: c_int, kind: c_int, protocol: c_int) {
    fd::on_made(fd, names::is_kind_of_tcp(family, kind, protocol));
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: by the caller's contract the address is null or has `len` bytes.
    let remote = unsafe { names::read_address(address, len) };
    match remote.and_then(|remote| connect::peer_on_tcp(fd, remote)) {
        Some((remote, reason)) => {
            // SAFETY: the caller's arguments, unchanged.
            let result = unsafe { real::connect(fd, address, len) };
            list_begun(fd, result, remote, reason);
            result
        }
        // SAFETY: the caller's arguments, unchanged.
        None => unsafe { connect_in_library(fd, address, len) },
    }
}

/// Connects a socket of any kind, by an offload protocol if the switch permits it.
///
/// # Safety
/// As for `connect`.
#[inline(never)]
unsafe extern "C-unwind" fn connect_in_library(
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: by the caller's contract the address is null or has `len` bytes.
    if let Some(address) = unsafe { families::with_family_of_tcp(address, len) } {
        // SAFETY: the copy is not shorter than the caller's address.
        return unsafe { connect(fd, (&raw const address).cast(), len) };
    }
    // SAFETY: by the caller's contract the address is null or has `len` bytes.
    let is_unspecified = unsafe { names::is_unspecified(address, len) };
    if is_unspecified
        && (fd::contains(fd) || local::is_local(fd))
        && let Some(result) = disconnect::disconnect(fd)
    {
        return result.to_c();
    }
    if let Some(result) = ask(fd, |object, fd| object.connect(fd)) {
        return result;
    }
    let mut fall_back = None;
    if !guard::is_inside()
        // SAFETY: by the caller's contract the address is null or has `len` bytes.
        && let Some(remote) = unsafe { names::read_address(address, len) }
    {
        match connect::connect(fd, remote) {
            Outcome::Offloaded(result) => {
                termination::hold_others();
                return result.to_c();
            }
            // A cancelled thread ends in the kernel's call, so the frame keeps nothing to drop.
            Outcome::Kernel(reason) => {
                fall_back = reason.map(|reason| (remote, ReasonText::of(reason)));
            }
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::connect(fd, address, len) };
    if result != 0 && errno::get() == libc::EINVAL && local::is_local(fd) {
        errno::set(libc::EISCONN);
    }
    match fall_back {
        Some((remote, reason)) => {
            let remote = connect::to_single_host(remote);
            list_begun(fd, result, remote, &reason);
        }
        None if is_unspecified && result == 0 => {
            // The socket has stopped listening, or its connection has ended.
            offer::shut_down(fd);
            if fd::is_listed(fd) {
                fd::forget(fd);
            }
        }
        None => {}
    }
    result
}

/// Lists a connection over TCP after the kernel's `connect`, unless that has failed. A connection
/// is listed once, because a program may call `connect` again to find out whether it was made.
fn list_begun(fd: c_int, result: c_int, remote: SocketAddr, reason: &ReasonText) {
    let why = errno::get();
    let has_begun = if result == 0 {
        !fd::is_listed(fd)
    } else {
        why == libc::EINPROGRESS
    };
    if has_begun {
        list(fd, remote, reason);
        errno::set(why);
    }
}

/// Lists a connection over TCP, with the reason.
fn list(fd: c_int, remote: SocketAddr, reason: &ReasonText) {
    if let Some(record) = observing::native(remote, reason) {
        fd::list(fd, record);
    }
}

/// Lists a connection that was accepted over TCP, unless it has ended already.
fn list_accepted(fd: c_int) {
    // SAFETY: the kernel has just returned the number, so it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let peer = rustix::net::getpeername(socket).ok().flatten();
    if let Some(remote) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) {
        list(fd, remote, &ReasonText::of(PLAIN_PEER));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    if fd::contains(fd) {
        return offloaded(fd, |_| Err::<(), _>(Errno::INVAL));
    }
    let is_offered = !guard::is_inside() && !offer::is_made_elsewhere(fd);
    if is_offered {
        offer::prepare(fd);
    }
    // SAFETY: the caller's arguments, unchanged.
    let result = unsafe { real::listen(fd, backlog) };
    if result == 0 && is_offered {
        match Listener::of(fd) {
            Some(listener) => offer::set_backlog(&listener, backlog),
            None => offer::begin(fd, backlog),
        }
    }
    result
}

jump! {
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int =
        if fd::is_listener(fd) => accept_in_library;
}

/// Accepts a connection of TCP or of an offload protocol.
///
/// # Safety
/// As for `accept4`.
#[inline(never)]
unsafe extern "C-unwind" fn accept_in_library(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    loop {
        // A cancelled thread ends in this call, because no frame has anything to drop here.
        cancellation::begin_call();
        // SAFETY: the caller's arguments, unchanged.
        let accepted = unsafe { accepted(fd, address, len, flags) };
        termination::hold_others();
        match accepted {
            Err(CANCELLED) if cancellation::is_cancelled() => {}
            accepted => return accepted.to_c(),
        }
    }
}

/// # Safety
/// As for `accept4`.
unsafe fn accepted(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's arguments, unchanged.
    let kernel = || match unsafe { real::accept4(fd, address, len, flags) } {
        -1 => Err(Errno::from_raw_os_error(errno::get())),
        accepted => Ok(accepted),
    };
    let listener = match Listener::of(fd) {
        Some(listener) if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) == 0 => listener,
        _ => return kernel(),
    };
    match accept::accept(fd, listener, flags, kernel) {
        Ok(Next::Offloaded(accepted)) => {
            // SAFETY: by the caller's contract the pointers are null or valid.
            unsafe { accepted.write_peer(address, len) };
            Ok(accepted.fd)
        }
        Ok(Next::Tcp(accepted)) => {
            list_accepted(accepted);
            Ok(accepted)
        }
        Err(error) => Err(error),
    }
}

/// The reason in listings for a connection accepted over TCP.
const PLAIN_PEER: &str = "the peer connected over TCP";

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments; `accept` is `accept4` without flags.
    unsafe { accept4(fd, address, len, 0) }
}

alias! {
    __connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int =
        connect(fd, address, len);
}
