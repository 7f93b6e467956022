//! A service of an offload protocol next to a TCP listener.
//!
//! Connections arrive in the process that called `listen`. An `eventfd` counts the connections that
//! wait to be accepted. A process that inherited the listener requests a connection by [`passing`];
//! the listening process then carries its bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use host::descriptors::{OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use host::stand_in::Flags;
use ops::netlink::NetStack;
use ops::observe::{Counter, Record};
use ops::{KernelConnection, OffloadListener, OffloadStream, Switch};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::events::{EventHandler, event_thread};
use crate::listener::offers::NotOffered;
use crate::listener::passing::{self, Inquiry, NoConnection, Passed, Request};
use crate::socket::Socket;
use crate::socket::room::Room;
use crate::tcp::names::Family;
use crate::tcp::options::Options;

pub(crate) struct Service {
    at: At,
    /// Counts the connections that wait to be accepted.
    counter: OwnDescriptor,
    /// True once an accept has found the counter closed by the program.
    is_lost: AtomicBool,
}

/// The process in which connections arrive.
enum At {
    /// This process.
    Here(Arc<AcceptQueue>),
    /// Another process, from which this process inherited the listener.
    Elsewhere(ListeningProcess),
}

/// The listening process, seen from another process.
struct ListeningProcess {
    accept_end: OwnDescriptor,
    /// True once the process has ended.
    is_gone: AtomicBool,
    /// The time of this process's last attempt to take over the service.
    tried: Mutex<Option<Instant>>,
}

/// The time between two attempts to take over a service.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A connection to be accepted.
pub(crate) enum Incoming {
    /// A connection that arrived in this process, with its descriptors.
    Own(Box<dyn OffloadStream>, Room),
    /// A connection that the listening process passed on.
    Passed(Passed, Options),
}

/// The copy of a service that the parent makes for the child of a fork.
#[derive(Clone, Copy)]
pub(crate) struct InheritedService {
    /// The end for requests to the listening process.
    accept_end: RawFd,
    counter: RawFd,
}

/// A service that the port mapper answers for: the switch, the TCP address, and the mapped address.
pub(crate) type Offered = (&'static Arc<Switch>, SocketAddr, SocketAddr);

/// A new listener of a protocol.
pub(crate) struct Begun {
    pub(crate) listener: Box<dyn OffloadListener>,
    /// The name in listings.
    pub(crate) protocol: String,
    /// True if peers ask for the address of the service before they connect.
    pub(crate) asks_peer: bool,
    /// The maximum number of connections that wait to be accepted.
    pub(crate) backlog: u32,
}

/// The accept queue of a service, in the listening process.
struct AcceptQueue {
    listener: Box<dyn OffloadListener>,
    protocol: String,
    arrivals: Mutex<VecDeque<Box<dyn OffloadStream>>>,
    /// The maximum number of arrivals: the backlog plus one, as in the kernel. Further connections
    /// stay with the protocol, and their peers fall back to TCP after a time.
    room: AtomicUsize,
    /// The record of the TCP listener.
    record: Arc<Record>,
    /// The service that the port mapper answers for, if any. It is withdrawn when no process can
    /// accept any more.
    offered: Mutex<Option<Offered>>,
    counter: OwnDescriptor,
    /// True once the event thread checks whether the program accepts.
    is_checked: AtomicBool,
    family: Family,
    listen_end: OwnDescriptor,
    accept_end: Mutex<Option<OwnDescriptor>>,
    /// Called after another process has shut the TCP listener down.
    on_shut: fn(ServiceId),
}

/// Identifies a service of this process, as long as the service exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceId(usize);

fn counter() -> Result<OwnedFd, Errno> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    raise(eventfd(0, flags)?)
}

/// As in the kernel, one connection more than the backlog may wait.
fn room_of(backlog: u32) -> usize {
    (backlog as usize).saturating_add(1)
}

