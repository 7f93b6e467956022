//! Accepting: one queue for connections of all stacks.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::Arc;

use libc::{SOCK_CLOEXEC, SOCK_NONBLOCK, sockaddr, socklen_t};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;
use stand_in::{Flags, Signals};

use crate::guard;
use crate::hooks::numbers;
use crate::listener::Listener;
use crate::protocol::Arrival;
use crate::sharing::relay;
use crate::socket::Socket;
use crate::socket::names::{self, Family};
use crate::socket::observer::Observer;
use crate::socket::options::Options;
use crate::table::Entry;

/// A connection that the program has now.
pub(crate) struct Accepted {
    /// Its descriptor.
    pub(crate) fd: c_int,
    peer: SocketAddr,
    family: Family,
}

impl Accepted {
    /// Tells the peer's address to those who ask.
    ///
    /// # Safety
    /// The pointers are null or what `accept` demands.
    pub(crate) unsafe fn tell(&self, address: *mut sockaddr, len: *mut socklen_t) {
        if !address.is_null() {
            // SAFETY: the caller answers for the pointers. A length that makes no sense leaves
            // the address untold; the connection is the program's all the same.
            let _ = unsafe { names::give(self.peer, self.family, address, len) };
        }
    }
}

/// The next offloaded connection of a listener. `Ok(None)`: it is for the kernel to answer.
pub(crate) fn accept(
    fd: c_int,
    listener: &Listener,
    flags: c_int,
) -> Result<Option<Accepted>, Errno> {
    let _inside = guard::enter();
    loop {
        if let Some(arrival) = listener.accept() {
            match take(listener.family(), arrival, flags) {
                Ok(accepted) => return Ok(Some(accepted)),
                // The peer is gone again, as it may be in the kernel's queue too.
                Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) => continue,
                Err(error) => return Err(error),
            }
        }
        // SAFETY: the table names it, so it is a number from 0 up.
        let kernel = unsafe { BorrowedFd::borrow_raw(fd) };
        if fcntl_getfl(kernel)?.contains(OFlags::NONBLOCK) {
            return Ok(None);
        }
        let mut set = [
            PollFd::new(&kernel, PollFlags::IN),
            PollFd::from_borrowed_fd(listener.pending(), PollFlags::IN),
        ];
        poll(&mut set, None)?;
        if !set[0].revents().is_empty() {
            return Ok(None);
        }
    }
}

fn take(family: Family, arrival: Arrival, flags: c_int) -> Result<Accepted, Errno> {
    let options = Options::fresh(family)?;
    let shown = Flags {
        nonblocking: flags & SOCK_NONBLOCK != 0,
        close_on_exec: flags & SOCK_CLOEXEC != 0,
    };
    let (program, end) = stand_in::established(shown).map_err(|_| Errno::NOBUFS)?;
    let end = end
        .moved(crate::internal::raise)
        .map_err(|_| Errno::MFILE)?;
    let observer = Arc::new(Observer::new(end, Signals::new()));
    let stream = arrival.stream.observed_by(observer.clone())?;
    let socket = Socket::new(
        stream,
        observer,
        family,
        arrival.local,
        arrival.peer,
        options,
    );
    socket.named();
    let fd = program.as_raw_fd();
    let socket = Arc::new(socket);
    relay::watch(&socket)?;
    numbers::place(fd, Entry::Socket(socket));
    Ok(Accepted {
        fd: program.into_raw_fd(),
        peer: arrival.peer,
        family,
    })
}
