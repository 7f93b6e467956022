//! Options that a connection within the host takes over from a TCP socket: the program's own where
//! it connects, the listener where it accepts.

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use libc::{SO_RCVBUF, SO_SNDBUF, SOL_SOCKET};

use super::options::Kept;
use crate::socket::inherited::{self, Value};
use crate::socket::names::Family;
use crate::table;

/// Counts options that the program has set on listeners.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// True once this program has set an option on a socket that may connect or listen yet.
static ARE_SET: AtomicBool = AtomicBool::new(false);

/// How often the program has set an option of a listener, so that an earlier answer is known to
/// hold.
pub(crate) fn changes() -> u64 {
    CHANGES.load(Ordering::Relaxed)
}

/// The program has set an option.
pub(crate) fn option_is_set(fd: c_int) {
    if table::is_local(fd) {
        return;
    }
    ARE_SET.store(true, Ordering::Relaxed);
    if table::is_listener(fd) {
        CHANGES.fetch_add(1, Ordering::Relaxed);
    }
}

/// Options that differ from those of a new socket.
#[derive(Debug, Default, Clone)]
pub(crate) struct Carried {
    of_socket: Vec<(c_int, c_int, Value)>,
    kept: Kept,
}

impl Carried {
    /// Those of a TCP socket that is about to connect. They are not asked for in a program that has
    /// set none on any.
    pub(crate) fn of_connecting(tcp: BorrowedFd<'_>, family: Family) -> Self {
        if ARE_SET.load(Ordering::Relaxed) {
            Self::of(tcp, family)
        } else {
            Self::default()
        }
    }

    /// Those of a TCP socket.
    pub(crate) fn of(tcp: BorrowedFd<'_>, family: Family) -> Self {
        let mut carried = Self::default();
        let locked =
            Value::of(tcp.as_raw_fd(), SOL_SOCKET, SO_BUF_LOCK).map_or(0, Value::as_number);
        for (level, name, value) in inherited::set_on(tcp, family) {
            let is_sized_by_kernel = level == SOL_SOCKET
                && (name == SO_SNDBUF && locked & SNDBUF_LOCK == 0
                    || name == SO_RCVBUF && locked & RCVBUF_LOCK == 0);
            if is_sized_by_kernel {
                continue;
            }
            if level == SOL_SOCKET {
                carried.of_socket.push((level, name, value));
            } else {
                carried.kept.set(level, name, value);
            }
        }
        carried
    }

    /// Sets a connection so, and returns what is to be remembered of it.
    pub(crate) fn apply(&self, connection: BorrowedFd<'_>) -> Kept {
        for (level, name, value) in &self.of_socket {
            value.set(connection.as_raw_fd(), *level, *name);
        }
        self.kept.clone()
    }
}

/// `SO_BUF_LOCK` (Linux 5.14): which buffers the program has sized. The C library crate lacks it.
const SO_BUF_LOCK: c_int = 72;
const SNDBUF_LOCK: c_int = 1;
const RCVBUF_LOCK: c_int = 2;
