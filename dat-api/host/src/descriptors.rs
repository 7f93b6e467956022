//! Descriptors of ours, out of the way of the program into which we are loaded.
//!
//! Programs expect the lowest free number for what they open, hand numbers to `select`, and size
//! tables by them. Ours stand in the upper quarter of the numbers that the process may have, where
//! the kernel puts nothing before the program has opened as many. So a program that closes all from
//! some number on can be told which of them are not its own: [`lowest`].

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Resource, getrlimit};

/// Where numbers are counted from when a process may have any number of them: the kernel's table of
/// descriptors is as long as the highest.
const MANY: u64 = 1 << 16;

/// The lowest number from which this library ever placed one.
static LOWEST: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// Descriptors of ours have this number or a higher one, but for those that found no room there.
/// Higher than any number while this library has placed none.
///
/// Each shared library has a copy of what is kept here, and the program may lower its limit before
/// another of them places its first: so today's limit counts beside that of the day when this one
/// did.
pub fn lowest() -> RawFd {
    match LOWEST.load(Ordering::Acquire) {
        RawFd::MAX => RawFd::MAX,
        placed => placed.min(upper_quarter()),
    }
}

/// Where the upper quarter of the numbers begins that the process may have now.
fn upper_quarter() -> RawFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MANY);
    RawFd::try_from(limit.min(MANY) / 4 * 3).unwrap_or(0)
}

/// The same descriptor up there, or where it is.
///
/// For those who cannot go on without it, whatever the kernel says.
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    copy(&fd).unwrap_or(fd)
}

/// The same descriptor up there. Where there is no room a low number works as well.
///
/// # Errors
/// What the kernel says that has nothing to do with room.
pub fn raise(fd: OwnedFd) -> Result<OwnedFd, Errno> {
    match copy(&fd) {
        Ok(raised) => Ok(raised),
        Err(Errno::MFILE | Errno::INVAL) => Ok(fd),
        Err(error) => Err(error),
    }
}

/// Another one for the same file, up there.
///
/// # Errors
/// When there is no room.
pub fn copy(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let from = upper_quarter();
    let made = fcntl_dupfd_cloexec(fd, from)?;
    LOWEST.fetch_min(from, Ordering::AcqRel);
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd as _;

    use rustix::process::{Rlimit, setrlimit};

    use super::*;

    #[test]
    fn ours_stand_above_all_that_the_program_opens() {
        let file = || File::open("/dev/null").unwrap();
        let raised = raise(OwnedFd::from(file())).unwrap();
        let copied = copy(&raised).unwrap();
        assert!(raised.as_raw_fd() >= lowest() && copied.as_raw_fd() > lowest());
        assert!(file().as_raw_fd() < lowest());
    }

    /// Another library of ours goes by the limit of its day.
    #[test]
    fn a_limit_that_was_lowered_counts() {
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
