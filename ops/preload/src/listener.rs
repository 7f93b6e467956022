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
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ops::{OffloadListener, OffloadStream, Switch};
use ops_observe::{Counter, Record, Tally};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use stand_in::Flags;

use crate::accepting::{self, Room};
use crate::event_thread::{EventHandler, event_thread};
use crate::sharing::queue::{self, Passed, Reserved, Wanted, WhyNone};
use crate::socket::names::Family;
use crate::socket::options::Options;
use crate::turn::Turn;
use crate::{internal, listening, process};

/// What is added to a listening socket.
pub(crate) struct Listener {
    source: Source,
    pending: OwnedFd,
    turn: Arc<Turn>,
    family: Family,
    /// The process that made it.
    maker: i32,
}

/// Where arrivals come from.
enum Source {
    /// From the protocol.
    Here(Arc<Hall>),
    /// From the process that listens.
    There(Elsewhere),
}

/// The process that listens, as others see it.
struct Elsewhere {
    queue: OwnedFd,
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
pub(crate) enum Came {
    /// It belongs to this process, which has made room for it.
    Here(Box<dyn OffloadStream>, Room),
    /// It belongs to the process that listens.
    There(Passed, Options),
}

/// A listener as the child of a fork gets it.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    queue: RawFd,
    pending: RawFd,
    turn: RawFd,
    family: Family,
    tally: Option<Tally>,
}

