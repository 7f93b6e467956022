//! Gives a connection a new pair, under the same descriptor numbers.
//!
//! A pair that shows the end of the peer's data accepts no more bytes. If the program has unread
//! bytes before that end, the connection needs a new pair through which other processes can read
//! these bytes.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::descriptors::raise;
use host::stand_in::Flags;
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::{Errno, FdFlags, fcntl_getfd};

use crate::fd;
use crate::process;
use crate::socket::{Socket, relay};

/// Renews the pair of a connection if this is necessary.
pub(crate) fn renew_ended(socket: &Arc<Socket>) -> Result<(), Errno> {
    let needed = socket.observer().state().has_peer_ended() && socket.stream().unread() > 0;
    // The descriptors of a `vfork`ed child are not those of the table.
    if !needed || !process::owns_table() {
        return Ok(());
    }
    let numbers: Vec<c_int> = fd::numbers_of(&**socket).collect();
    let Some(first) = numbers.first() else {
        return Ok(());
    };
    let flags = Flags {
        nonblocking: fcntl_getfl(borrow(*first))?.contains(OFlags::NONBLOCK),
        close_on_exec: true,
    };
    let (program, end) = host::stand_in::established(flags).map_err(|why| why.errno())?;
    let end = end.moved(raise)?;
    for fd in numbers {
        let close_on_exec = fcntl_getfd(borrow(fd))?.contains(FdFlags::CLOEXEC);
        let flags = Flags {
            close_on_exec,
            ..flags
        };
        fd::change_object(&program, fd, flags, || ())?;
    }
    socket.observer().renew(end);
    relay::watch(socket)
}

fn borrow(fd: c_int) -> BorrowedFd<'static> {
    // SAFETY: the table has an entry for the number, so it is not negative.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
