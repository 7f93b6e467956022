//! A service of an offload protocol next to a TCP listener.
//!
//! An `eventfd` counts the connections that nobody has accepted. They arrive in the process that
//! called `listen`. Another process that has inherited the listener asks for them by
//! [`passing`], and the first one carries their bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use host::descriptors::raise;
use host::stand_in::Flags;
use ops::observe::{Counter, Record};
use ops::{OffloadListener, OffloadStream, Switch};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::events::{EventHandler, event_thread};
use crate::listener::passing::{self, Passed, Reserved, Wanted, WhyNone};
use crate::socket::room::Room;
use crate::tcp::names::Family;
use crate::tcp::options::Options;

/// A service.
pub(crate) struct Service {
    at: At,
    /// Counts the connections that nobody has accepted.
    counter: OwnedFd,
}

/// Where its connections arrive.
enum At {
    /// In this process.
    Here(Arc<AcceptQueue>),
    /// In the process that listens.
    Elsewhere(ListeningProcess),
}

/// The process that listens, as others see it.
struct ListeningProcess {
    accept_end: OwnedFd,
    /// True once the process has ended.
    is_gone: AtomicBool,
    /// When this process tried last to listen in its place.
    tried: Mutex<Option<Instant>>,
}

/// A process that cannot listen in the place of another one tries again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A connection to be accepted.
pub(crate) enum Incoming {
    /// A connection of this process, with its descriptors.
    Own(Box<dyn OffloadStream>, Room),
    /// A connection of the process that listens.
    Passed(Passed, Options),
}

/// A service as the child of a fork gets it.
#[derive(Clone, Copy)]
pub(crate) struct InheritedService {
    /// The end at which the process that listens is asked.
    accept_end: RawFd,
    counter: RawFd,
}

/// A service that peers ask for: where it is, where it is mapped to, and by whom they are answered.
pub(crate) type Offered = (&'static Arc<Switch>, SocketAddr, SocketAddr);

/// A listener of a protocol, as it begins.
pub(crate) struct Begun {
    pub(crate) listener: Box<dyn OffloadListener>,
    /// The name in listings.
    pub(crate) protocol: String,
    /// Peers ask where the service is before they connect.
    pub(crate) asks_peer: bool,
    /// The most connections that wait to be accepted.
    pub(crate) backlog: u32,
}

/// The accept queue of a service, in the process that listens.
struct AcceptQueue {
    listener: Box<dyn OffloadListener>,
    protocol: String,
    arrivals: Mutex<VecDeque<Box<dyn OffloadStream>>>,
    /// The most arrivals: the backlog and one more, as in the kernel. The others stay with the
    /// protocol, and their peers go on over TCP when that takes too long.
    room: usize,
    /// Lists the TCP listener.
    record: Arc<Record>,
    /// Set as long as a process can accept.
    offered: Mutex<Option<Offered>>,
    counter: OwnedFd,
    family: Family,
    listen_end: OwnedFd,
    accept_end: Mutex<Option<OwnedFd>>,
    /// Called after another process has shut the TCP listener down.
    on_shut: fn(ServiceId),
}

/// Names a service that listens in this process, while it lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceId(usize);

fn counter() -> Result<OwnedFd, Errno> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    raise(eventfd(0, flags)?)
}

