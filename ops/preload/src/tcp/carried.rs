//! The options that a local connection copies from a TCP socket: the program's own socket if it
//! connects, the listener if it accepts.
//!
//! All options of a listener are read at the first connection, and again after the program has set
//! one. For a connecting socket, only options that the program has ever set on an unconnected
//! socket are read. The number of system calls, counted by strace, of a program that sets
//! `TCP_NODELAY` and has a listener with `SO_REUSEADDR`:
//!
//! | Call | Without the library | On TCP by a rule | Within the host |
//! |---|---|---|---|
//! | `connect` | 1 | 1 | 17 |
//! | `accept4`, a connection is queued | 1 | 1 | 7 |
//! | `close` of one end | 1 | 1 | 3 |
//!
//! Four of the calls of each end ask the kernel whether TCP would make the connection
//! (`ops::netlink::NetStack::local_request`): the identity of the process, the notifications of
//! changes, and the request and answer about the receiver.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::{SO_LINGER, SO_RCVBUF, SOL_SOCKET};

use rustix::net::sockopt;

use crate::tcp::buffers;
use crate::tcp::inherited::{self, Value};
use crate::tcp::kept::Kept;
use crate::tcp::names::Family;

/// The number of options that the program has set on listeners.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// The options that this program has set on sockets that were not connected, as bits.
static SET: AtomicU64 = AtomicU64::new(0);

/// Returns the number of times that the program has set an option of a listener. Options that were
/// read at the same number are still valid.
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// Returns true if the program has set the option before on a TCP socket, so that setting it on one
/// that does not listen leaves the records unchanged.
pub(crate) fn is_recorded(level: c_int, name: c_int) -> bool {
    SET.load(Ordering::Relaxed) & inherited::bit_of(level, name) != 0
}

/// Records that the program has set an option of a TCP socket.
pub(crate) fn option_is_set(level: c_int, name: c_int, is_listener: bool) {
    let option = inherited::bit_of(level, name);
    if SET.load(Ordering::Relaxed) & option != option {
        SET.fetch_or(option, Ordering::Relaxed);
    }
    if is_listener {
        CHANGES.fetch_add(1, Ordering::Relaxed);
    }
}

/// Records that a TCP socket which is not connected may have any option, because it has those of a
/// former connection.
pub(crate) fn any_may_be_set() {
    SET.store(u64::MAX, Ordering::Relaxed);
}

/// The options that differ from those of a new socket.
#[derive(Debug, Default, Clone)]
pub(crate) struct Carried {
    of_socket: Vec<(c_int, c_int, Value)>,
    kept: Kept,
}

impl Carried {
    /// Returns the options of a TCP socket that is about to connect.
    pub(crate) fn of_connecting(tcp: BorrowedFd<'_>, family: Family) -> Self {
        match SET.load(Ordering::Relaxed) {
            0 => Self::default(),
            set => Self::among(set, tcp, family),
        }
    }

    /// Returns true for a TCP socket whose close resets the connection. A socket of `AF_UNIX` does
    /// that only if it has unread bytes.
    pub(crate) fn has_reset(tcp: BorrowedFd<'_>) -> bool {
        let is_set = SET.load(Ordering::Relaxed) & inherited::bit_of(SOL_SOCKET, SO_LINGER) != 0;
        is_set && sockopt::socket_linger(tcp) == Ok(Some(Duration::ZERO))
    }

    /// Returns the number of unread bytes that a TCP socket which is about to connect may hold, if
    /// the program has set it.
    pub(crate) fn receive_bound(tcp: BorrowedFd<'_>) -> Option<usize> {
        let is_set = SET.load(Ordering::Relaxed) & inherited::bit_of(SOL_SOCKET, SO_RCVBUF) != 0;
        is_set.then(|| buffers::receive_bound(tcp)).flatten()
    }

    pub(crate) fn of_listener(tcp: BorrowedFd<'_>, family: Family) -> Self {
        Self::among(u64::MAX, tcp, family)
    }

    fn among(options: u64, tcp: BorrowedFd<'_>, family: Family) -> Self {
        let mut carried = Self::default();
        for (level, name, value) in inherited::set_on(tcp, family, options) {
            if level == SOL_SOCKET && buffers::is_sized_by_kernel(tcp, name) {
                continue;
            }
            if inherited::is_of_socket(level, name) {
                carried.of_socket.push((level, name, value));
            } else {
                carried.kept.set(level, name, value);
            }
        }
        carried
    }

    /// Sets these options on a connection, and returns those that the library keeps for it.
    pub(crate) fn apply(&self, connection: BorrowedFd<'_>) -> Kept {
        for (level, name, value) in &self.of_socket {
            value.set(connection.as_raw_fd(), *level, *name);
        }
        self.kept.clone()
    }
}
