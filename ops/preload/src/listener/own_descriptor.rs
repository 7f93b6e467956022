//! A descriptor of the library whose number the program may close, and use again.
//!
//! A program that closes all numbers but its listener's closes those of this library as well. The
//! listener must continue on TCP, and a number that belongs to the program by now must stay open.

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use host::descriptors::Identity;

/// A descriptor, which is closed when this is dropped unless it was lost.
pub(crate) struct OwnDescriptor {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
}

impl OwnDescriptor {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            identity: Identity::of(&fd).ok(),
            fd: ManuallyDrop::new(fd),
        }
    }

    /// Returns true if the program has closed the number.
    pub(crate) fn is_lost(&self) -> bool {
        Identity::of_number(self.fd.as_raw_fd()).ok() != self.identity
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: the descriptor is dropped here only, and is not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

impl AsFd for OwnDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for OwnDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::FromRawFd;

    use super::*;

    #[test]
    fn a_number_of_another_file_stays_open() {
        let own = OwnDescriptor::new(File::open("/dev/null").unwrap().into());
        assert!(!own.is_lost());
        let number = own.as_raw_fd();
        let root = OwnedFd::from(File::open("/").unwrap());
        // SAFETY: both numbers are open, and the test owns them.
        assert_eq!(unsafe { libc::dup2(root.as_raw_fd(), number) }, number);
        assert!(own.is_lost());
        drop(own);
        // SAFETY: the number is that of the duplicate above, which nothing else owns.
        let other = unsafe { OwnedFd::from_raw_fd(number) };
        assert_eq!(Identity::of(other), Identity::of(root));
    }
}
