//! The functions that send and receive; each does as the socket call of its name without `r`.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, off_t, sockaddr, socklen_t, ssize_t};
use rustix::io::Errno;

use crate::fault::{self, Fault};

use super::exported::{copy_address, socket_addresses};
use super::socket::Socket;
use super::table;

/// The result of a function that returns a number of bytes.
fn bytes(result: Result<usize, Fault>) -> ssize_t {
    match result {
        Ok(count) => count.cast_signed(),
        Err(fault) => {
            fault::set_errno(fault);
            -1
        }
    }
}

/// The flags that have a meaning; `MSG_NOSIGNAL` has none, because no call raises a signal.
const KNOWN: c_int = libc::MSG_DONTWAIT | libc::MSG_PEEK | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;

fn may_wait(socket: &Socket, flags: c_int) -> Result<bool, Fault> {
    if flags & !KNOWN != 0 {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(flags & libc::MSG_DONTWAIT == 0 && socket.with(|inner| inner.options.may_wait()))
}

/// Repeats `transfer` from the byte on that it receives, until it has transferred `len` bytes; not
/// longer than the socket lets this call wait.
fn repeat(
    len: usize,
    mut transfer: impl FnMut(usize) -> Result<usize, Fault>,
) -> Result<usize, Fault> {
    let mut done = 0;
    while done < len {
        match transfer(done) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}

/// # Safety
/// `data` is readable for `len` bytes.
unsafe fn send(socket: &Socket, data: *const u8, len: usize, flags: c_int) -> Result<usize, Fault> {
    let may_wait = may_wait(socket, flags)?;
    repeat(len, |done| {
        socket.wait(may_wait, None, |inner| {
            let Some(stream) = inner.sending()? else {
                return Ok(None);
            };
            // SAFETY: the rest of the data is readable (caller).
            let sent = unsafe { stream.send(data.add(done), len - done) }?;
            Ok((sent > 0).then_some(sent))
        })
    })
}

/// # Safety
/// `out` is writable for `len` bytes.
unsafe fn receive(socket: &Socket, out: *mut u8, len: usize, flags: c_int) -> Result<usize, Fault> {
    let may_wait = may_wait(socket, flags)?;
    let receive = |done: usize| {
        socket.wait(may_wait, None, |inner| {
            // SAFETY: the rest of the room is writable (caller).
            inner.receiving(|stream| unsafe {
                let (out, len) = (out.add(done), len - done);
                match flags & libc::MSG_PEEK {
                    0 => stream.receive(out, len),
                    _ => stream.peek(out, len),
                }
            })
        })
    };
    match flags & (libc::MSG_WAITALL | libc::MSG_PEEK) {
        _ if len == 0 => Ok(0),
        libc::MSG_WAITALL => repeat(len, receive),
        _ => receive(0),
    }
}

/// Transfers the buffers of a list in order, until one is transferred in part.
///
/// # Safety
/// `list` points to `count` buffers, for which `transfer` may be called.
unsafe fn each(
    list: *const iovec,
    count: usize,
    mut transfer: impl FnMut(&iovec, bool) -> Result<usize, Fault>,
) -> Result<usize, Fault> {
    let mut done = 0;
    for index in 0..count {
        // SAFETY: the caller guarantees the list.
        let buffer = unsafe { &*list.add(index) };
        if buffer.iov_len == 0 {
            continue;
        }
        match transfer(buffer, done > 0) {
            Ok(moved) => {
                done += moved;
                if moved < buffer.iov_len {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(fault) => return Err(fault),
        }
    }
    Ok(done)
}

/// # Safety
/// As for [`each`]; the buffers are readable.
unsafe fn send_list(
    fd: c_int,
    list: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<usize, Fault> {
    let socket = table::get(fd)?;
    // SAFETY: as for the caller.
    unsafe {
        each(list, count, |buffer, _| {
            send(&socket, buffer.iov_base.cast(), buffer.iov_len, flags)
        })
    }
}

/// # Safety
/// As for [`each`]; the buffers are writable.
unsafe fn receive_list(
    fd: c_int,
    list: *const iovec,
    count: usize,
    flags: c_int,
) -> Result<usize, Fault> {
    let socket = table::get(fd)?;
    // SAFETY: as for the caller.
    unsafe {
        each(list, count, |buffer, has_some| {
            // A call that has received something waits for no more, unless it must.
            let waits = !has_some || flags & libc::MSG_WAITALL != 0;
            let flags = if waits {
                flags
            } else {
                flags | libc::MSG_DONTWAIT
            };
            receive(&socket, buffer.iov_base.cast(), buffer.iov_len, flags)
        })
    }
}

/// `rsend`.
///
/// # Safety
/// As send(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsend(fd: c_int, data: *const c_void, len: usize, flags: c_int) -> ssize_t {
    let socket = table::get(fd);
    // SAFETY: the program passes readable memory.
    bytes(socket.and_then(|socket| unsafe { send(&socket, data.cast(), len, flags) }))
}

/// `rsendto`: a connection has one peer, so an address is an error.
///
/// # Safety
/// As sendto(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsendto(
    fd: c_int,
    data: *const c_void,
    len: usize,
    flags: c_int,
    to: *const sockaddr,
    to_len: socklen_t,
) -> ssize_t {
    if !to.is_null() || to_len > 0 {
        return bytes(table::get(fd).and(Err(Errno::ISCONN)));
    }
    // SAFETY: as for the caller.
    unsafe { rsend(fd, data, len, flags) }
}

/// `rwrite`.
///
/// # Safety
/// As write(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rwrite(fd: c_int, data: *const c_void, len: usize) -> ssize_t {
    // SAFETY: as for the caller.
    unsafe { rsend(fd, data, len, 0) }
}

/// `rsendmsg`, without control messages.
///
/// # Safety
/// As sendmsg(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program passes a message, whose buffers are readable.
    bytes(unsafe {
        let message = &*message;
        match message.msg_control.is_null() || message.msg_controllen == 0 {
            true => send_list(fd, message.msg_iov, message.msg_iovlen, flags),
            false => Err(Errno::OPNOTSUPP),
        }
    })
}

/// `rwritev`.
///
/// # Safety
/// As writev(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rwritev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL);
    // SAFETY: the program passes a list of readable buffers.
    bytes(count.and_then(|count| unsafe { send_list(fd, list, count, 0) }))
}