fn again(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    raise(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

impl Service {
    /// Takes the connections of a protocol from now on. `on_shut` is called after another process
    /// has shut the TCP listener down.
    pub(crate) fn begin(
        begun: Begun,
        family: Family,
        record: Arc<Record>,
        on_shut: fn(ServiceId),
    ) -> Result<Self, Errno> {
        let counter = counter()?;
        let (listen_end, accept_end) = passing::make()?;
        let queue = Arc::new(AcceptQueue {
            listener: begun.listener,
            protocol: begun.protocol,
            arrivals: Mutex::default(),
            room: (begun.backlog as usize).saturating_add(1),
            record,
            offered: Mutex::default(),
            counter: again(&counter)?,
            family,
            listen_end,
            accept_end: Mutex::new(Some(accept_end)),
            on_shut,
        });
        let thread = event_thread()?;
        thread.watch(&*queue.listener, EventFlags::IN, queue.clone())?;
        let requests = Arc::new(PassRequests(queue.clone()));
        thread.watch(&queue.listen_end, EventFlags::IN, requests)?;
        queue.fill();
        Ok(Self {
            at: At::Here(queue),
            counter,
        })
    }

    /// In the child of a fork, where the parent's service is forgotten.
    pub(crate) fn inherited(from: InheritedService) -> Self {
        // SAFETY: both came over the fork, and what owned them in the parent is forgotten.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        Self {
            at: At::Elsewhere(ListeningProcess {
                accept_end: own(from.accept_end),
                is_gone: AtomicBool::new(false),
                tried: Mutex::default(),
            }),
            counter: own(from.counter),
        }
    }

    /// Before a fork, what the child gets; `None` for a service that has ended. Descriptors that
    /// the child must not keep are added to `withheld`.
    pub(crate) fn copy(&self, withheld: &mut Vec<RawFd>) -> Option<InheritedService> {
        let accept_end = match &self.at {
            At::Elsewhere(owner) => owner.accept_end.as_raw_fd(),
            At::Here(queue) => {
                let accept_end = queue.accept_end().as_ref()?.as_raw_fd();
                withheld.extend([&queue.counter, &queue.listen_end].map(AsRawFd::as_raw_fd));
                withheld.extend(queue.listener.descriptors());
                accept_end
            }
        };
        Some(InheritedService {
            accept_end,
            counter: self.number(),
        })
    }

    /// Returns the address where peers find it, if it listens in this process.
    pub(crate) fn mapped(&self) -> Option<SocketAddr> {
        match &self.at {
            At::Here(queue) => Some(queue.listener.mapped()),
            At::Elsewhere(_) => None,
        }
    }

    /// Notes that peers can ask for it, until it ends.
    pub(crate) fn is_offered(&self, offered: Offered) {
        if let At::Here(queue) = &self.at {
            *queue.offered() = Some(offered);
        }
    }

    /// Returns the name of a service that listens in this process.
    pub(crate) fn id(&self) -> Option<ServiceId> {
        match &self.at {
            At::Here(queue) => Some(queue.id()),
            At::Elsewhere(_) => None,
        }
    }

    /// Returns true while there are connections that nobody has accepted.
    pub(crate) fn has_arrivals(&self) -> bool {
        let mut set = [PollFd::new(&self.counter, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())) == Ok(1)
    }

    /// The next connection, if there is one, for a socket that is set and shown like this. An error
    /// leaves it where it is, to be accepted when there is room.
    pub(crate) fn accept(&self, options: Options, shown: Flags) -> Result<Option<Incoming>, Errno> {
        match &self.at {
            At::Elsewhere(owner) => {
                let room = Reserved::of(self.counter.as_fd())?;
                if !self.take_count() {
                    return Ok(None);
                }
                let passed = passing::ask(&owner.accept_end, room)?;
                Ok(passed.map(|passed| Incoming::Passed(passed, options)))
            }
            At::Here(queue) => {
                let room = Room::of(options, shown)?;
                if !self.take_count() {
                    return Ok(None);
                }
                let arrival = queue.take_next();
                Ok(arrival.map(|stream| Incoming::Own(stream, room)))
            }
        }
    }

    /// Takes one of the counts. Each stands for one arrival, and whoever takes it takes an arrival.
    fn take_count(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&self.counter, &mut count[..]).is_ok()
    }

    /// Ends the service, wherever it listens, and closes the connections that wait.
    pub(crate) fn end(&self) {
        match &self.at {
            At::Here(queue) => queue.shut(),
            At::Elsewhere(owner) => passing::end(&owner.accept_end),
        }
    }

    /// Returns true if the process that listens is gone: a server that became a daemon has left it
    /// behind.
    pub(crate) fn is_orphaned(&self) -> bool {
        let At::Elsewhere(owner) = &self.at else {
            return false;
        };
        let is_gone =
            owner.is_gone.load(Ordering::Relaxed) || passing::is_deserted(&owner.accept_end);
        owner.is_gone.store(is_gone, Ordering::Relaxed);
        is_gone
    }

    /// Returns true if this process is to try to listen where nobody does any more.
    pub(crate) fn may_be_taken_over(&self) -> bool {
        let At::Elsewhere(owner) = &self.at else {
            return false;
        };
        if !self.is_orphaned() {
            return false;
        }
        let now = Instant::now();
        let mut tried = owner.tried.lock().unwrap_or_else(PoisonError::into_inner);
        let is_time = tried.is_none_or(|tried| now.duration_since(tried) >= TRY_AGAIN);
        if is_time {
            *tried = Some(now);
        }
        is_time
    }

    /// Hangs up when the process that listens goes. `None`: that is known, or it is this one.
    pub(crate) fn listening_process(&self) -> Option<BorrowedFd<'_>> {
        match &self.at {
            At::Elsewhere(owner) if !owner.is_gone.load(Ordering::Relaxed) => {
                Some(owner.accept_end.as_fd())
            }
            _ => None,
        }
    }

    /// Returns the protocol of connections that arrive in this process.
    pub(crate) fn protocol(&self) -> &str {
        match &self.at {
            At::Here(queue) => &queue.protocol,
            At::Elsewhere(_) => "",
        }
    }

    pub(crate) fn number(&self) -> RawFd {
        self.counter.as_raw_fd()
    }
}