fn take_count(counter: &OwnDescriptor) -> bool {
    let mut count = [0; 8];
    rustix::io::read(counter, &mut count[..]).is_ok()
}

fn duplicate(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    raise(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

impl Service {
    /// Begins to accept the connections of a protocol. `on_shut` is called after another process
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
            room: room_of(begun.backlog).into(),
            record,
            offered: Mutex::default(),
            counter: duplicate(&counter)?.into(),
            is_checked: AtomicBool::new(false),
            family,
            listen_end: listen_end.into(),
            accept_end: Mutex::new(Some(accept_end.into())),
            on_shut,
        });
        let thread = event_thread()?;
        thread.watch(&*queue.listener, EventFlags::IN, queue.clone())?;
        let requests = Arc::new(PassRequests(queue.clone()));
        thread.watch(&queue.listen_end, EventFlags::IN, requests)?;
        queue.fill();
        Ok(Self {
            at: At::Here(queue),
            counter: counter.into(),
            is_lost: AtomicBool::new(false),
        })
    }

    /// Makes the service of the child of a fork.
    pub(crate) fn inherited(from: InheritedService) -> Self {
        // SAFETY: the child inherited both descriptors. It forgets its copies of the parent's
        // objects, so nothing else in the child closes them.
        let own = |fd| OwnDescriptor::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Self {
            at: At::Elsewhere(ListeningProcess {
                accept_end: own(from.accept_end),
                is_gone: AtomicBool::new(false),
                tried: Mutex::default(),
            }),
            counter: own(from.counter),
            is_lost: AtomicBool::new(false),
        }
    }

    /// Returns, before a fork, the copy for the child; `None` for a service that has ended.
    /// Descriptors that the child must not keep are added to `withheld`.
    pub(crate) fn copy(&self, withheld: &mut Vec<RawFd>) -> Option<InheritedService> {
        let accept_end = match &self.at {
            At::Elsewhere(owner) => owner.accept_end.as_raw_fd(),
            At::Here(queue) => {
                let accept_end = queue.accept_end().as_ref()?.as_raw_fd();
                let own = [&queue.counter, &queue.listen_end];
                let own = own.into_iter().filter(|fd| !fd.is_lost());
                withheld.extend(own.map(AsRawFd::as_raw_fd));
                withheld.extend(queue.listener.descriptors());
                accept_end
            }
        };
        Some(InheritedService {
            accept_end,
            counter: self.number(),
        })
    }

    /// Returns the address at which the protocol listens, if it listens in this process.
    pub(crate) fn mapped(&self) -> Option<SocketAddr> {
        match &self.at {
            At::Here(queue) => Some(queue.listener.mapped()),
            At::Elsewhere(_) => None,
        }
    }

    /// Records that the port mapper answers for the service, until the service ends.
    pub(crate) fn set_offered(&self, offered: Offered) {
        if let At::Here(queue) = &self.at {
            *queue.offered() = Some(offered);
        }
    }

    /// Returns the id of a service that listens in this process.
    pub(crate) fn id(&self) -> Option<ServiceId> {
        match &self.at {
            At::Here(queue) => Some(queue.id()),
            At::Elsewhere(_) => None,
        }
    }

    /// Changes the backlog of a service that listens in this process.
    pub(crate) fn set_backlog(&self, backlog: u32) {
        if let At::Here(queue) = &self.at {
            queue.room.store(room_of(backlog), Ordering::Relaxed);
            queue.listener.set_backlog(backlog);
        }
    }

    /// Returns true while connections wait to be accepted.
    pub(crate) fn has_arrivals(&self) -> bool {
        let mut set = [PollFd::new(&self.counter, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())) == Ok(1)
    }

    /// Accepts a waiting connection with these options and flags. On an error the connection stays
    /// queued.
    pub(crate) fn accept(&self, options: Options, shown: Flags) -> Result<Option<Incoming>, Errno> {
        if self.counter.is_lost() {
            self.is_lost.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        match &self.at {
            At::Elsewhere(owner) => {
                let inquiry = Inquiry::new()?;
                if !self.take_count() {
                    return Ok(None);
                }
                let Ok(passed) = passing::request(&owner.accept_end, inquiry) else {
                    // The connection stays queued.
                    self.counter.count_up();
                    return Ok(None);
                };
                Ok(passed?.map(|passed| Incoming::Passed(passed, options)))
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

    /// Returns true if an accept has found that the program has closed the counter.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Decrements the counter. Returns false if it is 0. A caller that decrements it must take an
    /// arrival.
    fn take_count(&self) -> bool {
        take_count(&self.counter)
    }

    /// Begins the checks of a service that listens in this process. `None`: they have begun.
    pub(crate) fn begin_checks(&self) -> Option<Arrivals> {
        let At::Here(queue) = &self.at else {
            return None;
        };
        let is_checked = queue.is_checked.swap(true, Ordering::Relaxed);
        (!is_checked).then(|| Arrivals(Arc::downgrade(queue)))
    }

    /// Ends the service in the listening process, and closes the waiting connections.
    pub(crate) fn end(&self) {
        match &self.at {
            At::Here(queue) => queue.shut(),
            At::Elsewhere(owner) => passing::end(&owner.accept_end),
        }
    }

    /// Returns true if the listening process has ended, as after a server has become a daemon by a
    /// fork.
    pub(crate) fn is_orphaned(&self) -> bool {
        let At::Elsewhere(owner) = &self.at else {
            return false;
        };
        let is_gone =
            owner.is_gone.load(Ordering::Relaxed) || passing::is_hung_up(&owner.accept_end);
        owner.is_gone.store(is_gone, Ordering::Relaxed);
        is_gone
    }

    /// Returns true if this process may try to take over the service of a process that has ended.
    pub(crate) fn may_be_taken_over(&self) -> bool {
        let At::Elsewhere(owner) = &self.at else {
            return false;
        };
        if !self.is_orphaned() {
            return false;
        }
        let now = Instant::now();
        let mut tried = owner.tried.lock().ignore_poison();
        let is_time = tried.is_none_or(|tried| now.duration_since(tried) >= TRY_AGAIN);
        if is_time {
            *tried = Some(now);
        }
        is_time
    }

    /// Returns a descriptor that hangs up when the listening process ends. `None`: the process is
    /// known to have ended, or it is this process.
    pub(crate) fn listening_process(&self) -> Option<BorrowedFd<'_>> {
        match &self.at {
            At::Elsewhere(owner) if !owner.is_gone.load(Ordering::Relaxed) => {
                Some(owner.accept_end.as_fd())
            }
            _ => None,
        }
    }

    /// Returns the protocol of a service that listens in this process, or an empty string.
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
            // The last process that closes `accept_end` causes a hang-up, which ends the queue. If
            // this process is the last, the protocol stops listening before this call returns,
            // because the program may listen again at once.
            queue.accept_end().take();
            if passing::is_hung_up(&queue.listen_end) {
                queue.end();
            }
        }
    }
}

