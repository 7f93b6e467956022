//! A socket of the program whose bytes an offload protocol carries, with the meaning that the
//! kernel gives to a TCP socket.
//!
//! | File | What |
//! |---|---|
//! | [`stream`] | what a protocol's connection must be able to do |
//! | [`observer`] | from what comes about there to what the program's descriptor shows |
//! | [`parking`] | where blocking calls sleep |
//! | [`receive`], [`send`] | the two directions, with flags, timeouts and signals |
//! | [`ending`] | shutting down, closing, lingering |
//! | [`options`], [`requests`] | `getsockopt`, `setsockopt`; `ioctl` |
//! | [`names`] | addresses as C has them |

pub(crate) mod ending;
pub(crate) mod names;
pub(crate) mod observer;
pub(crate) mod options;
pub(crate) mod parking;
pub(crate) mod receive;
pub(crate) mod requests;
pub(crate) mod send;
pub(crate) mod stream;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use names::Family;
use observer::Observer;
use options::Options;
use stream::Stream;

use crate::process;

/// A connected socket that an offload protocol carries.
pub(crate) struct Socket {
    stream: Box<dyn Stream>,
    observer: Arc<Observer>,
    family: Family,
    local: SocketAddr,
    peer: SocketAddr,
    options: Mutex<Options>,
    /// `shutdown(SHUT_RD)` and `shutdown(SHUT_WR)` were called.
    reading_ended: AtomicBool,
    writing_ended: AtomicBool,
    /// Descriptors of this process that name it.
    numbers: AtomicU32,
    /// The process that made it.
    maker: i32,
}

impl Socket {
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        observer: Arc<Observer>,
        family: Family,
        local: SocketAddr,
        peer: SocketAddr,
        options: Options,
    ) -> Self {
        Self {
            stream,
            observer,
            family,
            local,
            peer,
            options: Mutex::new(options),
            reading_ended: AtomicBool::new(false),
            writing_ended: AtomicBool::new(false),
            numbers: AtomicU32::new(0),
            maker: process::id(),
        }
    }

    /// `getsockname`.
    pub(crate) fn local(&self) -> SocketAddr {
        self.local
    }

    /// `getpeername`.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The family that the program sees.
    pub(crate) fn family(&self) -> Family {
        self.family
    }

    /// `sockatmark`.
    pub(crate) fn is_at_mark(&self) -> bool {
        self.stream.is_at_mark()
    }

    fn options(&self) -> MutexGuard<'_, Options> {
        self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was made in this process, and not copied by a fork.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.maker == process::id()
    }

    /// One more descriptor of this process names it.
    pub(crate) fn named(&self) {
        self.numbers.fetch_add(1, Ordering::AcqRel);
    }

    /// One descriptor less. `true`: it was the last.
    pub(crate) fn unnamed(&self) -> bool {
        self.numbers.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// How long a call may wait, from `O_NONBLOCK`, `MSG_DONTWAIT` and the timeouts of the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// So long.
    Until(Instant),
    /// For ever.
    Endless,
}

impl Patience {
    pub(crate) fn of(fd: BorrowedFd<'_>, flags: i32, timeout: Option<Duration>) -> Self {
        let nonblocking = flags & libc::MSG_DONTWAIT != 0
            || fcntl_getfl(fd.as_fd()).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
        match timeout {
            _ if nonblocking => Self::None,
            Some(timeout) => Self::Until(Instant::now() + timeout),
            None => Self::Endless,
        }
    }

    /// Waits for news since `seen`.
    pub(crate) fn wait(self, observer: &Observer, seen: u32) -> Result<(), Errno> {
        match self {
            Self::None => Err(Errno::AGAIN),
            Self::Until(deadline) => observer.parking().sleep(seen, Some(deadline)),
            Self::Endless => observer.parking().sleep(seen, None),
        }
    }
}
