//! The functions that receive bytes.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;
use std::time::Instant;

use libc::{iovec, mmsghdr, msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t, timespec};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;

use super::{alias, jump, waits};
use crate::fd;
use crate::local::{self, ends, spinning};
use crate::process::errno::{self, ToC};
use crate::process::real;
use crate::socket::Socket;
use crate::socket::vector::{PARTS_MAX, Vector};

/// The number of messages that the kernel receives or sends at a time.
const MESSAGES_MAX: c_uint = 1024;

jump! {
    fn readv(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t =
        if fd::is_connection(fd) => read_vector_in_library;

    /// Hook of `preadv2`, which reads from a stream if the offset is -1.
    fn preadv2(
        fd: c_int, vector: *const iovec, count: c_int, at: off64_t, flags: c_int,
    ) -> ssize_t = if fd::is_connection(fd) => read_at_in_library;

    fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t =
        if fd::is_connection(fd) => read_in_library;

    fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t =
        if fd::is_connection(fd) => receive_in_library;

    /// Hook of `recvfrom`. TCP returns no source address but `AF_UNIX` does, so it is left out.
    fn recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t,
    ) -> ssize_t = if fd::is_connection(fd) => receive_from_in_library;

    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t =
        if fd::is_connection(fd) => receive_message_in_library;
}

/// Performs `readv` on a connection.
///
/// # Safety
/// As for `readv`.
#[inline(never)]
unsafe extern "C-unwind" fn read_vector_in_library(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: by the caller's contract the list has `count` valid parts, which are writable.
    let filled = super::dispatch(fd, |socket, fd| unsafe {
        receive_parts(socket, fd, vector, count, 0)
    });
    if let Some(received) = filled {
        return received;
    }
    // SAFETY: the caller's arguments, unchanged.
    ends::received(fd, unsafe { real::readv(fd, vector, count) })
}

/// Performs `preadv2` on a connection.
///
/// # Safety
/// As for `preadv2`.
#[inline(never)]
unsafe extern "C-unwind" fn read_at_in_library(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    at: off64_t,
    flags: c_int,
) -> ssize_t {
    let filled = super::dispatch(fd, |socket, fd| {
        let flags = positioned(at, flags)?;
        // SAFETY: by the caller's contract the list has `count` valid parts, which are writable.
        unsafe { receive_parts(socket, fd, vector, count, flags) }
    });
    if let Some(received) = filled {
        return received;
    }
    // SAFETY: the caller's arguments, unchanged.
    ends::received(fd, unsafe { real::preadv2(fd, vector, count, at, flags) })
}

/// # Safety
/// The list has `count` valid parts, which are writable.
unsafe fn receive_parts(
    socket: &Socket,
    fd: BorrowedFd<'_>,
    vector: *const iovec,
    count: c_int,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees the list.
    let mut vector = unsafe { Vector::copy(vector, count) }?;
    if vector.len() == 0 {
        // The kernel does not call the socket for an empty list.
        return Ok(0);
    }
    // SAFETY: the caller guarantees that the parts are writable.
    unsafe { socket.receive(fd, &mut vector, flags) }
}

/// Performs `read` on a connection, which may be polled first.
///
/// # Safety
/// As for `read`.
#[inline(never)]
unsafe extern "C-unwind" fn read_in_library(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
) -> ssize_t {
    let filled = super::dispatch(fd, |socket, fd| match len {
        0 => Ok(0),
        _ => receive_bytes(socket, fd, buffer, len, 0),
    });
    if let Some(received) = filled {
        return received;
    }
    if len > 0 {
        // SAFETY: the caller's arguments; on a socket, `read` is `recv` without flags.
        let call = |flags| unsafe { real::recv(fd, buffer, len, flags) };
        if let Some(received) = spinning::receive(fd, 0, call) {
            return ends::received(fd, received);
        }
    }
    // SAFETY: the caller's arguments, unchanged.
    ends::received(fd, unsafe { real::read(fd, buffer, len) })
}

/// Performs `recv` on a connection, which may be polled first.
///
/// # Safety
/// As for `recv`.
#[inline(never)]
unsafe extern "C-unwind" fn receive_in_library(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if let Some(received) = super::dispatch(fd, |socket, fd| {
        receive_bytes(socket, fd, buffer, len, flags)
    }) {
        return received;
    }
    if let Some(received) = local::receive_differently(fd, || len, flags) {
        return received;
    }
    // SAFETY: the caller's arguments.
    let call = |flags| unsafe { real::recv(fd, buffer, len, flags) };
    let received = spinning::receive(fd, flags, call).unwrap_or_else(|| call(flags));
    if received < 0 && len == 0 && local::is_end_of_wait(fd, flags) {
        return 0;
    }
    ends::received(fd, received)
}

