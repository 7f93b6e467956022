//! The functions that send bytes.
//!
//! A send on a local connection returns through a frame of this library, because a peer that has
//! closed is no error for the first such call; see [`local::sending`].

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;
use std::ptr;

use libc::{
    CMSG_DATA, CMSG_FIRSTHDR, CMSG_LEN, CMSG_NXTHDR, SCM_RIGHTS, SOL_SOCKET, iovec, mmsghdr,
    msghdr, off64_t, size_t, sockaddr, socklen_t, ssize_t,
};
use rustix::io::Errno;

use super::receiving::{each, parts_of, positioned, room_of};
use super::{alias, hook, jump};
use crate::fd;
use crate::local;
use crate::process::errno::{self, ToC};
use crate::process::{real, restrictions};
use crate::setup::inheritance;
use crate::sharing::exposing;
use crate::socket::Socket;
use crate::socket::vector::{PARTS_MAX, Vector};

hook! {
    /// Hook of `pwritev2`, which writes to a stream if the offset is -1.
    fn pwritev2(
        fd: c_int, vector: *const iovec, count: c_int, at: off64_t, flags: c_int,
    ) -> ssize_t = |socket, fd| {
        let flags = positioned(at, flags)?;
        // SAFETY: by the caller's contract the list has `count` valid parts.
        let mut vector = unsafe { Vector::copy(vector, count) }?;
        if vector.len() == 0 {
            return Ok(0);
        }
        socket.send(fd, &mut vector, flags)
    };
}

jump! {
    fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t =
        if fd::is_connection(fd) => write_in_library;

    fn send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        if fd::is_connection(fd) => send_in_library;

    fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t =
        if fd::is_connection(fd) => write_vector_in_library;

    /// Hook of `sendmsg`. Descriptors that are passed to another process carry bytes from then on.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t =
        if fd::is_connection(fd) || message.as_ref().is_some_and(has_ignored) =>
            send_message_in_library;
}

/// Performs `write` on a connection.
///
/// # Safety
/// As for `write`.
#[inline(never)]
unsafe extern "C-unwind" fn write_in_library(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
) -> ssize_t {
    let call = |socket: &Socket, fd: BorrowedFd<'_>| send_bytes(socket, fd, buffer, len, 0);
    if let Some(sent) = super::dispatch(fd, call) {
        return sent;
    }
    if restrictions::is_restricted() || !fd::is_local(fd) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::write(fd, buffer, len) };
    }
    // SAFETY: the caller's arguments; on a socket, `write` is `send` with flags.
    let call = |flags| unsafe { real::send(fd, buffer, len, flags) };
    local::sending::send(fd, 0, || len, call)
}

/// Performs `send` on a connection.
///
/// # Safety
/// As for `send`.
#[inline(never)]
unsafe extern "C-unwind" fn send_in_library(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    let call = |socket: &Socket, fd: BorrowedFd<'_>| send_bytes(socket, fd, buffer, len, flags);
    if let Some(sent) = super::dispatch(fd, call) {
        return sent;
    }
    // SAFETY: the caller's arguments, except for a flag.
    let call = |flags| unsafe { real::send(fd, buffer, len, flags) };
    match fd::is_local(fd) {
        true => local::sending::send(fd, flags, || len, call),
        false => call(flags),
    }
}

/// Performs `writev` on a connection.
///
/// # Safety
/// As for `writev`.
#[inline(never)]
unsafe extern "C-unwind" fn write_vector_in_library(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
) -> ssize_t {
    let sent = super::dispatch(fd, |socket, fd| {
        // SAFETY: by the caller's contract the list has `count` valid parts.
        let mut vector = unsafe { Vector::copy(vector, count) }?;
        if vector.len() == 0 {
            // The kernel does not call the socket for an empty list.
            return Ok(0);
        }
        socket.send(fd, &mut vector, 0)
    });
    if let Some(sent) = sent {
        return sent;
    }
    let parts = usize::try_from(count).unwrap_or(0);
    let is_named = restrictions::is_restricted() || !(1..=PARTS_MAX).contains(&parts);
    if is_named || !fd::is_local(fd) {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { real::writev(fd, vector, count) };
    }
    // SAFETY: a message of zeros is valid.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (vector.cast_mut(), parts);
    // SAFETY: by the caller's contract the list has this many parts.
    let len = || unsafe { room_of(&message) };
    let call = |flags| {
        // SAFETY: as above; the parts are only read.
        let sent = unsafe { real::sendmsg(fd, &raw const message, flags) };
        // The kernel does not call the socket for parts without bytes.
        match sent < 0 && errno::get() == libc::EPIPE && len() == 0 {
            true => 0,
            false => sent,
        }
    };
    local::sending::send(fd, 0, len, call)
}

