//! A listening socket of the program, and the offloaded connections that arrive for it.
//!
//! The descriptor stays the kernel's listener, backlog and all. Beside it stands an `eventfd` that
//! counts the offloaded connections nobody has accepted; whatever waits for the listener waits for
//! it too, under the same name. So workers that inherited the listener, `EPOLLEXCLUSIVE` and
//! edge-triggered sets keep the kernel's own meaning.
//!
//! Connections arrive in the process that called `listen`. To another one that has inherited the
//! listener they are passed by `sharing::passing`, and the first one carries their bytes.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ops::{KernelConnection, KernelSockets, OffloadListener, OffloadStream, Switch};
use ops_observe::{Counter, Record, Tally};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, FdFlags};
use rustix::net::{Shutdown, SocketFlags, sockopt};
use stand_in::Flags;

use crate::accept_lock::AcceptLock;
use crate::accepting::{self, Room};
use crate::event_thread::{EventHandler, event_thread};
use crate::local::carried::{self, Carried};
use crate::local::options::Kept;
use crate::sharing::passing::{self, Passed, Reserved, Wanted, WhyNone};
use crate::socket::names::Family;
use crate::socket::options::Options;
use crate::{internal, listening, process};

/// What is added to a listening socket.
pub(crate) struct Listener {
    source: Source,
    pending: OwnedFd,
    accept_lock: Arc<AcceptLock>,
    family: Family,
    /// The process that made it.
    maker: i32,
}

/// Where arrivals come from.
enum Source {
    /// From a listener of the kernel's, which is `pending` itself. Each process that has inherited
    /// the listener has its own number of it, as it has of the TCP listener.
    Kernel(Box<KernelSource>),
    /// From the protocol.
    Own(Arc<AcceptQueue>),
    /// From the process that listens.
    Inherited(OwnerProcess),
}

/// A listener of the kernel's.
struct KernelSource {
    sockets: &'static dyn KernelSockets,
    /// The protocol's name in the listing of connections.
    protocol: &'static str,
    /// Where the listener is listed, in the process that made it.
    _record: Option<Record>,
    tally: Option<Tally>,
    /// It was shut down: the offer is withdrawn.
    is_withdrawn: AtomicBool,
    /// Counts what was accepted, so that TCP has its turn.
    turn: AtomicU32,
    /// The options that accepted connections inherit, and the count of changes when they were read.
    carried: Mutex<Option<(u64, Carried)>>,
}

/// TCP has its turn with each of so many connections.
const TURNS: u32 = 8;

/// The process that listens, as others see it.
struct OwnerProcess {
    accept_end: OwnedFd,
    /// Where that process lists the listener.
    tally: Option<Tally>,
    /// It is gone for good.
    is_gone: AtomicBool,
    /// When this process tried last to listen in its place.
    tried: Mutex<Option<Instant>>,
}

/// How long one who cannot listen in the place of another leaves it at that.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// A connection to be accepted.
pub(crate) enum Incoming {
    /// It belongs to this process, which has made room for it.
    Own(Box<dyn OffloadStream>, Room),
    /// It belongs to the process that listens.
    Passed(Passed, Options),
}

/// A listener as the child of a fork gets it.
#[derive(Clone, Copy)]
pub(crate) struct InheritedListener {
    from: InheritedSource,
    pending: RawFd,
    accept_lock: RawFd,
    family: Family,
    tally: Option<Tally>,
}

/// Where the arrivals of such a listener come from.
#[derive(Clone, Copy)]
enum InheritedSource {
    /// The end at which the process that listens is asked.
    Owner(RawFd),
    /// The kernel.
    Kernel(&'static dyn KernelSockets, &'static str),
}

