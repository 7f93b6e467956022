//! The functions that make, connect and end sockets; each does as the socket call of its name
//! without `r`.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::os::fd::RawFd;

use libc::{sockaddr, socklen_t};
use rustix::io::Errno;

use crate::cm;
use crate::fault::{self, Fault};

use super::socket::{Socket, addresses};
use super::table;

/// The result of a function that returns a descriptor.
fn descriptor(result: Result<RawFd, Fault>) -> c_int {
    result.unwrap_or_else(|fault| fault::minus_one(Err(fault)))
}

/// `rsocket`. Datagrams are not supported.
#[unsafe(no_mangle)]
extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let make = || {
        if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
            return Err(Errno::AFNOSUPPORT);
        }
        if kind != libc::SOCK_STREAM || !matches!(protocol, 0 | libc::IPPROTO_TCP) {
            return Err(Errno::PROTONOSUPPORT);
        }
        Socket::new(domain).map(table::add)
    };
    descriptor(make())
}

/// `rbind`.
///
/// # Safety
/// As bind(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rbind(fd: c_int, address: *const sockaddr, _len: socklen_t) -> c_int {
    let socket = table::get(fd);
    fault::minus_one(
        socket.and_then(|socket| socket.with(|inner| inner.bind(address.cast_mut().cast()))),
    )
}

/// `rlisten`.
#[unsafe(no_mangle)]
extern "C" fn rlisten(fd: c_int, backlog: c_int) -> c_int {
    let socket = table::get(fd);
    fault::minus_one(socket.and_then(|socket| socket.with(|inner| inner.listen(backlog))))
}

/// `raccept`.
///
/// # Safety
/// As accept(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn raccept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let accepted = table::get(fd).and_then(|socket| socket.accept());
    descriptor(accepted.map(|socket| {
        let peer = socket.with(|inner| addresses(inner).1);
        if let Some(peer) = peer {
            // SAFETY: the program passes null or room for an address.
            unsafe { copy_address(peer, address, len) };
        }
        table::add(socket)
    }))
}

/// `rconnect`.
///
/// # Safety
/// As connect(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rconnect(fd: c_int, address: *const sockaddr, _len: socklen_t) -> c_int {
    let connect = || {
        let socket = table::get(fd)?;
        socket.connect(address.cast_mut().cast())?;
        let may_wait = socket.with(|inner| inner.options.may_wait());
        let connected = socket.wait(may_wait, None, |inner| {
            inner.is_connected().map(|is| is.then_some(()))
        });
        connected.map_err(|fault| match fault {
            Errno::AGAIN => Errno::INPROGRESS,
            fault => fault,
        })
    };
    fault::minus_one(connect())
}

/// `rshutdown`.
#[unsafe(no_mangle)]
extern "C" fn rshutdown(fd: c_int, how: c_int) -> c_int {
    fault::minus_one(table::get(fd).and_then(|socket| socket.shut_down(how)))
}

/// `rclose`.
#[unsafe(no_mangle)]
extern "C" fn rclose(fd: c_int) -> c_int {
    fault::minus_one(table::remove(fd).map(|socket| socket.close()))
}

/// Returns the local and the remote address of a socket.
pub(super) fn socket_addresses(
    fd: RawFd,
) -> Result<(Option<SocketAddr>, Option<SocketAddr>), Fault> {
    Ok(table::get(fd)?.with(|inner| addresses(inner)))
}

/// Copies an address, or as much of it as the program has room for. Stores its length.
///
/// # Safety
/// `to` is null, or has room for as many bytes as `len` points to.
pub(super) unsafe fn copy_address(address: SocketAddr, to: *mut sockaddr, len: *mut socklen_t) {
    if to.is_null() || len.is_null() {
        return;
    }
    let storage = cm::storage(address);
    let whole = match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    // SAFETY: the caller guarantees the room; the storage is longer than every address.
    unsafe {
        let count = whole.min(*len as usize);
        let from = (&raw const storage).cast::<u8>();
        to.cast::<u8>().copy_from_nonoverlapping(from, count);
        len.write(whole as socklen_t);
    }
}

/// `rgetpeername`.
///
/// # Safety
/// As getpeername(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rgetpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let peer = socket_addresses(fd).and_then(|(_, peer)| peer.ok_or(Errno::NOTCONN));
    // SAFETY: the program passes room for an address.
    fault::minus_one(peer.map(|peer| unsafe { copy_address(peer, address, len) }))
}

/// `rgetsockname`: the address of all devices for a socket that has none.
///
/// # Safety
/// As getsockname(2) says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let local = socket_addresses(fd).map(|(local, _)| local);
    let any = || match table::get(fd)?.domain {
        libc::AF_INET6 => Ok((std::net::Ipv6Addr::UNSPECIFIED, 0).into()),
        _ => Ok((std::net::Ipv4Addr::UNSPECIFIED, 0).into()),
    };
    let local = local.and_then(|local| local.map_or_else(any, Ok));
    // SAFETY: the program passes room for an address.
    fault::minus_one(local.map(|local| unsafe { copy_address(local, address, len) }))
}

/// `rsetsockopt`, as setsockopt(2).
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rsetsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    let set = || {
        let socket = table::get(fd)?;
        if value.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the program passes a value of this length.
        let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), len as usize) };
        socket.with(|inner| {
            let is_made = inner.stream.is_some();
            inner.options.set(level, name, value, is_made)
        })
    };
    fault::minus_one(set())
}

/// `rgetsockopt`, as getsockopt(2).
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rgetsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let get = || {
        let socket = table::get(fd)?;
        let inner = socket.progress();
        let found = inner.options.get(level, name, inner.error())?;
        drop(inner);
        if value.is_null() || len.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the program passes room of the length that its variable says.
        unsafe {
            let count = found.len().min(*len as usize);
            value
                .cast::<u8>()
                .copy_from_nonoverlapping(found.as_ptr(), count);
            len.write(count as socklen_t);
        }
        Ok(())
    };
    fault::minus_one(get())
}

/// `rfcntl`: `F_GETFL` and `F_SETFL` with `O_NONBLOCK`. The C function has a variable number of
/// arguments, of which these two commands use the third; on Linux it is passed as that of any
/// function.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rfcntl(fd: c_int, command: c_int, flags: c_int) -> c_int {
    let socket = match table::get(fd) {
        Ok(socket) => socket,
        Err(fault) => return fault::minus_one(Err(fault)),
    };
    match command {
        libc::F_GETFL => {
            let is_nonblocking = socket.with(|inner| inner.options.is_nonblocking);
            let flag = if is_nonblocking { libc::O_NONBLOCK } else { 0 };
            libc::O_RDWR | flag
        }
        libc::F_SETFL => {
            let is_nonblocking = flags & libc::O_NONBLOCK != 0;
            socket.with(|inner| inner.options.is_nonblocking = is_nonblocking);
            0
        }
        _ => fault::minus_one(Err(Errno::INVAL)),
    }
}