/// Performs `recvfrom` on a connection, which has no source addresses.
///
/// # Safety
/// As for `recvfrom`.
#[inline(never)]
unsafe extern "C-unwind" fn receive_from_in_library(
    fd: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments, without the pointer for an address.
    let received = unsafe { recv(fd, buffer, len, flags) };
    if received >= 0 && !from.is_null() && !from_len.is_null() {
        // SAFETY: the pointer is not null, and by the caller's contract it is valid then.
        unsafe { *from_len = 0 };
    }
    received
}

/// Performs `recvmsg` on an offloaded or local connection.
///
/// # Safety
/// As for `recvmsg`.
#[inline(never)]
unsafe extern "C-unwind" fn receive_message_in_library(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
) -> ssize_t {
    let received = super::dispatch(fd, |socket, fd| {
        // SAFETY: by the caller's contract the message is null or valid.
        unsafe { receive_message(socket, fd, message, flags) }
    });
    if let Some(received) = received {
        return received;
    }
    if message.is_null() || !fd::is_local(fd) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::recvmsg(fd, message, flags) };
    }
    // SAFETY: by the caller's contract the message is valid.
    unsafe { receive_unnamed(fd, &mut *message, flags) }
}

/// Returns the number of bytes for which a message has room.
///
/// # Safety
/// The list has as many parts as the message says.
pub(super) unsafe fn room_of(message: &msghdr) -> usize {
    let count = message.msg_iovlen;
    if count > PARTS_MAX || (count > 0 && message.msg_iov.is_null()) {
        // The kernel refuses the list, so its parts must not be read.
        return usize::MAX;
    }
    // SAFETY: by the caller's contract the list of the message has this many parts.
    let lens = (0..count).map(|at| unsafe { (*message.msg_iov.add(at)).iov_len });
    lens.fold(0, usize::saturating_add)
}

/// Receives from a local connection, without the peer's name, which is no address of TCP, and
/// without control data.
///
/// # Safety
/// The contract of `recvmsg`.
unsafe fn receive_unnamed(fd: c_int, message: &mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by the caller's contract the list of the message is valid.
    let room = || unsafe { room_of(message) };
    if let Some(received) = local::receive_differently(fd, room, flags) {
        if received >= 0 {
            receive_no_name(message);
        }
        return received;
    }
    // Without room for descriptors, the kernel closes those that the peer has attached. TCP returns
    // none, so no program expects them.
    let name = std::mem::replace(&mut message.msg_name, ptr::null_mut());
    let control = std::mem::replace(&mut message.msg_control, ptr::null_mut());
    let control_len = std::mem::replace(&mut message.msg_controllen, 0);
    // SAFETY: the caller's message, without pointers for a name and for control data.
    let mut call = |flags| unsafe { real::recvmsg(fd, message, flags) };
    let received = spinning::receive(fd, flags, &mut call).unwrap_or_else(|| call(flags));
    (message.msg_name, message.msg_control) = (name, control);
    if received >= 0 {
        (message.msg_namelen, message.msg_controllen) = (0, 0);
        message.msg_flags &= !libc::MSG_CTRUNC;
        return received;
    }
    // SAFETY: by the caller's contract the list of the message is valid.
    if local::is_end_of_wait(fd, flags) && unsafe { room_of(message) } == 0 {
        receive_no_name(message);
        return 0;
    }
    message.msg_controllen = control_len;
    ends::received(fd, received)
}

/// Writes to a message that there is neither a name nor control data.
fn receive_no_name(message: &mut msghdr) {
    (message.msg_namelen, message.msg_controllen) = (0, 0);
    message.msg_flags = 0;
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let received = super::dispatch(fd, |socket, fd| {
        let pending = || match socket.take_error(fd) {
            0 => None,
            error => Some(Errno::from_raw_os_error(error)),
        };
        let receive = |message, flags| {
            // SAFETY: by the caller's contract the message is valid.
            unsafe { receive_message(socket, fd, message, flags) }
        };
        // SAFETY: by the caller's contract the messages and the timeout are valid.
        unsafe { receive_messages(messages, count, flags, timeout, pending, receive) }
    });
    // SAFETY: the caller's arguments, unchanged.
    received.unwrap_or_else(|| unsafe {
        if messages.is_null() || !fd::is_local(fd) {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        }
        let count = count.min(MESSAGES_MAX);
        let received = receive_from_local(fd, messages, count, flags, timeout);
        ends::received(fd, received as ssize_t) as c_int
    })
}