/// The waiting connections, as the event thread checks them. They do not outlive the service.
pub(crate) struct Arrivals(Weak<AcceptQueue>);

impl Arrivals {
    /// Watches for waiting connections.
    pub(crate) fn watch(
        &self,
        flags: EventFlags,
        handler: Arc<dyn EventHandler>,
    ) -> Result<(), Errno> {
        let queue = self.0.upgrade().ok_or(Errno::BADF)?;
        event_thread()?.watch(&queue.counter, flags, handler)
    }

    /// Watches again after an event.
    pub(crate) fn arm(&self, flags: EventFlags) {
        if let (Some(queue), Ok(thread)) = (self.0.upgrade(), event_thread()) {
            thread.modify(&queue.counter, flags);
        }
    }

    pub(crate) fn are_pending(&self) -> bool {
        let queue = self.0.upgrade();
        queue.is_some_and(|queue| !queue.arrivals().is_empty())
    }

    /// Returns true while peers have begun to connect.
    pub(crate) fn are_connecting(&self) -> bool {
        let queue = self.0.upgrade();
        queue.is_some_and(|queue| queue.listener.has_connecting())
    }

    /// Accepts the next connection as a socket that carries its bytes. A connection that has broken
    /// is left to the program, because its bytes cannot be carried.
    pub(crate) fn take(
        &self,
        stack: Option<&NetStack>,
    ) -> Result<(KernelConnection, Weak<Socket>), NotOffered> {
        let queue = self.0.upgrade().ok_or(NotOffered::Ended)?;
        loop {
            let first = queue
                .arrivals()
                .iter()
                .find(|it| is_whole(it.as_ref()))
                .map(|it| it.peer().ip());
            let first = first.ok_or(NotOffered::NoClient)?;
            if !stack.is_some_and(|stack| stack.is_own(first)) {
                return Err(NotOffered::OtherHost);
            }
            let room = Room::for_others(queue.family).map_err(|_| NotOffered::NoDescriptor)?;
            if !take_count(&queue.counter) {
                return Err(NotOffered::NoClient);
            }
            let Some(arrival) = queue.take_first(is_whole) else {
                // It has failed meanwhile, and still waits.
                queue.count();
                return Err(NotOffered::NoClient);
            };
            let (local, peer) = (arrival.local(), arrival.peer());
            let socket = room.establish_for_others(queue.family, &queue.protocol, arrival);
            if let Ok((socket, carried)) = socket {
                let connection = KernelConnection {
                    socket,
                    local,
                    peer,
                };
                return Ok((connection, Arc::downgrade(&carried)));
            }
        }
    }