/// `rrecv`.
///
/// # Safety
/// As recv(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rrecv(fd: c_int, out: *mut c_void, len: usize, flags: c_int) -> ssize_t {
    let socket = table::get(fd);
    // SAFETY: the program passes writable memory.
    bytes(socket.and_then(|socket| unsafe { receive(&socket, out.cast(), len, flags) }))
}

/// `rrecvfrom`.
///
/// # Safety
/// As recvfrom(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvfrom(
    fd: c_int,
    out: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
) -> ssize_t {
    // SAFETY: as for the caller.
    let received = unsafe { rrecv(fd, out, len, flags) };
    if received >= 0
        && !from.is_null()
        && let Ok((_, Some(peer))) = socket_addresses(fd)
    {
        // SAFETY: the program passes room for an address.
        unsafe { copy_address(peer, from, from_len) };
    }
    received
}

/// `rread`.
///
/// # Safety
/// As read(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rread(fd: c_int, out: *mut c_void, len: usize) -> ssize_t {
    // SAFETY: as for the caller.
    unsafe { rrecv(fd, out, len, 0) }
}

/// `rrecvmsg`, without control messages.
///
/// # Safety
/// As recvmsg(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rrecvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program passes a message, whose buffers are writable.
    unsafe {
        let received = receive_list(fd, (*message).msg_iov, (*message).msg_iovlen, flags);
        if received.is_ok() {
            ((*message).msg_controllen, (*message).msg_flags) = (0, 0);
            (*message).msg_namelen = 0;
        }
        bytes(received)
    }
}

/// `rreadv`.
///
/// # Safety
/// As readv(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rreadv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    let count = usize::try_from(count).map_err(|_| Errno::INVAL);
    // SAFETY: the program passes a list of writable buffers.
    bytes(count.and_then(|count| unsafe { receive_list(fd, list, count, 0) }))
}

/// `riomap(3)`: maps a buffer for the peer, under an offset that the program chooses or, for -1,
/// the address of the buffer.
///
/// # Safety
/// The buffer stays allocated until `riounmap` or `rclose`.
#[unsafe(no_mangle)]
unsafe extern "C" fn riomap(
    fd: c_int,
    buffer: *mut c_void,
    len: usize,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    let offset = match offset {
        -1 => buffer.addr() as u64,
        offset => offset.cast_unsigned(),
    };
    let map = || {
        // Memory that the peer cannot write needs no mapping: sends copy it.
        if protection & libc::PROT_WRITE == 0 {
            return Err(Errno::OPNOTSUPP);
        }
        let socket = table::get(fd)?;
        socket.wait(true, None, |inner| {
            let Some(stream) = inner.sending()? else {
                return Ok(None);
            };
            match stream.has_control() {
                true => stream.map(buffer, len, offset).map(Some),
                false => Ok(None),
            }
        })
    };
    match map() {
        Ok(()) => offset.cast_signed(),
        Err(fault) => fault::minus_one(Err(fault)).into(),
    }
}

/// `riounmap(3)`.
///
/// # Safety
/// None: the buffer is not accessed.
#[unsafe(no_mangle)]
unsafe extern "C" fn riounmap(fd: c_int, buffer: *mut c_void, len: usize) -> c_int {
    let unmap = || {
        table::get(fd)?.with(|inner| match &mut inner.stream {
            Some(stream) => stream.unmap(buffer.addr(), len),
            None => Err(Errno::INVAL),
        })
    };
    fault::minus_one(unmap())
}

/// `riowrite(3)`: writes to a buffer that the peer has mapped.
///
/// # Safety
/// `data` is readable for `len` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn riowrite(
    fd: c_int,
    data: *const c_void,
    len: usize,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    let write = || {
        let socket = table::get(fd)?;
        let may_wait = may_wait(&socket, flags)?;
        repeat(len, |done| {
            socket.wait(may_wait, None, |inner| {
                let Some(stream) = inner.sending()? else {
                    return Ok(None);
                };
                let at = offset.cast_unsigned().checked_add(done as u64);
                let at = at.ok_or(Errno::INVAL)?;
                // SAFETY: the rest of the data is readable (caller).
                let written = unsafe {
                    let rest = data.cast::<u8>().add(done);
                    stream.write_mapped(rest, len - done, at)
                }?;
                Ok((written > 0).then_some(written))
            })
        })
    };
    bytes(write())
}
