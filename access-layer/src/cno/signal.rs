//! The descriptor of a CNO that `dat_cno_fd_create` created: readable while a trigger is pending.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use host::descriptors::OwnDescriptor;

/// An event counter of the kernel. The counter is above zero exactly while the CNO has a trigger to
/// report, except that a consumer's read of it sets it to zero until the next trigger; the earlier
/// triggers can still be taken. Reads and writes bypass libc, so that a thread that holds locks
/// is not cancelled in them.
#[derive(Debug)]
pub(super) struct Signal(OwnDescriptor);

impl Signal {
    /// Creates a descriptor that is not readable.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just returned this descriptor and no other code has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// The descriptor for the consumer to poll.
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub(super) fn raise(&self) {
        self.0.count_up();
    }

    /// Makes the descriptor not readable.
    pub(super) fn lower(&self) {
        // If the counter is zero already, the read fails without blocking.
        let _ = rustix::io::read(&self.0, &mut [0_u8; size_of::<u64>()]);
    }
}
