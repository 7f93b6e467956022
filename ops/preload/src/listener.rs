//! A listening socket of the program, and the offloaded connections that arrive for it.
//!
//! The descriptor stays the kernel's listener, backlog and all. Beside it stands an `eventfd` that
//! counts the offloaded connections nobody has accepted; whatever waits for the listener waits for
//! it too, under the same name. So workers that inherited the listener, `EPOLLEXCLUSIVE` and
//! edge-triggered sets keep the kernel's own meaning.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::protocol::{Arrival, Listening};
use crate::socket::names::Family;
use crate::{internal, process};

/// What is added to a listening socket.
pub(crate) struct Listener {
    service: Box<dyn Listening>,
    pending: OwnedFd,
    family: Family,
    /// The process that made it.
    maker: i32,
}

impl Listener {
    /// Begins to listen; `listen` is given the counter of arrivals.
    pub(crate) fn begin(
        family: Family,
        listen: impl FnOnce(OwnedFd) -> Result<Box<dyn Listening>, Errno>,
    ) -> Result<Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let pending = internal::raise(eventfd(0, flags)?)?;
        let service = listen(internal::raise(rustix::io::dup(&pending)?)?)?;
        Ok(Self {
            service,
            pending,
            family,
            maker: process::id(),
        })
    }

    /// The next offloaded connection, if there is one.
    pub(crate) fn accept(&self) -> Option<Arrival> {
        let mut count = [0; 8];
        // One count stands for one arrival, and whoever takes the count takes an arrival.
        rustix::io::read(&self.pending, &mut count[..]).ok()?;
        self.service.accept()
    }

    /// Readable while there are arrivals.
    pub(crate) fn pending(&self) -> BorrowedFd<'_> {
        self.pending.as_fd()
    }

    /// The number of the same.
    pub(crate) fn pending_number(&self) -> RawFd {
        self.pending.as_raw_fd()
    }

    /// Whether it was made in this process, and not copied by a fork.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.maker == process::id()
    }

    /// The family of the listening socket, which accepted ones inherit.
    pub(crate) fn family(&self) -> Family {
        self.family
    }
}