    pub(crate) fn withdraw(&self) {
        if let Some(queue) = self.0.upgrade() {
            queue.withdraw();
        }
    }
}

/// Returns false for a connection that has failed. Its bytes cannot be carried, but a program that
/// accepts it can read them.
fn is_whole(arrival: &dyn OffloadStream) -> bool {
    !arrival.readiness().failed
}

/// Answers the requests of other processes that accept.
struct PassRequests(Arc<AcceptQueue>);

impl EventHandler for PassRequests {
    fn ready(&self, seen: EventFlags) {
        let queue = &self.0;
        while let Some(request) = passing::receive_request(&queue.listen_end) {
            match request {
                Request::Arrival(reply) => queue.pass(reply),
                Request::End => {
                    queue.shut();
                    (queue.on_shut)(queue.id());
                }
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
        self.arrivals.lock().ignore_poison()
    }

    fn offered(&self) -> MutexGuard<'_, Option<Offered>> {
        self.offered.lock().ignore_poison()
    }

    fn accept_end(&self) -> MutexGuard<'_, Option<OwnDescriptor>> {
        self.accept_end.lock().ignore_poison()
    }

    /// Queues and counts the connections that have arrived.
    fn fill(&self) {
        // If the protocol's listener fails, peers connect over TCP.
        while self.arrivals().len() < self.room()
            && let Ok(Some(arrival)) = self.listener.accept()
        {
            self.arrivals().push_back(arrival);
            self.count();
        }
    }

    /// Takes the next arrival. If the queue was full, it is filled again.
    fn take_next(self: &Arc<Self>) -> Option<Box<dyn OffloadStream>> {
        self.take_first(|_| true)
    }

    /// Takes the first arrival that `is_it` accepts.
    fn take_first(
        self: &Arc<Self>,
        is_it: impl Fn(&dyn OffloadStream) -> bool,
    ) -> Option<Box<dyn OffloadStream>> {
        let mut arrivals = self.arrivals();
        let was_full = arrivals.len() >= self.room();
        let next = arrivals
            .iter()
            .position(|arrival| is_it(arrival.as_ref()))
            .and_then(|at| arrivals.remove(at));
        drop(arrivals);
        if was_full && let Ok(thread) = event_thread() {
            thread.run_soon(Arc::clone(self) as _);
        }
        next
    }

    fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.counter.count_up();
    }

    /// Stops listening, because no process can accept any more. The protocol's listener is dropped
    /// with the last reference.
    fn end(&self) {
        {
            // The lock is held until the offer is withdrawn, because the thread that closes the
            // listener and the event thread may call this method at the same time. Neither may
            // return before that: the program may offer the same service again at once.
            let mut offered = self.offered();
            if let Some((switch, service, mapped)) = offered.take() {
                switch.withdraw(service, mapped);
            }
        }
        if let Ok(thread) = event_thread() {
            thread.unwatch(&*self.listener);
            thread.unwatch(&self.listen_end);
            thread.unwatch(&self.counter);
        }
    }

    /// Withdraws the offer, so that later clients use TCP.
    fn withdraw(&self) {
        if let Some((switch, service, mapped)) = self.offered().take() {
            switch.withdraw(service, mapped);
        }
        self.listener.withdraw();
    }

    /// Stops listening and closes the waiting connections, because the program has shut the socket
    /// down.
    fn shut(&self) {
        self.end();
        let waiting = std::mem::take(&mut *self.arrivals());
        for arrival in &waiting {
            arrival.abort();
        }
        let mut count = [0; 8];
        while rustix::io::read(&self.counter, &mut count[..]).is_ok() {}
    }

    /// Passes the next arrival to the process that receives from `reply`. That process has
    /// decremented the counter, so an arrival that stays queued is counted again.
    fn pass(self: &Arc<Self>, reply: Option<OwnedFd>) {
        // The requesting process may have been killed, or may have stopped waiting.
        let Some(reply) = reply.filter(|it| !passing::is_hung_up(it)) else {
            return self.count();
        };
        let Ok(room) = Room::for_others(self.family) else {
            self.count();
            return passing::answer_none(&reply, NoConnection::NoDescriptor);
        };
        let Some(arrival) = self.take_next() else {
            return passing::answer_none(&reply, NoConnection::NoneQueued);
        };
        let (local, peer) = (arrival.local(), arrival.peer());
        let passed = room.establish_for_others(self.family, &self.protocol, arrival);
        let passed = passed.and_then(|(program, _)| {
            let passed = Passed {
                program,
                local,
                peer,
            };
            passing::answer(&reply, &passed)
        });
        match passed {
            Ok(()) => self.record.count(Counter::AcceptedOffloaded, 1),
            // The peer sees a reset.
            Err(_) => passing::answer_none(&reply, NoConnection::NoneQueued),
        }
    }
}

impl Drop for AcceptQueue {
    fn drop(&mut self) {
        // TCP resets the connections in the queue of a closed listener.
        for arrival in self.arrivals().iter() {
            arrival.abort();
        }
    }
}

impl EventHandler for AcceptQueue {
    fn ready(&self, _flags: EventFlags) {
        self.fill();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn a_request_that_cannot_be_sent_leaves_its_connection_counted() {
        let (listen_end, accept_end) = passing::make().unwrap();
        let flags = rustix::net::SendFlags::DONTWAIT;
        while rustix::net::send(&accept_end, &[0], flags).is_ok() {}
        let service = Service::inherited(InheritedService {
            accept_end: accept_end.into_raw_fd(),
            counter: counter().unwrap().into_raw_fd(),
        });
        service.counter.count_up();
        let family = Family::V4;
        let accept = || {
            let options = Options::fresh(family).unwrap();
            service.accept(options, Flags::default())
        };
        assert!(matches!(accept(), Ok(None)));
        assert!(service.has_arrivals(), "the connection is still queued");
        drop(listen_end);
        assert!(matches!(accept(), Ok(None)));
        assert!(!service.has_arrivals(), "it has ended with its process");
    }
}
