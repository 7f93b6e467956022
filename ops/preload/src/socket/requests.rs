//! `ioctl`.

use std::ffi::{c_int, c_ulong};

use libc::{FIONREAD, TIOCOUTQ};
use rustix::io::Errno;

use super::Socket;

/// `SIOCATMARK`.
const ATMARK: c_ulong = 0x8905;
/// `SIOCOUTQNSD`: what has been given and not been sent; all of it has been sent here.
const NOT_SENT: c_ulong = 0x894b;

/// Who answers an `ioctl`.
pub(crate) enum Answer {
    /// It has been answered.
    Given,
    /// The kernel, on the program's descriptor.
    Kernel,
}

impl Socket {
    /// Answers an `ioctl`, or says that the kernel does.
    ///
    /// # Safety
    /// `argument` is what the request demands.
    pub(crate) unsafe fn request(
        &self,
        request: c_ulong,
        argument: usize,
    ) -> Result<Answer, Errno> {
        let number = match request {
            FIONREAD => self.stream.unread(),
            TIOCOUTQ => self.stream.unsent(),
            ATMARK => usize::from(self.stream.is_at_mark()),
            NOT_SENT => 0,
            // Flags of the description, and everything about interfaces and addresses.
            _ => return Ok(Answer::Kernel),
        };
        let to = argument as *mut c_int;
        if to.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: these requests demand a pointer to an integer.
        unsafe { *to = c_int::try_from(number).unwrap_or(c_int::MAX) };
        Ok(Answer::Given)
    }
}
