//! Descriptors of this project's libraries, away from those of the program that loads them.
//!
//! Programs expect the lowest free number for a file that they open, pass numbers to `select`, and
//! size tables by them. The descriptors of these libraries are in the upper quarter of the numbers
//! that the process may have. The kernel assigns no number there before the program has opened as
//! many files. A program that closes all descriptors above some number, or each number, would close
//! these too. The preload library excludes them: see [`lowest`] and [`OwnNumbers`].

mod identity;
mod own_numbers;

use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

pub use self::identity::Identity;
pub use self::own_numbers::{OwnNumbers, remove_all as forget_own_numbers};

/// Assumed limit for a process without a limit on its numbers. It is bounded because the kernel's
/// table of descriptors is as long as the highest number.
const MANY: u64 = own_numbers::COUNT as u64;

/// The lowest number from which this library ever placed a descriptor.
static LOWEST: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// Returns the lowest number of the descriptors of this project's libraries, except those for which
/// there was no room. The result is higher than any number while this library has placed no
/// descriptor.
///
/// Each shared library has its own copy of this state, and the program may lower its limit before
/// another library places its first descriptor. So the result is the lower of two numbers: one by
/// the current limit, and one by the limit at the time when this library placed its descriptors.
pub fn lowest() -> RawFd {
    match LOWEST.load(Ordering::Acquire) {
        RawFd::MAX => RawFd::MAX,
        placed => placed.min(upper_quarter()),
    }
}

/// Returns the number of descriptors that the process may have now.
#[must_use]
pub fn limit() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MANY);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Returns the start of the upper quarter of the numbers that the process may have now.
fn upper_quarter() -> RawFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MANY);
    RawFd::try_from(limit.min(MANY) / 4 * 3).unwrap_or(0)
}

/// Moves a descriptor to the upper quarter, or returns it unchanged if that fails.
///
/// For callers that need the descriptor in any case.
pub fn out_of_the_way(fd: OwnedFd) -> OwnDescriptor {
    let low = OwnDescriptor::from(fd);
    low.raised().unwrap_or(low)
}

/// Moves a descriptor to the upper quarter. Without room there, the descriptor keeps its number.
///
/// # Errors
/// `EBADF` if the program has closed the number. Otherwise the error of the kernel, unless it
/// reports missing room.
pub fn raise(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    let low = OwnDescriptor::from(fd);
    match low.raised() {
        Ok(raised) => raised.into_owned(),
        Err(Errno::MFILE | Errno::INVAL) => low.into_owned(),
        Err(error) => Err(error),
    }
}

/// Duplicates a descriptor to the upper quarter.
///
/// # Errors
/// The error of the kernel, for example when there is no room.
pub fn copy(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let from = upper_quarter();
    let made = fcntl_dupfd_cloexec(fd, from)?;
    LOWEST.fetch_min(from, Ordering::AcqRel);
    Ok(made)
}

/// A descriptor of a library. A program may close the number by a call that no hook sees, or put a
/// file of its own there: the descriptor is lost. The drop closes the descriptor unless it was
/// lost, because the program's file must stay open.
#[derive(Debug)]
pub struct OwnDescriptor {
    fd: ManuallyDrop<OwnedFd>,
    identity: Option<Identity>,
}

impl OwnDescriptor {
    /// Returns true if the program has closed the number. Files without an inode of their own, such
    /// as an `eventfd`, are distinguished from other kinds of files only.
    pub fn is_lost(&self) -> bool {
        Identity::of_number(self.fd.as_raw_fd()).ok() != self.identity
    }

    /// Returns the identity of the file; `None` if the kernel has reported none.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// Returns the descriptor.
    ///
    /// # Errors
    /// `EBADF` if the program has closed the number.
    pub fn get(&self) -> Result<BorrowedFd<'_>, Errno> {
        match self.is_lost() {
            true => Err(Errno::BADF),
            false => Ok(self.as_fd()),
        }
    }

    /// Duplicates the descriptor to the upper quarter. If the program has another file at the
    /// number, the result is `EBADF`.
    fn raised(&self) -> Result<Self, Errno> {
        let raised = Self::from(copy(self)?);
        match raised.identity == self.identity {
            true => Ok(raised),
            false => Err(Errno::BADF),
        }
    }

    /// Adds one to the counter of this `eventfd`, unless the descriptor was lost: the number may be
    /// that of a file of the program. A full counter stays as it is, and is readable.
    pub fn count_up(&self) {
        if !self.is_lost() {
            let _ = rustix::io::write(self, &1_u64.to_ne_bytes());
        }
    }

    /// Returns the descriptor, or `EBADF` if it was lost.
    ///
    /// # Errors
    /// `EBADF` if the program has closed the number.
    pub fn into_owned(self) -> Result<OwnedFd, Errno> {
        let mut this = ManuallyDrop::new(self);
        own_numbers::remove(this.fd.as_raw_fd());
        if this.is_lost() {
            return Err(Errno::BADF);
        }
        // SAFETY: the descriptor is taken here only, and the rest of `self` has no drop.
        Ok(unsafe { ManuallyDrop::take(&mut this.fd) })
    }
}

