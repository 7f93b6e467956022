//! `getsockopt` and `setsockopt` of connections within the host.
//!
//! Options of `SOL_SOCKET` are the kernel's, except for those that name the kind of socket. Options
//! of TCP and IP are checked by the kernel's TCP, on a socket that is made for the call, and are
//! kept here. `TCP_INFO` consists of the state; all other fields are zero, because there is no TCP
//! connection.

use std::ffi::{c_int, c_ulong};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use libc::{
    IPPROTO_TCP, SO_DOMAIN, SO_PASSCRED, SO_PASSSEC, SO_PEERCRED, SO_PROTOCOL, SO_REUSEADDR,
    SO_REUSEPORT, SOL_SOCKET, TCP_CORK, TCP_INFO, TCP_MAXSEG, TCP_NODELAY, TCP_QUICKACK,
};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::fd::{OptionRoom, OptionValue};
use crate::local::{addresses, ends, local_socket};
use crate::process::{self, errno, guard, real};
use crate::tcp::inherited::{self, Value};
use crate::tcp::names::Family;
use crate::tcp::options::{self, SO_PEERNAME, write_info, write_number, write_peer_name};

/// From `asm-generic/socket.h`.
const SO_PEERPIDFD: c_int = 77;

/// Returns true for options that a socket of `AF_UNIX` handles in its own way.
pub(crate) fn is_of_kind(level: c_int, name: c_int) -> bool {
    // A socket of `AF_UNIX` has no options of another level.
    if !inherited::is_of_socket(level, name) {
        return true;
    }
    const SO_PASSPIDFD: c_int = 76;
    const SO_PASSRIGHTS: c_int = 83;
    options::is_refused(level, name)
        || matches!(
            name,
            SO_DOMAIN
                | SO_PROTOCOL
                | SO_PEERCRED
                | SO_PASSCRED
                | SO_PASSSEC
                | SO_PASSPIDFD
                | SO_PEERPIDFD
                | SO_PEERNAME
                | SO_PASSRIGHTS
                | SO_REUSEPORT
        )
}

/// The payload of a segment on the loopback device, in bytes.
const LOOPBACK_MSS: c_int = 65_483;

/// Answers an option that a socket of `AF_UNIX` refuses or answers in its own way. `None`: the
/// descriptor is not a local connection.
///
/// # Safety
/// The pointers are null or what the C call demands.
pub(super) unsafe fn get(fd: c_int, option: OptionRoom) -> Option<Result<(), Errno>> {
    let (level, name) = (option.level, option.name);
    let OptionRoom { value, len, .. } = option;
    let (family, of) = addresses(fd)?;
    let _inside = guard::enter();
    // SAFETY: the caller guarantees that both pointers are null or valid, here and below.
    Some(unsafe {
        match (level, name) {
            (SOL_SOCKET, SO_DOMAIN) => write_number(family.number(), value, len),
            (SOL_SOCKET, SO_PROTOCOL) => write_number(IPPROTO_TCP, value, len),
            (SOL_SOCKET, SO_PEERNAME) => write_peer_name(of.peer, family, value, len),
            // The kernel's socket would open a descriptor.
            (SOL_SOCKET, SO_PEERPIDFD) => Err(Errno::NODATA),
            _ if options::is_refused(level, name) => Err(Errno::NOPROTOOPT),
            (IPPROTO_TCP, TCP_INFO) => write_info(state(fd), value, len),
            (IPPROTO_TCP, TCP_MAXSEG) => write_number(LOOPBACK_MSS, value, len),
            _ => match local_socket(fd).and_then(|it| it.kept().get(level, name)) {
                Some(kept) => options::put(kept.bytes(), value, len),
                None => get_of_new(family, option),
            },
        }
    })
}

/// # Safety
/// As for [`get`].
unsafe fn get_of_new(family: Family, option: OptionRoom) -> Result<(), Errno> {
    let model = model(family)?;
    // SAFETY: the caller guarantees that both pointers are null or valid.
    errno::check(unsafe { option.native(model.as_raw_fd()) }).map(drop)
}

/// Performs an `ioctl` of TCP. `None`: the descriptor is not a local connection.
///
/// # Safety
/// `argument` is valid for the request.
pub(crate) unsafe fn request(fd: c_int, request: c_ulong, argument: usize) -> Option<c_int> {
    let (family, _) = addresses(fd)?;
    let _inside = guard::enter();
    let model = model(family).ok()?;
    // SAFETY: the caller guarantees that the argument is valid for the request.
    Some(unsafe { real::ioctl(model.as_raw_fd(), request, argument) })
}

/// Makes a TCP socket for one call, under any free number.
fn model(family: Family) -> Result<OwnedFd, Errno> {
    let domain = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    socket_with(domain, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Returns the state for `TCP_INFO`, as far as the descriptor shows it.
fn state(fd: c_int) -> u8 {
    // SAFETY: the kernel has just answered a call on the number, so it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let Ok(seen) = process::shown_events(socket, PollFlags::RDHUP) else {
        return options::TCP_CLOSE;
    };
    let is_over = || ends::with(fd, ends::is_over).unwrap_or(true);
    if seen.contains(PollFlags::HUP) && is_over() {
        options::TCP_CLOSE
    } else if seen.contains(PollFlags::RDHUP) {
        options::TCP_CLOSE_WAIT
    } else {
        options::TCP_ESTABLISHED
    }
}

/// Sets an option that a socket of `AF_UNIX` refuses. `None`: the descriptor is not a local
/// connection.
///
/// # Safety
/// The value is null or has the length of the option.
pub(super) unsafe fn set(fd: c_int, option: OptionValue) -> Option<Result<(), Errno>> {
    let (level, name) = (option.level, option.name);
    let socket = local_socket(fd)?;
    let _inside = guard::enter();
    if let Some(error) = options::refusal(level, name) {
        return Some(Err(error));
    }
    // SAFETY: the caller guarantees the value.
    let checked = match unsafe { switch_value(option) } {
        Some(value) => Ok(value),
        None => {
            // The options of TCP are the same for both families.
            let family = match level {
                IPPROTO_TCP => Family::V4,
                _ => addresses(fd)?.0,
            };
            // SAFETY: the caller guarantees the value.
            unsafe { checked(family, option) }
        }
    };
    Some(checked.map(|value| socket.kept().set(level, name, value)))
}

/// Returns the value of an option that is on or off, which most programs set on each connection.
/// `None`: the kernel must check the value.
///
/// # Safety
/// The value is null or has the length of the option.
unsafe fn switch_value(option: OptionValue) -> Option<Value> {
    let is_switch = matches!(
        (option.level, option.name),
        (SOL_SOCKET, SO_REUSEADDR) | (IPPROTO_TCP, TCP_NODELAY | TCP_CORK | TCP_QUICKACK)
    );
    if !is_switch || option.value.is_null() || (option.len as usize) < size_of::<c_int>() {
        return None;
    }
    // SAFETY: the caller guarantees this many bytes; the read permits any alignment.
    let number = unsafe { option.value.cast::<c_int>().read_unaligned() };
    Some(Value::number((number != 0).into()))
}

/// Returns the value that the kernel's TCP stores for an option.
///
/// # Safety
/// The value is null or has the length of the option.
unsafe fn checked(family: Family, option: OptionValue) -> Result<Value, Errno> {
    let model = model(family)?;
    // SAFETY: the caller guarantees the value.
    errno::check(unsafe { option.native(model.as_raw_fd()) })?;
    Value::of(model.as_raw_fd(), option.level, option.name).ok_or(Errno::NOPROTOOPT)
}
