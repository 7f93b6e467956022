//! The destinations of lines.
//!
//! Every call is a direct system call, because the C library's functions may be replaced by our
//! own.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::path::PathBuf;
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::getpid;

use crate::descriptors::Identity;
use crate::log::line::Line;

/// The socket of the system's log.
const SYSTEM_LOG: &str = "/dev/log";

/// The destination of log lines.
#[derive(Debug)]
pub enum Destination {
    /// A descriptor, whatever file it refers to when a line is written.
    Descriptor(RawFd),
    /// A descriptor while it refers to this file: a program may close the descriptor, and a
    /// connection may then get its number. The peer of that connection would receive the log.
    SameFile(RawFd, Identity),
    /// No destination: all lines are lost.
    Nowhere,
    /// The system's log.
    SystemLog,
    /// A file, by its absolute path.
    File(PathBuf),
}

impl Destination {
    /// Returns the file that a descriptor refers to now, as long as it refers to it.
    #[must_use]
    pub fn present_file(fd: RawFd) -> Self {
        Identity::of_number(fd).map_or(Self::Nowhere, |file| Self::SameFile(fd, file))
    }
}

/// The name of a library in its log lines, and their destination.
#[derive(Debug)]
pub struct Outlet {
    name: &'static str,
    destination: Destination,
}

impl Outlet {
    /// Makes an outlet for the library or program `name`.
    #[must_use]
    pub fn new(name: &'static str, destination: Destination) -> Self {
        Self { name, destination }
    }

    /// Writes a line. Failures cannot be reported and are ignored.
    pub(super) fn write(&self, line: &Line) {
        let process = getpid().as_raw_nonzero().get();
        let dated = || line.dated(SystemTime::now(), self.name, process);
        // A line that cannot be written is lost.
        let _ = match &self.destination {
            Destination::SystemLog => to_system(&line.for_system(self.name, process)),
            Destination::File(path) => to_file(path, &dated()),
            Destination::Descriptor(_) | Destination::SameFile(..) | Destination::Nowhere => {
                self.to_descriptor(&dated())
            }
        };
    }

    /// Writes a message that is no event, in the form `NAME: TEXT` where a user reads it.
    pub fn print_error(&self, text: &str) {
        match self.destination {
            Destination::SystemLog | Destination::File(_) => self.write(&Line {
                level: tracing::Level::ERROR,
                text: text.to_owned(),
            }),
            // A line that cannot be written is lost.
            _ => _ = self.to_descriptor(&format!("{}: {text}\n", self.name)),
        }
    }

    fn to_descriptor(&self, line: &str) -> Result<(), Errno> {
        let fd = match self.destination {
            Destination::Descriptor(fd) => fd,
            Destination::SameFile(fd, file) if Identity::of_number(fd) == Ok(file) => fd,
            _ => return Ok(()),
        };
        // SAFETY: the number is not -1, because it is that of standard output or standard error,
        // and it is only passed to `write`, which returns EBADF if the number is not open.
        write_quietly(unsafe { BorrowedFd::borrow_raw(fd) }, line.as_bytes())
    }
}

/// Opens the file for each line. A descriptor kept open could be closed by a program that closes
/// all descriptors. A file that was moved away, as log rotation does, is created again.
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

/// Writes all bytes. A pipe without a reader must not end the program, which may not use it any
/// more, so SIGPIPE is blocked during the write and discarded afterwards.
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

/// Blocks SIGPIPE in this thread.
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
        // SAFETY: the sets are local variables, and each is filled by its call before it is read.
        // Changing a thread's own signal mask affects no other thread.
        unsafe {
            libc::sigemptyset(pipe.as_mut_ptr());
            libc::sigaddset(pipe.as_mut_ptr(), libc::SIGPIPE);
            let is_pending_known = libc::sigpending(pending.as_mut_ptr()) == 0;
            let is_set =
                libc::pthread_sigmask(libc::SIG_BLOCK, pipe.as_ptr(), before.as_mut_ptr()) == 0;
            (is_pending_known && is_set).then(|| Self {
                before: before.assume_init(),
                pipe: pipe.assume_init(),
                was_pending: libc::sigismember(pending.as_ptr(), libc::SIGPIPE) == 1,
            })
        }
    }

    /// Restores the mask. `broken`: the write failed with EPIPE, so a pending SIGPIPE is our own.
    fn reset(self, broken: bool) {
        let none = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `Mask::set` has filled the sets. A thread may take its own pending signals and
        // set its mask.
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
        let outlet = Outlet::new("test", Destination::File(path.clone()));
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
        // Moves the file away, as log rotation does, and puts a link in its place.
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
        // Rust test programs ignore SIGPIPE, but a program with our library need not.
        // SAFETY: the default action runs no function of ours.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        assert_eq!(write_quietly(writer.as_fd(), b"x"), Err(Errno::PIPE));
        // SAFETY: restores the action that `signal` returned above.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