impl AsFd for Service {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.counter.as_fd()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let At::Here(queue) = &self.at {
            // The queue hangs up with the last process that could accept. Where this is it, the
            // protocol stops listening before the call returns: the program may listen anew at
            // once.
            queue.accept_end().take();
            if passing::is_deserted(&queue.listen_end) {
                queue.end();
            }
        }
    }
}

/// Answers the processes that accept elsewhere.
struct PassRequests(Arc<AcceptQueue>);

impl EventHandler for PassRequests {
    fn ready(&self, seen: EventFlags) {
        let queue = &self.0;
        while let Some(wanted) = passing::wanted(&queue.listen_end) {
            if wanted == Wanted::End {
                queue.shut();
                (queue.on_shut)(queue.id());
            } else if let Err(why) = queue.pass() {
                passing::put_none(&queue.listen_end, why);
            }
        }
        if seen.contains(EventFlags::HUP) {
            queue.end();
        }
    }
}

impl AcceptQueue {
    fn id(self: &Arc<Self>) -> ServiceId {
        ServiceId(Arc::as_ptr(self).addr())
    }

    fn arrivals(&self) -> MutexGuard<'_, VecDeque<Box<dyn OffloadStream>>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offered(&self) -> MutexGuard<'_, Option<Offered>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept_end(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.accept_end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the connections that have arrived, and counts them.
    fn fill(&self) {
        // A service that fails brings nobody; peers come over TCP.
        while self.arrivals().len() < self.room
            && let Ok(Some(arrival)) = self.listener.accept()
        {
            self.arrivals().push_back(arrival);
            self.count();
        }
    }

    /// The arrival that is next. Where there was no room for more, there is now.
    fn take_next(self: &Arc<Self>) -> Option<Box<dyn OffloadStream>> {
        let mut arrivals = self.arrivals();
        let was_full = arrivals.len() >= self.room;
        let next = arrivals.pop_front();
        drop(arrivals);
        if was_full && let Ok(thread) = event_thread() {
            thread.run_soon(Arc::clone(self) as _);
        }
        next
    }

    /// There is one more to be taken.
    fn count(&self) {
        // A counter of so many arrivals is never full.
        let _ = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
    }

    /// Stops listening: no process accepts any more. The protocol's listener is dropped with the
    /// last reference.
    fn end(&self) {
        {
            // Held until the offer is withdrawn, so that the second of the two callers, the
            // program's close or the event thread, returns no sooner: the program may offer the
            // same service anew at once.
            let mut offered = self.offered();
            if let Some((switch, service, mapped)) = offered.take() {
                switch.withdraw(service, mapped);
            }
        }
        if let Ok(thread) = event_thread() {
            thread.unwatch(&*self.listener);
            thread.unwatch(&self.listen_end);
        }
    }

    /// Stops listening, and closes the connections that wait: the program has shut the socket down.
    fn shut(&self) {
        self.end();
        let waiting = std::mem::take(&mut *self.arrivals());
        for arrival in &waiting {
            arrival.abort();
        }
        let mut count = [0; 8];
        while rustix::io::read(&self.counter, &mut count[..]).is_ok() {}
    }

    /// Passes the next arrival to who has asked.
    fn pass(self: &Arc<Self>) -> Result<(), WhyNone> {
        let Ok(room) = Room::for_others(self.family) else {
            // It stays where it is, and who has asked has taken its count.
            self.count();
            return Err(WhyNone::NoRoom);
        };
        let arrival = self.take_next().ok_or(WhyNone::NobodyCame)?;
        let (local, peer) = (arrival.local(), arrival.peer());
        let passed = room.establish_for_others(self.family, &self.protocol, arrival);
        let passed = passed.and_then(|program| {
            let passed = Passed {
                program,
                local,
                peer,
            };
            passing::put(&self.listen_end, &passed)
        });
        // A peer that cannot be passed on sees a reset, as where a backlog is full.
        passed.map_err(|_| WhyNone::NobodyCame)?;
        self.record.count(Counter::AcceptedOffloaded, 1);
        Ok(())
    }
}

impl EventHandler for AcceptQueue {
    fn ready(&self, _flags: EventFlags) {
        self.fill();
    }
}