/// Sends a message without an address and control data on a local connection.
///
/// # Safety
/// The contract of `sendmsg`.
unsafe fn send_on_local(fd: c_int, message: &msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller guarantees the list of the message.
    let len = || unsafe { room_of(message) };
    // SAFETY: the caller's arguments, except for a flag.
    let call = |flags| unsafe { real::sendmsg(fd, message, flags) };
    local::sending::send(fd, flags, len, call)
}

/// Hook of `sendto`. The address is ignored, as TCP does on a connected socket.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments, for a connection without the address.
    unsafe {
        if fd::is_connection(fd) {
            return send(fd, buffer, len, flags);
        }
        real::sendto(fd, buffer, len, flags, to, to_len)
    }
}

/// Performs `sendmsg` on an offloaded connection, or of a message with an address or control data.
///
/// # Safety
/// As for `sendmsg`.
#[inline(never)]
unsafe extern "C-unwind" fn send_message_in_library(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    let sent = super::dispatch(fd, |socket, fd| {
        // SAFETY: by the caller's contract the message is null or valid.
        unsafe { send_message(socket, fd, message, flags) }
    });
    if let Some(sent) = sent {
        return sent;
    }
    // SAFETY: by the caller's contract the message is null or valid.
    match unsafe { message.as_ref() } {
        // SAFETY: as above.
        Some(message) if fd::is_local(fd) => unsafe { send_without_ignored(fd, message, flags) },
        // SAFETY: the caller's arguments, unchanged.
        _ => unsafe {
            expose_passed(message);
            real::sendmsg(fd, message, flags)
        },
    }
}

/// Returns true for a message with an address or control data, which TCP ignores on a connection.
fn has_ignored(message: &msghdr) -> bool {
    !(message.msg_name.is_null() && message.msg_control.is_null())
}

/// Sends a message on a local connection without what TCP ignores.
///
/// # Safety
/// The contract of `sendmsg`.
unsafe fn send_without_ignored(fd: c_int, message: &msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller guarantees the control data of the message.
    if let Err(why) = unsafe { check_control(message) } {
        errno::set(why.raw_os_error());
        return -1;
    }
    let mut plain = *message;
    (plain.msg_name, plain.msg_namelen) = (ptr::null_mut(), 0);
    (plain.msg_control, plain.msg_controllen) = (ptr::null_mut(), 0);
    // SAFETY: the caller guarantees the list of the message.
    unsafe { send_on_local(fd, &plain, flags) }
}

/// Hook of `sendmmsg`. Descriptors that are passed to another process carry bytes from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let sent = super::dispatch(fd, |socket, fd| {
        let call = |message: *mut msghdr, _| {
            // SAFETY: by the caller's contract the message is valid.
            unsafe { send_message(socket, fd, message, flags) }
        };
        each(messages, count, call, || false)
    });
    // SAFETY: the caller's arguments, unchanged.
    sent.unwrap_or_else(|| unsafe {
        if fd::is_local(fd) && !is_sent_as_named(messages, count) {
            let call = |message: *mut msghdr, _| {
                let sent = send_without_ignored(fd, &*message, flags);
                usize::try_from(sent).map_err(|_| Errno::from_raw_os_error(errno::get()))
            };
            return each(messages, count, call, || false).to_c();
        }
        let known = if messages.is_null() { 0 } else { count };
        let header = |index: c_uint| &raw const (*messages.add(index as usize)).msg_hdr;
        (0..known).for_each(|index| expose_passed(header(index)));
        real::sendmmsg(fd, messages, count, flags)
    })
}

