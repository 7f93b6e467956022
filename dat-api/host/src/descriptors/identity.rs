//! The identity of the file behind a descriptor.

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use rustix::fs::fstat;
use rustix::io::Errno;

/// The identity of a file or socket, which all its descriptors have. A number alone does not
/// identify a socket, because a program may close it, and the kernel may assign the number to
/// another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    /// Returns the identity of an open descriptor.
    ///
    /// # Errors
    /// The error of `fstat(2)`.
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let stat = fstat(fd)?;
        Ok(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// Returns a short digest, which other files have rarely.
    pub(super) fn digest(self) -> u16 {
        let folded = self.inode ^ self.inode >> 32 ^ self.device.rotate_left(8);
        (folded ^ folded >> 16) as u16
    }

    /// Returns the identity behind a number that may not be open. Needs no free descriptor.
    ///
    /// # Errors
    /// `EBADF` if the number is not open.
    pub fn of_number(number: RawFd) -> Result<Self, Errno> {
        if number < 0 {
            return Err(Errno::BADF);
        }
        // SAFETY: the number is not -1, and it is only passed to one system call, which returns
        // EBADF if the number is not open.
        Self::of(unsafe { BorrowedFd::borrow_raw(number) })
    }
}
