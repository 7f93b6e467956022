//! The descriptor of a CNO that `dat_cno_fd_create` made: readable while something has triggered.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An event counter of the kernel. It is above zero exactly while the CNO has something to report,
/// unless the consumer reads it; then it stays silent until the next trigger, and the call that
/// asks for the trigger finds those before it all the same. No thread is cancelled in the calls
/// here, which go past libc: they are made under locks.
#[derive(Debug)]
pub(super) struct Signal(OwnedFd);

impl Signal {
    /// Not raised.
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: eventfd takes no pointers; the result is checked before it is owned.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: eventfd just returned this descriptor and nobody else knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// What the consumer polls.
    pub(super) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Makes it readable.
    pub(super) fn raise(&self) {
        // Only a count near 2^64 would refuse the write, and then it is readable anyway.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it silent.
    pub(super) fn lower(&self) {
        // A counter that is zero already refuses the read without blocking.
        let _ = rustix::io::read(&self.0, &mut [0_u8; size_of::<u64>()]);
    }
}
