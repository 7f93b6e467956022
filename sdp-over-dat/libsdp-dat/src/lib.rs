//! `libsdp-dat.so.1`: stream sockets over RDMA for programs in C, without `LD_PRELOAD`.
//!
//! A program includes `sdp_dat.h` and links with `-lsdp-dat`. The sockets are those of
//! `sdp-over-dat`, over any DAT provider; `docs/man/sdp_dat.3` lists the calls and their
//! differences from the kernel's.
//!
//! | Module | Contents |
//! |---|---|
//! | `option` | `getsockopt` and `setsockopt` |
//! | `socket` | a socket: fresh, listening, or one end of a connection |
//! | `table` | the numbers of sockets |
//! | `address` | socket addresses of C |
//! | `memory` | memory of the caller |
//! | `errno` | results of calls, and panics |
//!
//! # System calls, copies, locks and allocations of one send or receive
//!
//! Those of `sdp-over-dat`. The library adds one read lock and one reference count.

mod address;
mod errno;
mod memory;
mod option;
mod socket;
mod table;

use std::ffi::c_int;
use std::sync::Once;

use libc::{socklen_t, ssize_t};

use crate::address::{Family, IPPROTO_SDP};
use crate::errno::{Errno, Outcome, answer};
use crate::memory::{In, Len, Out};
use crate::socket::Socket;
use crate::table::Table;

static SOCKETS: Table<Socket> = Table::new();

/// Prepares the library at the first socket.
fn begin() {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let own = host::library::file_of(begin as fn() as usize);
        let registry = own.map(|own| own.with_file_name(dat_api::LIBRARY_NAME));
        if let Some(registry) = registry.filter(|registry| registry.exists()) {
            dat_api::Library::prefer(registry);
        }
        // SAFETY: the function does not unwind, and the library is never unloaded.
        unsafe { libc::atexit(close_all) };
    });
}

/// Closes the sockets that are open at the exit of the program. The last one that is dropped waits
/// until the bytes of all are sent, as the kernel sends those of its sockets.
extern "C" fn close_all() {
    host::threads::catch_panic(|| drop(SOCKETS.clear()));
}

fn make(family: c_int, kind: c_int, protocol: c_int) -> Outcome<i64> {
    let family = Family::of(family)?;
    if kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != libc::SOCK_STREAM {
        return Err(Errno(libc::ESOCKTNOSUPPORT));
    }
    if ![0, libc::IPPROTO_TCP, IPPROTO_SDP].contains(&protocol) {
        return Err(Errno(libc::EPROTONOSUPPORT));
    }
    begin();
    SOCKETS.insert(Socket::new(family, kind & libc::SOCK_NONBLOCK != 0))
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_socket(family: c_int, kind: c_int, protocol: c_int) -> i64 {
    answer(|| make(family, kind, protocol))
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_bind(socket: i64, address: In, len: socklen_t) -> c_int {
    answer(|| {
        let socket = SOCKETS.find(socket)?;
        socket.bind(socket.family.read(address, len)?).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_connect(socket: i64, address: In, len: socklen_t) -> c_int {
    answer(|| {
        let socket = SOCKETS.find(socket)?;
        let peer = socket.family.read(address, len)?;
        socket.connect(peer).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_listen(socket: i64, backlog: c_int) -> c_int {
    answer(|| SOCKETS.find(socket)?.listen(backlog).map(|()| 0))
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_accept(socket: i64, address: Out, len: Len) -> i64 {
    answer(|| {
        let socket = SOCKETS.find(socket)?;
        // A connection must not be accepted and then be lost.
        if !address.is_null() {
            len.get()?;
        }
        let (accepted, peer) = socket.accept()?;
        if !address.is_null() {
            socket.family.write(peer, address, len)?;
        }
        SOCKETS.insert(accepted)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_send(socket: i64, bytes: In, len: usize, flags: c_int) -> ssize_t {
    answer(|| {
        let sent = SOCKETS.find(socket)?.send(bytes.bytes(len)?, flags)?;
        Ok(sent as ssize_t)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_recv(socket: i64, bytes: Out, len: usize, flags: c_int) -> ssize_t {
    answer(|| {
        let received = SOCKETS.find(socket)?.receive(bytes.room(len)?, flags)?;
        Ok(received as ssize_t)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_shutdown(socket: i64, how: c_int) -> c_int {
    answer(|| SOCKETS.find(socket)?.shutdown(how).map(|()| 0))
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_close(socket: i64) -> c_int {
    answer(|| SOCKETS.remove(socket).map(|_| 0))
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_getsockopt(
    socket: i64,
    level: c_int,
    name: c_int,
    value: Out,
    len: Len,
) -> c_int {
    answer(|| option::of_socket(&*SOCKETS.find(socket)?, (level, name), value, len).map(|()| 0))
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_setsockopt(
    socket: i64,
    level: c_int,
    name: c_int,
    value: In,
    len: socklen_t,
) -> c_int {
    answer(|| {
        let socket = SOCKETS.find(socket)?;
        let mut options = socket.options();
        option::set(&mut options, (level, name), value, len)?;
        socket.set_options(options);
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_getsockname(socket: i64, address: Out, len: Len) -> c_int {
    answer(|| {
        let socket = SOCKETS.find(socket)?;
        let local = socket.local();
        socket.family.write(local, address, len).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_getpeername(socket: i64, address: Out, len: Len) -> c_int {
    answer(|| {
        let socket = SOCKETS.find(socket)?;
        let peer = socket.peer()?;
        socket.family.write(peer, address, len).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_fcntl(socket: i64, command: c_int, argument: c_int) -> c_int {
    answer(|| {
        let socket = SOCKETS.find(socket)?;
        let mut options = socket.options();
        match command {
            libc::F_GETFL if options.nonblocking => Ok(libc::O_RDWR | libc::O_NONBLOCK),
            libc::F_GETFL => Ok(libc::O_RDWR),
            libc::F_SETFL => {
                options.nonblocking = argument & libc::O_NONBLOCK != 0;
                socket.set_options(options);
                Ok(0)
            }
            _ => Err(Errno(libc::EINVAL)),
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn sdpd_fd(socket: i64) -> c_int {
    answer(|| SOCKETS.find(socket)?.descriptor())
}
