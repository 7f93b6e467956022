//! Where lines go.
//!
//! Every call is made to the kernel itself: the C library's may be our own.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use ops_rules::Destination;
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::getpid;

use crate::line::Line;

/// Where the system's log takes datagrams.
const SYSTEM_LOG: &str = "/dev/log";

#[derive(Debug)]
pub(crate) enum Outlet {
    /// Descriptor 2, while it is this file.
    StandardError(Option<Identity>),
    System,
    File(PathBuf),
}

/// Which file a descriptor names. A program may close descriptor 2 and get the number again for a
/// connection, whose peer would read the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    fn of(fd: BorrowedFd<'_>) -> Option<Self> {
        let stat = fstat(fd).ok()?;
        Some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }
}

impl Outlet {
    pub(crate) fn new(destination: &Destination) -> Self {
        match destination {
            Destination::Stderr => Self::StandardError(Identity::of(io::stderr().as_fd())),
            Destination::Syslog => Self::System,
            Destination::File(path) => {
                // The program may go to another directory.
                Self::File(std::path::absolute(path).unwrap_or_else(|_| path.into()))
            }
        }
    }

    /// Says a line. Where that is not possible nobody can be told.
    pub(crate) fn write(&self, line: &Line) {
        let process = getpid().as_raw_nonzero().get();
        let dated = || line.dated(SystemTime::now(), process);
        // What cannot be reported is lost.
        let _ = match self {
            Self::StandardError(identity) => to_standard_error(identity.as_ref(), &dated()),
            Self::System => to_system(&line.for_system(process)),
            Self::File(path) => to_file(path, &dated()),
        };
    }

    /// Says something that is no event, as the program `opsrun` would.
    pub(crate) fn complain(&self, text: &str) {
        let identity = Identity::of(io::stderr().as_fd());
        let line = match self {
            Self::StandardError(_) => format!("opsrun: {text}\n"),
            Self::System | Self::File(_) => {
                let level = tracing::Level::ERROR;
                let text = text.to_owned();
                return self.write(&Line { level, text });
            }
        };
        // As above.
        let _ = to_standard_error(identity.as_ref(), &line);
    }
}

fn to_standard_error(identity: Option<&Identity>, line: &str) -> Result<(), Errno> {
    let stderr = io::stderr();
    if identity.is_some() && Identity::of(stderr.as_fd()).as_ref() == identity {
        write_quietly(stderr.as_fd(), line.as_bytes())?;
    }
    Ok(())
}

/// One open for each line: the program may close every number that it does not know, and a file
/// that was moved away is begun anew.
fn to_file(path: &PathBuf, line: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?;
    write_quietly(file.as_fd(), line.as_bytes())
}

fn to_system(line: &str) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let log = SocketAddrUnix::new(SYSTEM_LOG)?;
    rustix::net::sendto(&socket, line.as_bytes(), SendFlags::NOSIGNAL, &log).map(drop)
}

/// Writes all of it. A pipe that nobody reads is no reason to end the program, which may not be
/// using it any more: its signal is taken back.
fn write_quietly(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    let Some(mask) = Mask::set() else {
        return Err(Errno::INTR);
    };
    let mut done = Ok(());
    while !bytes.is_empty() && done.is_ok() {
        match rustix::io::write(fd, bytes) {
            Ok(0) => break,
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(error) => done = Err(error),
        }
    }
    mask.reset(done == Err(Errno::PIPE));
    done
}

/// SIGPIPE held back from this thread.
struct Mask {
    before: libc::sigset_t,
    pipe: libc::sigset_t,
    was_pending: bool,
}

impl Mask {
    fn set() -> Option<Self> {
        let (mut pipe, mut pending, mut before) = (
            MaybeUninit::<libc::sigset_t>::uninit(),
            MaybeUninit::<libc::sigset_t>::uninit(),
            MaybeUninit::<libc::sigset_t>::uninit(),
        );
        // SAFETY: sets of this frame, each filled by its call before it is read; a thread may mask
        // its own signals.
        unsafe {
            libc::sigemptyset(pipe.as_mut_ptr());
            libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
            let is_told = libc::sigpending(pending.as_mut_ptr()) == 0;
            let is_set =
                libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), before.as_mut_ptr()) == 0;
            (is_told && is_set).then(|| Self {
                before: before.assume_init(),
                pipe: pipe.assume_init(),
                was_pending: libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1,
            })
        }
    }

    /// `broken`: the pipe was, so the signal waits that is not the program's.
    fn reset(self, broken: bool) {
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: sets that `set` filled; a thread may take its own signals and mask them.
        unsafe {
            if broken && !self.was_pending {
                libc::sigtimedwait(&raw const self.pipe, std::ptr::null_mut(), &raw const none);
            }
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                &raw const self.before,
                std::ptr::null_mut(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    fn line(text: &str) -> Line {
        Line {
            level: Level::WARN,
            text: text.to_owned(),
        }
    }

    #[test]
    fn lines_are_appended_to_a_file_for_its_owner_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let name = path.display().to_string();
        let outlet = Outlet::new(&Destination::File(name));
        outlet.write(&line("one"));
        outlet.write(&line("two"));
        let text = std::fs::read_to_string(&path).unwrap();
        let ends: Vec<&str> = text
            .lines()
            .filter_map(|it| it.rsplit(' ').next())
            .collect();
        assert_eq!(ends, ["one", "two"]);
        let mode = std::os::unix::fs::MetadataExt::mode(&path.metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
        // Moved away, as logs are; then somebody puts a link there.
        let old = dir.path().join("old");
        std::fs::rename(&path, &old).unwrap();
        std::os::unix::fs::symlink(&old, &path).unwrap();
        outlet.write(&line("three"));
        assert_eq!(std::fs::read_to_string(&old).unwrap(), text);
    }

    #[test]
    fn a_pipe_that_nobody_reads_ends_nothing() {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        // Test programs ignore the signal, and a program of ours need not.
        // SAFETY: the default action is no function.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        assert_eq!(write_quietly(writer.as_fd(), b"x"), Err(Errno::PIPE));
        // SAFETY: what was there before.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }

    #[test]
    fn a_descriptor_is_known_by_its_file() {
        let one = tempfile::tempfile().unwrap();
        let other = tempfile::tempfile().unwrap();
        let identity = Identity::of(one.as_fd());
        assert!(identity.is_some());
        assert_eq!(identity, Identity::of(one.try_clone().unwrap().as_fd()));
        assert_ne!(identity, Identity::of(other.as_fd()));
    }
}