/// A service of which peers are told, where it is mapped, and by whom they are told.
pub(crate) type Offered = (&'static Arc<Switch>, SocketAddr, SocketAddr);

/// The accept queue of the offloaded connections, in the process that listens.
struct AcceptQueue {
    service: Box<dyn OffloadListener>,
    /// What carries its connections.
    protocol: String,
    arrivals: Mutex<VecDeque<Box<dyn OffloadStream>>>,
    /// How many of them there may be: the backlog and one more, as in the kernel. The others stay
    /// with the service, and their peers go on over TCP when that takes too long.
    room: usize,
    /// Under which the listener is listed.
    record: Record,
    /// As long as anybody can accept.
    offered: Mutex<Option<Offered>>,
    /// Those who accept are told here.
    pending: OwnedFd,
    family: Family,
    listen_end: OwnedFd,
    accept_end: Mutex<Option<OwnedFd>>,
}

fn counter() -> Result<OwnedFd, Errno> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
    internal::raise(eventfd(0, flags)?)
}

fn again(fd: impl AsFd) -> Result<OwnedFd, Errno> {
    internal::raise(rustix::io::fcntl_dupfd_cloexec(fd, 0)?)
}

impl Listener {
    /// Takes the connections of `service` from now on. `accept_lock` is that of those who accept
    /// from the same socket of the kernel.
    pub(crate) fn begin(
        family: Family,
        protocol: &str,
        record: Record,
        service: Box<dyn OffloadListener>,
        accept_lock: Arc<AcceptLock>,
        backlog: u32,
    ) -> Result<Self, Errno> {
        let pending = counter()?;
        let (listen_end, accept_end) = passing::make()?;
        let queue = Arc::new(AcceptQueue {
            service,
            protocol: protocol.to_owned(),
            arrivals: Mutex::default(),
            room: (backlog as usize).saturating_add(1),
            record,
            offered: Mutex::default(),
            pending: again(&pending)?,
            family,
            listen_end,
            accept_end: Mutex::new(Some(accept_end)),
        });
        event_thread()?.watch(&*queue.service, EventFlags::IN, queue.clone())?;
        let requests = Arc::new(PassRequests(queue.clone()));
        event_thread()?.watch(&queue.listen_end, EventFlags::IN, requests)?;
        queue.fill();
        Ok(Self {
            source: Source::Own(queue),
            pending,
            accept_lock,
            family,
            maker: process::id(),
        })
    }

    /// Takes the connections of a listener of the kernel's from now on.
    pub(crate) fn of_kernel(
        family: Family,
        (protocol, sockets): (&str, &'static dyn KernelSockets),
        record: Record,
        listener: OwnedFd,
        accept_lock: Arc<AcceptLock>,
    ) -> Result<Self, Errno> {
        // One for each listener of a process, and no more than there are protocols to tell apart.
        let protocol = String::from(protocol).leak();
        let tally = record.tally();
        Ok(Self {
            source: Source::Kernel(Box::new(KernelSource::new(
                sockets,
                protocol,
                Some(record),
                tally,
            ))),
            pending: internal::raise(listener)?,
            accept_lock,
            family,
            maker: process::id(),
        })
    }

    /// Where peers find it; `None`: another process listens.
    pub(crate) fn mapped(&self) -> Option<SocketAddr> {
        match &self.source {
            Source::Own(queue) => Some(queue.service.mapped()),
            Source::Kernel(_) | Source::Inherited(_) => None,
        }
    }

    /// Peers are told of it, until it ends.
    pub(crate) fn is_offered(&self, offered: Offered) {
        if let Source::Own(queue) = &self.source {
            *queue.offered() = Some(offered);
        }
    }

    /// In the child of a fork, where the parent's listener is forgotten.
    pub(crate) fn inherited(from: InheritedListener) -> Self {
        // SAFETY: both came over the fork, and what owned them in the parent is forgotten.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        let source = match from.from {
            InheritedSource::Owner(accept_end) => Source::Inherited(OwnerProcess {
                accept_end: own(accept_end),
                tally: from.tally,
                is_gone: AtomicBool::new(false),
                tried: Mutex::default(),
            }),
            InheritedSource::Kernel(sockets, protocol) => {
                let of = KernelSource::new(sockets, protocol, None, from.tally);
                Source::Kernel(Box::new(of))
            }
        };
        Self {
            source,
            pending: own(from.pending),
            accept_lock: Arc::new(AcceptLock::inherited(own(from.accept_lock))),
            family: from.family,
            maker: process::id(),
        }
    }

