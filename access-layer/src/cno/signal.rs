//! The descriptor of a CNO that `dat_cno_fd_create` made: readable while something has triggered.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An event counter of the kernel. It is above zero exactly while the CNO has something to report,
/// unless the consumer reads it; then it stays silent until the next trigger, and the call that
/// asks for the trigger finds those before it all the same.
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
        let one: u64 = 1;
        // SAFETY: the pointer is to eight bytes of this frame. Only a count near 2^64 would refuse
        // the write, and then it is readable anyway.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Makes it silent.
    pub(super) fn lower(&self) {
        let mut count: u64 = 0;
        // SAFETY: the pointer is to eight bytes of this frame. A counter that is zero already
        // refuses the read without blocking.
        unsafe { libc::read(self.fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}
