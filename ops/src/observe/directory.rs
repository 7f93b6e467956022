//! The directories of pages: one for each user below `/dev/shm`, with a file for each process.
//!
//! `/dev/shm` is writable for all users, so names there are not trusted. A directory is used if it
//! is not a link, belongs to the user in its name and is closed to all others. A file is used if it
//! is a regular file of the same user and not a link.
//!
//! Another user may take a user's name first. The directory of the user then has a random suffix,
//! which no other user can foresee. Readers find it by its owner.

use std::collections::hash_map::RandomState;
use std::ffi::{CStr, OsString};
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;
use rustix::process::geteuid;

/// The variable that names another directory than `/dev/shm`, for tests and for systems without it.
pub const VARIABLE: &str = "OPS_PAGES";

const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "ops-";

/// The character between a user's name and a random suffix.
const SUFFIX: char = '.';

/// The directory that contains the directories of the users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRoot {
    base: PathBuf,
}

/// A user's directory.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    /// The user id of the owner.
    pub owner: u32,
}

/// The name of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// The process id.
    pub pid: u32,
    /// The start time of the process, in clock ticks since the machine started.
    pub started: u64,
    /// The time at which the page was made, in nanoseconds since the machine started. A process
    /// that executes another program makes another page.
    pub made: u64,
}

/// A file that is open for reading.
#[derive(Debug)]
pub struct Opened {
    /// The descriptor.
    pub fd: OwnedFd,
    /// The length in bytes.
    pub len: u64,
    /// The time of the last write, in seconds since 1970.
    pub modified: i64,
    /// Device and inode, which identify the file in a list of mappings.
    pub identity: (u64, u64),
}

impl PageRoot {
    /// Returns the directory that [`VARIABLE`] names, or `/dev/shm`. `lookup` reads a variable of
    /// the environment.
    #[must_use]
    pub fn choose(lookup: impl Fn(&str) -> Option<OsString>) -> Self {
        let named = lookup(VARIABLE).filter(|path| !path.is_empty());
        Self::at(named.unwrap_or_else(|| SHARED_MEMORY.into()))
    }

    /// Uses this directory.
    #[must_use]
    pub fn at(base: impl Into<PathBuf>) -> Self {
        Self { base: base.into() }
    }

    /// Returns the calling user's directory, and makes it if it does not exist.
    ///
    /// # Errors
    /// The error of `mkdir` or `open`.
    pub fn own(&self) -> Result<Directory, Errno> {
        let owner = geteuid().as_raw();
        let base = self.open()?;
        let plain = format!("{PREFIX}{owner}");
        if let Ok(directory) = Directory::make(base.as_fd(), &plain, owner) {
            return Ok(directory);
        }
        if let Some(other) = Self::among(base.as_fd(), Some(owner)).pop() {
            return Ok(other);
        }
        let suffix = RandomState::new().build_hasher().finish();
        Directory::make(
            base.as_fd(),
            &format!("{plain}{SUFFIX}{suffix:016x}"),
            owner,
        )
    }

    /// Returns the directories of a user.
    pub(super) fn of(&self, owner: u32) -> Vec<Directory> {
        let base = self.open();
        base.map_or_else(
            |_| Vec::new(),
            |base| Self::among(base.as_fd(), Some(owner)),
        )
    }

    /// Returns the directories that the caller may read: the caller's own, or all for the
    /// superuser.
    #[must_use]
    pub fn readable(&self) -> Vec<Directory> {
        let own = geteuid();
        let owner = (!own.is_root()).then_some(own.as_raw());
        let base = self.open();
        base.map_or_else(|_| Vec::new(), |base| Self::among(base.as_fd(), owner))
    }

    /// Returns the directory that keeps the calling user from using the plain name, because it
    /// belongs to another user or is open to others.
    #[must_use]
    pub fn obstacle(&self) -> Option<PathBuf> {
        let owner = geteuid().as_raw();
        let name = format!("{PREFIX}{owner}");
        let opened = Directory::open(self.open().ok()?.as_fd(), name.as_str(), owner);
        let is_obstacle = !matches!(opened, Ok(_) | Err(Errno::NOENT));
        is_obstacle.then(|| self.base.join(name))
    }

    /// Returns the directories of a user, or of all users.
    fn among(base: BorrowedFd<'_>, owner: Option<u32>) -> Vec<Directory> {
        let names = names(base).into_iter();
        let opened = names.filter_map(|name| {
            let rest = name.to_str().ok()?.strip_prefix(PREFIX)?;
            let number = rest.split(SUFFIX).next()?.parse().ok()?;
            let is_wanted = owner.is_none_or(|owner| owner == number);
            is_wanted.then(|| Directory::open(base, &*name, number).ok())?
        });
        opened.collect()
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        open(&self.base, flags, Mode::empty())
    }
}

impl Directory {
    fn make(base: BorrowedFd<'_>, name: &str, owner: u32) -> Result<Self, Errno> {
        match mkdirat(base, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => Self::open(base, name, owner),
            Err(error) => Err(error),
        }
    }

