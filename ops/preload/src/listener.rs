//! A listening socket of the program, and the offloaded connections that arrive for it.
//!
//! The descriptor stays the kernel's listener, backlog and all. Beside it stands an `eventfd` that
//! counts the offloaded connections nobody has accepted; whatever waits for the listener waits for
//! it too, under the same name. So workers that inherited the listener, `EPOLLEXCLUSIVE` and
//! edge-triggered sets keep the kernel's own meaning.
//!
//! Connections arrive in the process that called `listen`. To another one that has inherited the
//! listener they are passed by `sharing::queue`, and the first one carries their bytes.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ops_observe::{Counter, Record};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::accepting;
use crate::protocol::{Arrival, Listening};
use crate::sharing::queue::{self, Passed};
use crate::socket::names::Family;
use crate::steward::{Ward, steward};
use crate::{internal, process};

/// What is added to a listening socket.
pub(crate) struct Listener {
    source: Source,
    pending: OwnedFd,
    family: Family,
    /// The process that made it.
    maker: i32,
}

/// Where arrivals come from.
enum Source {
    /// From the protocol.
    Here(Arc<Hall>),
    /// From the process that listens.
    There(OwnedFd),
}

/// A connection to be accepted.
pub(crate) enum Came {
    /// It belongs to this process.
    Here(Arrival),
    /// It belongs to the process that listens.
    There(Passed),
}

/// A listener as the child of a fork gets it.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    queue: RawFd,
    pending: RawFd,
    family: Family,
}

/// Where connections arrive in the process that listens.
struct Hall {
    service: OnceLock<Box<dyn Listening>>,
    arrivals: Mutex<VecDeque<Arrival>>,
    /// The protocol counts them here.
    told: OwnedFd,
    /// Under which the listener is listed.
    record: Record,
    /// And those who accept are told here.
    pending: OwnedFd,
    family: Family,
    queue_in: OwnedFd,
    queue_out: Mutex<Option<OwnedFd>>,
}

fn counter() -> Result<OwnedFd, Errno> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    internal::raise(eventfd(0, flags)?)
}

fn again(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    internal::raise(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

impl Listener {
    /// Begins to listen; `listen` is given the counter of arrivals.
    pub(crate) fn begin(
        family: Family,
        record: Record,
        listen: impl FnOnce(OwnedFd) -> Result<Box<dyn Listening>, Errno>,
    ) -> Result<Self, Errno> {
        let pending = counter()?;
        let (queue_in, queue_out) = queue::make()?;
        let hall = Arc::new(Hall {
            service: OnceLock::new(),
            arrivals: Mutex::default(),
            told: counter()?,
            record,
            pending: again(&pending)?,
            family,
            queue_in,
            queue_out: Mutex::new(Some(queue_out)),
        });
        // It is set once, here.
        let _ = hall.service.set(listen(again(&hall.told)?)?);
        steward()?.watch(&hall.told, EventFlags::IN, hall.clone())?;
        let asked = Arc::new(Asked(hall.clone()));
        steward()?.watch(&hall.queue_in, EventFlags::IN, asked)?;
        hall.let_in();
        Ok(Self {
            source: Source::Here(hall),
            pending,
            family,
            maker: process::id(),
        })
    }

    /// In the child of a fork, where the parent's listener is forgotten.
    pub(crate) fn copied(from: Copied) -> Self {
        // SAFETY: both came over the fork, and what owned them in the parent is forgotten.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        Self {
            source: Source::There(own(from.queue)),
            pending: own(from.pending),
            family: from.family,
            maker: process::id(),
        }
    }

    /// Before a fork: the child accepts as well. Gives what the child begins with, and adds what it
    /// must not keep.
    pub(crate) fn copy(&self, withheld: &mut Vec<RawFd>) -> Option<Copied> {
        let queue = match &self.source {
            Source::There(queue) => queue.as_raw_fd(),
            Source::Here(hall) => {
                withheld
                    .extend([&hall.told, &hall.pending, &hall.queue_in].map(AsRawFd::as_raw_fd));
                withheld.extend(hall.service.get()?.descriptors());
                hall.queue_out().as_ref()?.as_raw_fd()
            }
        };
        Some(Copied {
            queue,
            pending: self.pending.as_raw_fd(),
            family: self.family,
        })
    }

    /// The next offloaded connection, if there is one.
    pub(crate) fn accept(&self) -> Option<Came> {
        let mut count = [0; 8];
        // One count stands for one arrival, and whoever takes the count takes an arrival.
        rustix::io::read(&self.pending, &mut count[..]).ok()?;
        match &self.source {
            Source::There(queue) => queue::ask(queue).map(Came::There),
            Source::Here(hall) => hall.arrivals().pop_front().map(Came::Here),
        }
    }

    /// Whether the process that listens is gone: a server that became a daemon has left it behind.
    pub(crate) fn is_orphaned(&self) -> bool {
        match &self.source {
            Source::Here(_) => false,
            Source::There(queue) => queue::is_deserted(queue),
        }
    }

    /// The program has accepted a connection. The process that listens counts.
    pub(crate) fn count(&self, what: Counter) {
        if let Source::Here(hall) = &self.source {
            hall.record.count(what, 1);
        }
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

impl Drop for Listener {
    fn drop(&mut self) {
        if let Source::Here(hall) = &self.source {
            // The queue hangs up with the last process that could accept. Where this is it, the
            // protocol stops listening before the call returns: the program may listen anew at
            // once.
            hall.queue_out().take();
            if queue::is_deserted(&hall.queue_in) {
                hall.end();
            }
        }
    }
}

/// Those who accept elsewhere ask, and are there no more.
struct Asked(Arc<Hall>);

impl Ward for Asked {
    fn ready(&self, seen: EventFlags) {
        let hall = &self.0;
        while queue::is_asked(&hall.queue_in) {
            let arrival = hall.arrivals().pop_front();
            // A peer that cannot be passed on sees a reset, as where a backlog is full.
            let passed = arrival.map_or(Err(Errno::AGAIN), |arrival| hall.pass(arrival));
            if passed.is_err() {
                queue::put_none(&hall.queue_in);
            }
        }
        if seen.contains(EventFlags::HUP) {
            hall.end();
        }
    }
}

impl Hall {
    fn arrivals(&self) -> MutexGuard<'_, VecDeque<Arrival>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue_out(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.queue_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what has arrived, and tells of it.
    fn let_in(&self) {
        let mut count = [0; 8];
        while rustix::io::read(&self.told, &mut count[..]).is_ok() {
            let arrival = self.service.get().and_then(|service| service.accept());
            let Some(arrival) = arrival else {
                continue;
            };
            self.arrivals().push_back(arrival);
            // A counter of so many arrivals is never full.
            let _ = rustix::io::write(&self.pending, &1_u64.to_ne_bytes());
        }
    }

    /// Nobody accepts any more. What listens goes with the last reference.
    fn end(&self) {
        if let Ok(steward) = steward() {
            steward.leave(&self.told);
            steward.leave(&self.queue_in);
        }
    }

    fn pass(&self, arrival: Arrival) -> Result<(), Errno> {
        queue::put(&self.queue_in, &accepting::carried(self.family, arrival)?)?;
        self.record.count(Counter::AcceptedOffloaded, 1);
        Ok(())
    }
}

impl Ward for Hall {
    fn ready(&self, _flags: EventFlags) {
        self.let_in();
    }
}