/// A service of which peers are told, where it is mapped, and by whom they are told.
pub(crate) type Offered = (&'static Arc<Switch>, SocketAddr, SocketAddr);

/// Where connections arrive in the process that listens.
struct Hall {
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
    /// Takes the connections of `service` from now on. `turn` is that of those who accept from the
    /// same socket of the kernel.
    pub(crate) fn begin(
        family: Family,
        protocol: &str,
        record: Record,
        service: Box<dyn OffloadListener>,
        turn: Arc<Turn>,
        backlog: u32,
    ) -> Result<Self, Errno> {
        let pending = counter()?;
        let (queue_in, queue_out) = queue::make()?;
        let hall = Arc::new(Hall {
            service,
            protocol: protocol.to_owned(),
            arrivals: Mutex::default(),
            room: (backlog as usize).saturating_add(1),
            record,
            offered: Mutex::default(),
            pending: again(&pending)?,
            family,
            queue_in,
            queue_out: Mutex::new(Some(queue_out)),
        });
        event_thread()?.watch(&*hall.service, EventFlags::IN, hall.clone())?;
        let asked = Arc::new(Asked(hall.clone()));
        event_thread()?.watch(&hall.queue_in, EventFlags::IN, asked)?;
        hall.let_in();
        Ok(Self {
            source: Source::Here(hall),
            pending,
            turn,
            family,
            maker: process::id(),
        })
    }

    /// Where peers find it; `None`: another process listens.
    pub(crate) fn mapped(&self) -> Option<SocketAddr> {
        match &self.source {
            Source::Here(hall) => Some(hall.service.mapped()),
            Source::There(_) => None,
        }
    }

    /// Peers are told of it, until it ends.
    pub(crate) fn is_offered(&self, offered: Offered) {
        if let Source::Here(hall) = &self.source {
            *hall.offered() = Some(offered);
        }
    }

    /// In the child of a fork, where the parent's listener is forgotten.
    pub(crate) fn copied(from: Copied) -> Self {
        // SAFETY: both came over the fork, and what owned them in the parent is forgotten.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        Self {
            source: Source::There(Elsewhere {
                queue: own(from.queue),
                tally: from.tally,
                is_gone: AtomicBool::new(false),
                tried: Mutex::default(),
            }),
            pending: own(from.pending),
            turn: Arc::new(Turn::inherited(own(from.turn))),
            family: from.family,
            maker: process::id(),
        }
    }

    /// Before a fork: the child accepts as well. Gives what the child begins with, and adds what it
    /// must not keep.
    pub(crate) fn copy(&self, withheld: &mut Vec<RawFd>) -> Option<Copied> {
        let (queue, tally) = match &self.source {
            Source::There(elsewhere) => (elsewhere.queue.as_raw_fd(), elsewhere.tally),
            Source::Here(hall) => {
                withheld.extend([&hall.pending, &hall.queue_in].map(AsRawFd::as_raw_fd));
                withheld.extend(hall.service.descriptors());
                (hall.queue_out().as_ref()?.as_raw_fd(), hall.record.tally())
            }
        };
        Some(Copied {
            queue,
            pending: self.pending.as_raw_fd(),
            turn: self.turn.as_raw_fd(),
            family: self.family,
            tally,
        })
    }

    /// Whether there are offloaded connections that nobody has taken yet.
    pub(crate) fn has_arrivals(&self) -> bool {
        let mut set = [PollFd::new(&self.pending, PollFlags::IN)];
        poll(&mut set, Some(&Timespec::default())) == Ok(1)
    }

    /// The next offloaded connection, if there is one, for a socket that is set and shown like
    /// this. An error leaves it where it is, to be accepted when there is room.
    pub(crate) fn accept(&self, options: Options, shown: Flags) -> Result<Option<Came>, Errno> {
        match &self.source {
            Source::There(elsewhere) => {
                let room = Reserved::of(self.pending())?;
                if !self.is_mine() {
                    return Ok(None);
                }
                let passed = queue::ask(&elsewhere.queue, room)?;
                Ok(passed.map(|passed| Came::There(passed, options)))
            }
            Source::Here(hall) => {
                let room = Room::of(options, shown)?;
                if !self.is_mine() {
                    return Ok(None);
                }
                let arrival = hall.take_next();
                Ok(arrival.map(|stream| Came::Here(stream, room)))
            }
        }
    }

    /// Takes one of the counts. Each stands for one arrival, and whoever takes it takes an arrival.
    fn is_mine(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&self.pending, &mut count[..]).is_ok()
    }

    /// Nobody is let in any more, wherever it listens, and who waits goes.
    pub(crate) fn end(&self) {
        match &self.source {
            Source::Here(hall) => hall.shut(),
            Source::There(elsewhere) => queue::end(&elsewhere.queue),
        }
    }

    /// Whether the process that listens is gone: a server that became a daemon has left it behind.
    pub(crate) fn is_orphaned(&self) -> bool {
        match &self.source {
            Source::Here(_) => false,
            Source::There(elsewhere) => {
                let is_gone = elsewhere.is_gone.load(Ordering::Relaxed)
                    || queue::is_deserted(&elsewhere.queue);
                elsewhere.is_gone.store(is_gone, Ordering::Relaxed);
                is_gone
            }
        }
    }

    /// Whether this process is to try to listen where nobody does any more.
    pub(crate) fn may_be_taken_over(&self) -> bool {
        let Source::There(elsewhere) = &self.source else {
            return false;
        };
        if !self.is_orphaned() {
            return false;
        }
        let now = Instant::now();
        let mut tried = elsewhere
            .tried
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_time = tried.is_none_or(|tried| now.duration_since(tried) >= TRY_AGAIN);
        if is_time {
            *tried = Some(now);
        }
        is_time
    }

    /// Hangs up when the process that listens goes. `None`: that is known, or it is this one.
    pub(crate) fn maker_elsewhere(&self) -> Option<BorrowedFd<'_>> {
        match &self.source {
            Source::There(elsewhere) if !elsewhere.is_gone.load(Ordering::Relaxed) => {
                Some(elsewhere.queue.as_fd())
            }
            _ => None,
        }
    }

    /// Who accepts from the kernel's listener.
    pub(crate) fn turn(&self) -> &Arc<Turn> {
        &self.turn
    }

    /// The program has accepted a connection of TCP, in whichever of its processes.
    pub(crate) fn count_native(&self) {
        match &self.source {
            Source::Here(hall) => hall.record.count(Counter::AcceptedTcp, 1),
            Source::There(elsewhere) => {
                if let Some(tally) = elsewhere.tally {
                    tally.count(Counter::AcceptedTcp, 1);
                }
            }
        }
    }

    /// This process has accepted an offloaded connection of its own. One that another process asks
    /// for is counted where it is passed.
    pub(crate) fn count_offloaded(&self) {
        if let Source::Here(hall) = &self.source {
            hall.record.count(Counter::AcceptedOffloaded, 1);
        }
    }

    /// What carries the connections that belong to this process.
    pub(crate) fn protocol(&self) -> &str {
        match &self.source {
            Source::Here(hall) => &hall.protocol,
            Source::There(_) => "",
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

impl EventHandler for Asked {
    fn ready(&self, seen: EventFlags) {
        let hall = &self.0;
        while let Some(wanted) = queue::wanted(&hall.queue_in) {
            if wanted == Wanted::End {
                hall.shut();
                listening::forget(
                    |it| matches!(&it.source, Source::Here(of) if Arc::ptr_eq(of, hall)),
                );
            } else if let Err(why) = hall.pass() {
                queue::put_none(&hall.queue_in, why);
            }
        }
        if seen.contains(EventFlags::HUP) {
            hall.end();
        }
    }
}

impl Hall {
    fn arrivals(&self) -> MutexGuard<'_, VecDeque<Box<dyn OffloadStream>>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn offered(&self) -> MutexGuard<'_, Option<Offered>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue_out(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.queue_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what has arrived, and tells of it.
    fn let_in(&self) {
        // A service that fails brings nobody; peers come over TCP.
        while self.arrivals().len() < self.room
            && let Ok(Some(arrival)) = self.service.accept()
        {
            self.arrivals().push_back(arrival);
            self.count();
        }
    }

    /// The arrival whose turn it is. Where there was no room for more, there is now.
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
            thread.unwatch(&self.queue_in);
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
            .and_then(|passed| queue::put(&self.queue_in, &passed));
        passed.map_err(|_| WhyNone::NobodyCame)?;
        self.record.count(Counter::AcceptedOffloaded, 1);
        Ok(())
    }
}

impl EventHandler for Hall {
    fn ready(&self, _flags: EventFlags) {
        self.let_in();
    }
}