impl From<OwnedFd> for OwnDescriptor {
    fn from(fd: OwnedFd) -> Self {
        let identity = Identity::of(&fd).ok();
        own_numbers::add(fd.as_raw_fd(), identity);
        Self {
            identity,
            fd: ManuallyDrop::new(fd),
        }
    }
}

impl Drop for OwnDescriptor {
    fn drop(&mut self) {
        own_numbers::remove(self.fd.as_raw_fd());
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
    use std::os::fd::FromRawFd as _;

    use rustix::process::{Rlimit, setrlimit};

    use super::*;
    use crate::locks::lock;

    /// Held by tests that depend on the limit of descriptors, which the tests of a process share.
    static LIMIT: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn raised_descriptors_are_above_those_of_the_program() {
        let _limit = lock(&LIMIT);
        let file = || File::open("/dev/null").unwrap();
        let raised = raise(OwnedFd::from(file())).unwrap();
        let copied = copy(&raised).unwrap();
        assert!(raised.as_raw_fd() >= lowest() && copied.as_raw_fd() > lowest());
        assert!(file().as_raw_fd() < lowest());
    }

    #[test]
    fn a_descriptor_is_identified_by_its_file() {
        let (one, other) = (File::open("/dev/null").unwrap(), File::open("/").unwrap());
        let identity = Identity::of(&one).unwrap();
        assert_eq!(Identity::of(one.try_clone().unwrap()), Ok(identity));
        assert_eq!(Identity::of_number(one.as_raw_fd()), Ok(identity));
        assert_ne!(Identity::of(&other), Ok(identity));
        for closed in [-1, RawFd::MIN, RawFd::MAX] {
            assert_eq!(Identity::of_number(closed), Err(Errno::BADF));
        }
    }

    #[test]
    fn a_number_of_another_file_stays_open() {
        let own = OwnDescriptor::from(OwnedFd::from(File::open("/dev/null").unwrap()));
        assert!(!own.is_lost() && own.get().is_ok());
        let own = OwnDescriptor::from(own.into_owned().unwrap());
        let number = own.as_raw_fd();
        let root = OwnedFd::from(File::open("/").unwrap());
        // SAFETY: both numbers are open, and the test owns them.
        assert_eq!(unsafe { libc::dup2(root.as_raw_fd(), number) }, number);
        assert!(own.is_lost());
        assert_eq!(own.get().unwrap_err(), Errno::BADF);
        assert_eq!(own.into_owned().unwrap_err(), Errno::BADF);
        // SAFETY: the number is that of the duplicate above, which nothing else owns.
        let other = unsafe { OwnedFd::from_raw_fd(number) };
        assert_eq!(Identity::of(other), Identity::of(root));
    }

    #[test]
    fn a_file_that_has_the_number_of_a_new_descriptor_stays_open() {
        let low = OwnDescriptor::from(OwnedFd::from(File::open("/dev/null").unwrap()));
        let root = OwnedFd::from(File::open("/").unwrap());
        // SAFETY: both numbers are open, and the test owns them.
        unsafe { libc::dup2(root.as_raw_fd(), low.as_raw_fd()) };
        assert_eq!(low.raised().unwrap_err(), Errno::BADF);
        // SAFETY: the number is that of the duplicate above, which nothing else owns.
        let other = unsafe { OwnedFd::from_raw_fd(low.as_raw_fd()) };
        drop(low);
        assert_eq!(Identity::of(other), Identity::of(root));
    }

    #[test]
    fn a_file_that_has_the_number_of_a_counter_is_not_written() {
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let counter = OwnDescriptor::from(rustix::event::eventfd(0, flags).unwrap());
        counter.count_up();
        assert_eq!(rustix::io::read(&counter, &mut [0; 8]), Ok(8));
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        // SAFETY: both numbers are open, and the test owns them.
        unsafe { libc::dup2(writer.as_raw_fd(), counter.as_raw_fd()) };
        counter.count_up();
        assert_eq!(rustix::io::read(&reader, &mut [0; 8]), Err(Errno::AGAIN));
        // SAFETY: the number is that of the duplicate above, which nothing else owns.
        drop(unsafe { OwnedFd::from_raw_fd(counter.as_raw_fd()) });
    }

    /// Simulates another library, whose number depends on an earlier limit.
    #[test]
    fn a_lowered_limit_is_in_force() {
        let _limit = lock(&LIMIT);
        let _ours = raise(OwnedFd::from(File::open("/dev/null").unwrap())).unwrap();
        let before = getrlimit(Resource::Nofile);
        let lowered = Rlimit {
            current: Some(400),
            maximum: before.maximum,
        };
        setrlimit(Resource::Nofile, lowered).unwrap();
        let lowest_then = lowest();
        setrlimit(Resource::Nofile, before).unwrap();
        assert_eq!(lowest_then, 300);
    }
}