    /// Before a fork: the child accepts as well. Gives what the child begins with, and adds what it
    /// must not keep.
    pub(crate) fn copy(&self, withheld: &mut Vec<RawFd>) -> Option<InheritedListener> {
        let (from, tally) = match &self.source {
            Source::Kernel(of) => (InheritedSource::Kernel(of.sockets, of.protocol), of.tally),
            Source::Inherited(owner) => {
                let accept_end = owner.accept_end.as_raw_fd();
                (InheritedSource::Owner(accept_end), owner.tally)
            }
            Source::Own(queue) => {
                withheld.extend([&queue.pending, &queue.listen_end].map(AsRawFd::as_raw_fd));
                withheld.extend(queue.service.descriptors());
                let accept_end = queue.accept_end().as_ref()?.as_raw_fd();
                (InheritedSource::Owner(accept_end), queue.record.tally())
            }
        };
        Some(InheritedListener {
            from,
            pending: self.pending.as_raw_fd(),
            accept_lock: self.accept_lock.as_raw_fd(),
            family: self.family,
            tally,
        })
    }

    /// Whether there are offloaded connections that nobody has taken yet.
    pub(crate) fn has_arrivals(&self) -> bool {
        if let Source::Kernel(of) = &self.source {
            // The kernel's `accept` says so in the same call.
            return !of.is_withdrawn();
        }
        let mut set = [PollFd::new(&self.pending, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())) == Ok(1)
    }