/// Receives several messages from a local connection: one by one if the two kinds of sockets differ
/// in a flag, or in a message without room.
///
/// # Safety
/// The contract of `recvmmsg`.
#[inline(never)]
unsafe fn receive_from_local(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: by the caller's contract there are this many messages.
    let room = |at: c_uint| unsafe { room_of(&(*messages.add(at as usize)).msg_hdr) };
    let differs = local::has_different_flag(flags) || (0..count).any(|at| room(at) == 0);
    if !differs {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { receive_unnamed_messages(fd, messages, count, flags, timeout) };
    }
    // SAFETY: the table has an entry for the number, so it is not negative.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let pending = || socket_error(socket).ok().and_then(Result::err);
    let receive = |message: *mut msghdr, flags| {
        // SAFETY: by the caller's contract the message is valid.
        let received = unsafe { receive_unnamed(fd, &mut *message, flags) };
        usize::try_from(received).map_err(|_| Errno::from_raw_os_error(errno::get()))
    };
    // SAFETY: by the caller's contract the messages and the timeout are valid.
    unsafe { receive_messages(messages, count, flags, timeout, pending, receive) }.to_c()
}

/// Receives several messages from a local connection; see [`receive_unnamed`].
///
/// # Safety
/// The contract of `recvmmsg`.
// A separate function, because a cancelled thread must have nothing to drop in the hook itself.
#[inline(never)]
unsafe fn receive_unnamed_messages(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: by the caller's contract there are this many messages.
    let header = |at: c_uint| unsafe { &mut (*messages.add(at as usize)).msg_hdr };
    let has_room = |it: &msghdr| !(it.msg_name.is_null() && it.msg_control.is_null());
    // Most programs pass neither, so nothing is allocated for them.
    let kept: Vec<msghdr> = match (0..count).any(|at| has_room(header(at))) {
        true => (0..count).map(|at| *header(at)).collect(),
        false => Vec::new(),
    };
    for at in 0..kept.len() as c_uint {
        let message = header(at);
        (message.msg_name, message.msg_control) = (ptr::null_mut(), ptr::null_mut());
        message.msg_controllen = 0;
    }
    // SAFETY: the caller's arguments, without pointers for names and control data.
    let received = unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    for (at, kept) in (0..count).zip(&kept) {
        let message = header(at);
        (message.msg_name, message.msg_control) = (kept.msg_name, kept.msg_control);
        if i64::from(at) < i64::from(received) {
            message.msg_namelen = 0;
            message.msg_flags &= !libc::MSG_CTRUNC;
        } else {
            message.msg_controllen = kept.msg_controllen;
        }
    }
    received
}

/// Ends the program if a buffer is too short, for the checked forms.
unsafe fn check(len: size_t, room: size_t) {
    if len > room {
        // SAFETY: the function has no arguments and does not return.
        unsafe { real::__chk_fail() }
    }
}

alias! {
    __read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t = read(fd, buffer, len);
    __read_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t) -> ssize_t =
        { check(len, room); read(fd, buffer, len) };
    __recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t =
        { check(len, room); recv(fd, buffer, len, flags) };
    __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int,
        from: *mut sockaddr, from_len: *mut socklen_t,
    ) -> ssize_t = { check(len, room); recvfrom(fd, buffer, len, flags, from, from_len) };
    preadv64v2(
        fd: c_int, vector: *const iovec, count: c_int, at: off64_t, flags: c_int,
    ) -> ssize_t = preadv2(fd, vector, count, at, flags);
}

fn receive_bytes(
    socket: &Socket,
    fd: BorrowedFd<'_>,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
) -> Result<usize, Errno> {
    let part = iovec {
        iov_base: buffer,
        iov_len: len.min(isize::MAX as usize),
    };
    // SAFETY: by the caller's contract the buffer of this one part is valid.
    let mut vector = unsafe { Vector::copy(&raw const part, 1) }?;
    // SAFETY: by the caller's contract the buffer is writable.
    unsafe { socket.receive(fd, &mut vector, flags) }
}