/// Returns true if the program has restricted its system calls, and no message has parts that TCP
/// ignores.
///
/// # Safety
/// `messages` is null or has `count` entries.
unsafe fn is_sent_as_named(messages: *const mmsghdr, count: c_uint) -> bool {
    // SAFETY: the caller guarantees this many entries.
    let is_plain = |at: c_uint| unsafe { !has_ignored(&(*messages.add(at as usize)).msg_hdr) };
    restrictions::is_restricted() && !messages.is_null() && (0..count).all(is_plain)
}

pub(super) fn send_bytes(
    socket: &Socket,
    fd: BorrowedFd<'_>,
    buffer: *const c_void,
    len: size_t,
    flags: c_int,
) -> Result<usize, Errno> {
    let part = iovec {
        iov_base: buffer.cast_mut(),
        iov_len: len.min(isize::MAX as usize),
    };
    // SAFETY: by the caller's contract the buffer of this one part is valid; it is only read.
    let mut vector = unsafe { Vector::copy(&raw const part, 1) }?;
    socket.send(fd, &mut vector, flags)
}

/// # Safety
/// `message` is null or what `sendmsg` demands.
unsafe fn send_message(
    socket: &Socket,
    fd: BorrowedFd<'_>,
    message: *const msghdr,
    flags: c_int,
) -> Result<usize, Errno> {
    // SAFETY: the caller guarantees that the pointer is null or valid.
    let message = unsafe { message.as_ref() }.ok_or(Errno::FAULT)?;
    // SAFETY: the caller guarantees the control data of the message.
    unsafe { check_control(message) }?;
    // SAFETY: the caller guarantees the list of the message.
    let mut vector = unsafe { parts_of(message) }?;
    socket.send(fd, &mut vector, flags)
}

/// Checks control data. TCP ignores descriptors and credentials, refuses unknown types of
/// `SOL_SOCKET`, and ignores other levels.
///
/// # Safety
/// The control data is null or has `msg_controllen` bytes.
unsafe fn check_control(message: &msghdr) -> Result<(), Errno> {
    // SAFETY: the caller guarantees the data; the macros stay within its length.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: a pointer from the macros is null, or to a header within the data.
    while let Some(one) = unsafe { next.as_ref() } {
        let start = message.msg_control.addr();
        let left = start + message.msg_controllen - next.addr();
        if one.cmsg_len < size_of::<libc::cmsghdr>() || one.cmsg_len > left {
            return Err(Errno::INVAL);
        }
        let is_known = matches!(one.cmsg_type, libc::SCM_RIGHTS | libc::SCM_CREDENTIALS);
        if one.cmsg_level == libc::SOL_SOCKET && !is_known {
            return Err(Errno::INVAL);
        }
        // SAFETY: the header was checked to be within the data.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    Ok(())
}

/// Prepares descriptors that are about to be passed over a Unix socket.
///
/// # Safety
/// `message` is null or what `sendmsg` demands.
unsafe fn expose_passed(message: *const msghdr) {
    if message.is_null() {
        return;
    }
    // SAFETY: by the caller's contract the message is valid; the macros stay within its control
    // data.
    unsafe {
        if (*message).msg_control.is_null() {
            return;
        }
        let control = (*message).msg_control.addr();
        let end = control.saturating_add((*message).msg_controllen);
        let mut header = CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == SOL_SOCKET && (*header).cmsg_type == SCM_RIGHTS {
                // The kernel refuses a message whose length exceeds the control data.
                let len = ((*header).cmsg_len as usize).min(end.saturating_sub(header.addr()));
                let len = len.saturating_sub(CMSG_LEN(0) as usize);
                let numbers = CMSG_DATA(header).cast::<c_int>();
                for index in 0..len / size_of::<c_int>() {
                    let fd = numbers.add(index).read_unaligned();
                    exposing::expose(fd);
                    inheritance::withdraw_passed(fd);
                }
            }
            header = CMSG_NXTHDR(message, header);
        }
    }
}

alias! {
    __write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t = write(fd, buffer, len);
    __send(fd: c_int, buffer: *const c_void, len: size_t, flags: c_int) -> ssize_t =
        send(fd, buffer, len, flags);
    pwritev64v2(
        fd: c_int, vector: *const iovec, count: c_int, at: off64_t, flags: c_int,
    ) -> ssize_t = pwritev2(fd, vector, count, at, flags);
}