    /// The next offloaded connection, if there is one, for a socket that is set and shown like
    /// this. An error leaves it where it is, to be accepted when there is room.
    pub(crate) fn accept(&self, options: Options, shown: Flags) -> Result<Option<Incoming>, Errno> {
        match &self.source {
            Source::Kernel(_) => Ok(None),
            Source::Inherited(owner) => {
                let room = Reserved::of(self.pending())?;
                if !self.take_count() {
                    return Ok(None);
                }
                let passed = passing::ask(&owner.accept_end, room)?;
                Ok(passed.map(|passed| Incoming::Passed(passed, options)))
            }
            Source::Own(queue) => {
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
        rustix::io::read(&self.pending, &mut count[..]).is_ok()
    }

    /// Nobody is let in any more, wherever it listens, and who waits goes.
    pub(crate) fn end(&self) {
        match &self.source {
            Source::Kernel(_) => self.withdraw(),
            Source::Own(queue) => queue.shut(),
            Source::Inherited(owner) => passing::end(&owner.accept_end),
        }
    }

    /// Whether the process that listens is gone: a server that became a daemon has left it behind.
    pub(crate) fn is_orphaned(&self) -> bool {
        match &self.source {
            Source::Kernel(_) | Source::Own(_) => false,
            Source::Inherited(owner) => {
                let is_gone = owner.is_gone.load(Ordering::Relaxed)
                    || passing::is_deserted(&owner.accept_end);
                owner.is_gone.store(is_gone, Ordering::Relaxed);
                is_gone
            }
        }
    }

    /// Whether this process is to try to listen where nobody does any more.
    pub(crate) fn may_be_taken_over(&self) -> bool {
        let Source::Inherited(owner) = &self.source else {
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
    pub(crate) fn owner_process(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::Inherited(owner) if !owner.is_gone.load(Ordering::Relaxed) => {
                Some(owner.accept_end.as_fd())
            }
            _ => None,
        }
    }

    /// Who accepts from the kernel's listener.
    pub(crate) fn accept_lock(&self) -> &Arc<AcceptLock> {
        &self.accept_lock
    }

    /// The program has accepted a connection of TCP, in whichever of its processes.
    pub(crate) fn count_native(&self) {
        let tally = match &self.source {
            Source::Own(queue) => return queue.record.count(Counter::AcceptedTcp, 1),
            Source::Kernel(of) => of.tally,
            Source::Inherited(owner) => owner.tally,
        };
        if let Some(tally) = tally {
            tally.count(Counter::AcceptedTcp, 1);
        }
    }

    /// This process has accepted an offloaded connection of its own. One that another process asks
    /// for is counted where it is passed.
    pub(crate) fn count_offloaded(&self) {
        match &self.source {
            Source::Own(queue) => queue.record.count(Counter::AcceptedOffloaded, 1),
            Source::Kernel(of) => {
                if let Some(tally) = of.tally {
                    tally.count(Counter::AcceptedOffloaded, 1);
                }
            }
            Source::Inherited(_) => {}
        }
    }

    /// Refuses connections to the kernel's listener from now on, in whichever process. Those in its
    /// queue are still accepted.
    pub(crate) fn withdraw(&self) {
        if matches!(self.source, Source::Kernel(_)) {
            let _ = rustix::net::shutdown(&self.pending, Shutdown::Both);
        }
    }

    /// The kernel's listener goes over an `exec`, or does not.
    pub(crate) fn keep_over_exec(&self, is_kept: bool) {
        if matches!(self.source, Source::Kernel(_)) {
            let mut flags = FdFlags::empty();
            flags.set(FdFlags::CLOEXEC, !is_kept);
            // In a process that has closed it, nothing is to be kept.
            let _ = rustix::io::fcntl_setfd(&self.pending, flags);
        }
    }

    /// Closes the number that a process has which does not own the table.
    pub(crate) fn close_copy(&self) {
        let is_listener = || sockopt::socket_acceptconn(&self.pending).unwrap_or(false);
        if matches!(self.source, Source::Kernel(_)) && is_listener() {
            // SAFETY: in that process nothing else uses the number; its owner is in the memory of
            // another process.
            unsafe { libc::syscall(libc::SYS_close, self.pending_number()) };
        }
    }

    /// The next connection of the kernel's listener, as its socket is to be. `Err`: there is no
    /// such listener. `Ok(None)`: nobody has arrived, or the offer is withdrawn.
    pub(crate) fn accept_in_kernel(
        &self,
        socket: BorrowedFd<'_>,
        flags: SocketFlags,
    ) -> Result<Result<Option<(KernelConnection, Kept)>, Errno>, NoKernelListener> {
        let Source::Kernel(of) = &self.source else {
            return Err(NoKernelListener);
        };
        Ok(match of.sockets.accept(self.pending(), flags) {
            Ok(None) => {
                let mut set = [PollFd::new(&self.pending, PollFlags::RDHUP)];
                if poll(&mut set, Some(&Timespec::default())) == Ok(1) {
                    of.is_withdrawn.store(true, Ordering::Relaxed);
                }
                Ok(None)
            }
            Ok(Some(connection)) => {
                of.turn.fetch_add(1, Ordering::Relaxed);
                let kept = of.carry_over(socket, self.family, connection.socket.as_fd());
                Ok(Some((connection, kept)))
            }
            Err(errno) => Err(errno),
        })
    }

    /// Returns true where it is the turn of a connection of TCP, if there is one.
    pub(crate) fn is_turn_of_tcp(&self) -> bool {
        match &self.source {
            Source::Kernel(of) => of.turn.load(Ordering::Relaxed) % TURNS == TURNS - 1,
            Source::Own(_) | Source::Inherited(_) => false,
        }
    }

    /// Returns true for a listener of the kernel's that was shut down, by whichever process.
    pub(crate) fn is_withdrawn(&self) -> bool {
        matches!(&self.source, Source::Kernel(of) if of.is_withdrawn())
    }

    /// The program has set another backlog.
    pub(crate) fn set_backlog(&self, backlog: i32) {
        if matches!(self.source, Source::Kernel(_)) {
            let _ = rustix::net::listen(&self.pending, backlog);
        }
    }

    /// What carries the connections that belong to this process.
    pub(crate) fn protocol(&self) -> &str {
        match &self.source {
            Source::Kernel(of) => of.protocol,
            Source::Own(queue) => &queue.protocol,
            Source::Inherited(_) => "",
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
        if let Source::Own(queue) = &self.source {
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

/// A listener has no listener of the kernel's next to it.
pub(crate) struct NoKernelListener;

impl KernelSource {
    fn new(
        sockets: &'static dyn KernelSockets,
        protocol: &'static str,
        record: Option<Record>,
        tally: Option<Tally>,
    ) -> Self {
        Self {
            sockets,
            protocol,
            _record: record,
            tally,
            is_withdrawn: AtomicBool::new(false),
            turn: AtomicU32::new(0),
            carried: Mutex::default(),
        }
    }

    fn is_withdrawn(&self) -> bool {
        self.is_withdrawn.load(Ordering::Relaxed)
    }

    /// Sets an accepted connection as the TCP listener is set.
    fn carry_over(
        &self,
        listener: BorrowedFd<'_>,
        family: Family,
        connection: BorrowedFd<'_>,
    ) -> Kept {
        let now = carried::changes();
        let mut carried = self.carried.lock().unwrap_or_else(PoisonError::into_inner);
        if carried.as_ref().is_none_or(|(at, _)| *at != now) {
            *carried = Some((now, Carried::of_listener(listener, family)));
        }
        carried
            .as_ref()
            .map(|(_, carried)| carried.apply(connection))
            .unwrap_or_default()
    }
}

/// Those who accept elsewhere ask, and are there no more.
struct PassRequests(Arc<AcceptQueue>);

impl EventHandler for PassRequests {
    fn ready(&self, seen: EventFlags) {
        let queue = &self.0;
        while let Some(wanted) = passing::wanted(&queue.listen_end) {
            if wanted == Wanted::End {
                queue.shut();
                listening::forget(
                    |it| matches!(&it.source, Source::Own(of) if Arc::ptr_eq(of, queue)),
                );
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

    /// Takes in what has arrived, and tells of it.
    fn fill(&self) {
        // A service that fails brings nobody; peers come over TCP.
        while self.arrivals().len() < self.room
            && let Ok(Some(arrival)) = self.service.accept()
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
        let _ = rustix::io::write(&self.pending, &1_u64.to_ne_bytes());
    }

    /// Nobody accepts any more. What listens goes with the last reference.
    fn end(&self) {
        {
            // Held until peers are told, so that whoever comes second, the program's close or the
            // event thread, returns no sooner: the program may offer the same service anew at once.
            let mut offered = self.offered();
            if let Some((switch, service, mapped)) = offered.take() {
                switch.withdraw(service, mapped);
            }
        }
        if let Ok(thread) = event_thread() {
            thread.unwatch(&*self.service);
            thread.unwatch(&self.listen_end);
        }
    }

    /// As where nobody accepts any more, by the program's word.
    fn shut(&self) {
        self.end();
        let waiting = std::mem::take(&mut *self.arrivals());
        for arrival in &waiting {
            arrival.abort();
        }
        let mut count = [0; 8];
        while rustix::io::read(&self.pending, &mut count[..]).is_ok() {}
    }

    /// Passes the next arrival to who has asked.
    fn pass(self: &Arc<Self>) -> Result<(), WhyNone> {
        let Ok(room) = Room::for_others(self.family) else {
            // It stays where it is, and who has asked has taken its count.
            self.count();
            return Err(WhyNone::NoRoom);
        };
        let arrival = self.take_next().ok_or(WhyNone::NobodyCame)?;
        // A peer that cannot be passed on sees a reset, as where a backlog is full.
        let passed = accepting::carried(self.family, &self.protocol, arrival, room)
            .and_then(|passed| passing::put(&self.listen_end, &passed));
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
