//! The `ioctl` requests about the bytes of a socket.

use std::ffi::{c_int, c_ulong};

use libc::{FIONREAD, TIOCOUTQ};
use rustix::io::Errno;

use crate::socket::Socket;

/// `SIOCATMARK`.
pub(crate) const ATMARK: c_ulong = 0x8905;
/// `SIOCOUTQNSD`: the number of bytes that are queued and not sent yet, which is always 0 here.
pub(crate) const NOT_SENT: c_ulong = 0x894b;

/// Returns true if a request concerns a connection. All other requests, about flags, interfaces and
/// addresses, are passed to the kernel.
pub(crate) fn is_of_sockets(request: c_ulong) -> bool {
    matches!(request, FIONREAD | TIOCOUTQ | ATMARK | NOT_SENT)
}

/// Returns true for requests that set a flag of the descriptor, as `fcntl` does.
pub(crate) fn is_of_flags(request: c_ulong) -> bool {
    matches!(request, libc::FIONBIO | libc::FIOCLEX | libc::FIONCLEX)
}

/// Returns true for `FIOASYNC`, `FIOSETOWN` and `SIOCSPGRP`.
pub(crate) fn is_of_signals(request: c_ulong) -> bool {
    matches!(request, 0x5452 | 0x8901 | 0x8902)
}

/// Returns true for requests about addresses, routes and interfaces, which sockets of some families
/// answer.
pub(crate) fn is_of_network(request: c_ulong) -> bool {
    (0x8900..=0x89ff).contains(&request)
}

impl Socket {
    /// Performs an `ioctl` of [`is_of_sockets`].
    ///
    /// # Safety
    /// `argument` is valid for the request.
    pub(super) unsafe fn answer_request(
        &self,
        request: c_ulong,
        argument: usize,
    ) -> Result<(), Errno> {
        let number = match request {
            FIONREAD => self.stream.unread_before_mark(),
            TIOCOUTQ => self.stream.unsent(),
            ATMARK => usize::from(self.stream.is_at_mark()),
            _ => 0,
        };
        let to = argument as *mut c_int;
        if to.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the pointer is not null, so the caller guarantees that it points to an integer.
        unsafe { *to = c_int::try_from(number).unwrap_or(c_int::MAX) };
        Ok(())
    }
}