    /// Opens a directory of a user. Fails with `EPERM` if it belongs to another user or is open to
    /// others.
    fn open(base: BorrowedFd<'_>, name: impl Arg, owner: u32) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(base, name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        let closed = Mode::from_raw_mode(stat.st_mode) & (Mode::RWXG | Mode::RWXO);
        if stat.st_uid != owner || !closed.is_empty() {
            return Err(Errno::PERM);
        }
        Ok(Self { fd, owner })
    }

    /// Makes a page; fails if the name exists.
    pub(super) fn create(&self, name: Name) -> Result<OwnedFd, Errno> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.fd, name.to_string(), flags, Mode::RUSR | Mode::WUSR)
    }

    /// Opens a page for reading. Returns `None` if it does not exist or is not a regular file
    /// of the owner.
    #[must_use]
    pub fn read(&self, name: Name) -> Option<Opened> {
        // NONBLOCK, because opening a pipe of this name would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&self.fd, name.to_string(), flags, Mode::empty()).ok()?;
        let stat = fstat(&fd).ok()?;
        let plain = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        (plain && stat.st_uid == self.owner).then_some(Opened {
            fd,
            len: u64::try_from(stat.st_size).unwrap_or(0),
            modified: stat.st_mtime,
            identity: (stat.st_dev, stat.st_ino),
        })
    }

    /// Removes a page.
    pub fn remove(&self, name: Name) {
        // Another process may have removed the page already.
        let _ = unlinkat(&self.fd, name.to_string(), AtFlags::empty());
    }

    /// Returns the names of all pages.
    #[must_use]
    pub fn names(&self) -> Vec<Name> {
        let names = names(self.fd.as_fd()).into_iter();
        names
            .filter_map(|name| Name::parse(name.to_str().ok()?))
            .collect()
    }
}

fn names(directory: BorrowedFd<'_>) -> Vec<Box<CStr>> {
    let entries = Dir::read_from(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into()).collect()
}

impl Name {
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split('.');
        let parsed = Self {
            pid: numbers.next()?.parse().ok()?,
            started: numbers.next()?.parse().ok()?,
            made: numbers.next()?.parse().ok()?,
        };
        // Refuses other spellings of the same numbers.
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.pid, self.started, self.made)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_name_is_parsed_in_one_spelling_only() {
        let name = Name {
            pid: 7,
            started: 8,
            made: 9,
        };
        assert_eq!(Name::parse("7.8.9"), Some(name));
        for other in [
            "", "7", "7.8", "7.8.9.10", "07.8.9", "+7.8.9", "-7.8.9", "a.8.9",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_environment_names_the_directory() {
        let lookup = |_: &str| Some(OsString::from("/elsewhere"));
        assert_eq!(PageRoot::choose(lookup), PageRoot::at("/elsewhere"));
        assert_eq!(PageRoot::choose(|_| None), PageRoot::at(SHARED_MEMORY));
    }

    #[test]
    fn a_directory_that_is_a_link_or_open_to_others_is_replaced_by_another() {
        let dir = tempfile::tempdir().unwrap();
        let root = PageRoot::at(dir.path());
        let own = dir.path().join(format!("{PREFIX}{}", geteuid().as_raw()));
        assert!(root.own().is_ok() && root.own().is_ok(), "twice");
        assert_eq!((root.obstacle(), root.readable().len()), (None, 1));
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o711)).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for is_link in [false, true] {
            if is_link {
                std::fs::remove_dir(&own).unwrap();
                symlink(elsewhere.path(), &own).unwrap();
            }
            let name = Name {
                pid: 1,
                started: 1,
                made: u64::from(is_link),
            };
            drop(root.own().unwrap().create(name).unwrap());
            assert_eq!(root.obstacle(), Some(own.clone()));
            let readable = root.readable();
            let [found] = &readable[..] else {
                panic!("{readable:?}");
            };
            assert!(
                found.names().contains(&name),
                "the same directory is used again"
            );
        }
        assert_eq!(elsewhere.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn a_page_that_is_a_link_or_a_pipe_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let own = PageRoot::at(dir.path()).own().unwrap();
        let name = |pid| Name {
            pid,
            started: 1,
            made: 1,
        };
        drop(own.create(name(1)).unwrap());
        assert_eq!(own.create(name(1)).unwrap_err(), Errno::EXIST);
        symlink("/etc/passwd", dir.path().join("link")).unwrap();
        rustix::fs::symlinkat("/etc/passwd", &own.fd, name(2).to_string()).unwrap();
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(&own.fd, name(3).to_string(), FileType::Fifo, mode, 0).unwrap();
        assert!(own.read(name(1)).is_some());
        assert!(own.read(name(2)).is_none() && own.read(name(3)).is_none());
        assert_eq!(own.names().len(), 3);
    }

    #[test]
    fn without_a_directory_there_are_no_pages() {
        let root = PageRoot::at("/nonexistent");
        assert!(root.own().is_err() && root.readable().is_empty());
    }
}