/// Returns the flags of a call with an offset. A stream has no positions, so only offset -1 is
/// permitted. All flags but `RWF_NOWAIT` concern files.
pub(super) fn positioned(at: off64_t, flags: c_int) -> Result<c_int, Errno> {
    const OF_FILES: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND;
    match at {
        ..-1 => Err(Errno::INVAL),
        -1 if flags & !(OF_FILES | libc::RWF_NOWAIT) != 0 => Err(Errno::OPNOTSUPP),
        -1 if flags & libc::RWF_NOWAIT != 0 => Ok(libc::MSG_DONTWAIT),
        -1 => Ok(0),
        _ => Err(Errno::SPIPE),
    }
}

/// # Safety
/// `message` is null or what `recvmsg` demands.
unsafe fn receive_message(
    socket: &Socket,
    fd: BorrowedFd<'_>,
    message: *mut msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees that the pointer is null or valid.
    let message = unsafe { message.as_mut() }.ok_or(Errno::FAULT)?;
    // SAFETY: the caller guarantees the list of the message.
    let mut vector = unsafe { parts_of(message) }?;
    // SAFETY: the caller guarantees that the parts are writable.
    let received = unsafe { socket.receive(fd, &mut vector, flags) }?;
    message.msg_namelen = 0;
    message.msg_controllen = 0;
    message.msg_flags = flags & (libc::MSG_OOB | libc::MSG_CMSG_CLOEXEC);
    Ok(received)
}

/// Copies the list of a message.
///
/// # Safety
/// The list has as many parts as the message says.
pub(super) unsafe fn parts_of(message: &msghdr) -> Result<Vector, Errno> {
    let fits = message.msg_iovlen <= PARTS_MAX;
    let count = fits.then_some(message.msg_iovlen as c_int);
    // SAFETY: the caller guarantees the list.
    unsafe { Vector::copy(message.msg_iov, count.ok_or(Errno::MSGSIZE)?) }
}

/// Receives several messages by `receive`. As in the kernel, a pending error is reported before
/// anything is received, and the timeout is checked after each message.
///
/// # Safety
/// The pointers are null or what `recvmmsg` demands.
unsafe fn receive_messages(
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
    pending: impl FnOnce() -> Option<Errno>,
    receive: impl Fn(*mut msghdr, c_int) -> Result<usize, Errno>,
) -> Result<c_int, Errno> {
    // SAFETY: the caller guarantees that the pointer is null or valid.
    let mut timeout = unsafe { timeout.as_mut() };
    let deadline = match &timeout {
        Some(timeout) => {
            let within = waits::duration(timeout).ok_or(Errno::INVAL)?;
            // `None` if the deadline is too far away to be represented.
            Instant::now().checked_add(within)
        }
        None => None,
    };
    if let Some(error) = pending() {
        return Err(error);
    }
    let call = |message, first| {
        let wait = if first || flags & libc::MSG_WAITFORONE == 0 {
            0
        } else {
            libc::MSG_DONTWAIT
        };
        receive(message, (flags & !libc::MSG_WAITFORONE) | wait)
    };
    let has_passed = || deadline.is_some_and(|deadline| deadline <= Instant::now());
    let received = each(messages, count, call, has_passed)?;
    if let (Some(timeout), Some(deadline)) = (&mut timeout, deadline)
        && received > 0
    {
        **timeout = waits::spec(deadline.saturating_duration_since(Instant::now()));
    }
    Ok(received)
}

/// Calls `call` for each message until one fails or `is_over` returns true. Returns the number of
/// messages; a failure is returned only for the first message.
pub(super) fn each(
    messages: *mut mmsghdr,
    count: c_uint,
    mut call: impl FnMut(*mut msghdr, bool) -> Result<usize, Errno>,
    is_over: impl Fn() -> bool,
) -> Result<c_int, Errno> {
    if messages.is_null() && count > 0 {
        return Err(Errno::FAULT);
    }
    let count = count.min(MESSAGES_MAX);
    for index in 0..count {
        // SAFETY: by the caller's contract there are this many messages.
        let message = unsafe { &mut *messages.add(index as usize) };
        match call(&raw mut message.msg_hdr, index == 0) {
            Ok(bytes) => message.msg_len = c_uint::try_from(bytes).unwrap_or(c_uint::MAX),
            Err(error) if index == 0 => return Err(error),
            Err(_) => return Ok(index.cast_signed()),
        }
        if is_over() {
            return Ok(index.cast_signed() + 1);
        }
    }
    Ok(count.cast_signed())
}
