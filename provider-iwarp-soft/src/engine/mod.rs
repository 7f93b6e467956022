//! The engine: everything that no consumer's thread does.
//!
//! | File | What |
//! |---|---|
//! | [`thread`] | one thread per RNIC, started by the first [`Source`], ended by `shutdown` |
//! | [`poller`] | readiness of many sockets |
//! | [`timer`] | deadlines of the sources |
//! | [`slice`](mod@slice) | how soon the thread runs once the kernel has woken it |
//! | [`io`] | system calls on sockets |
//!
//! A [`Source`] is what can become ready or late: a listener, a start-up, a lingering socket, the
//! connections of the adapter as a whole ([`crate::progress`]).
//!
//! # What it costs
//!
//! A process that opened an RNIC and did nothing has no thread.

pub(crate) mod io;
mod poller;
mod slice;
mod thread;
mod timer;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use access_layer::rnic::{Resource, RnicError};
use rustix::event::epoll::EventData;
use rustix::io::Errno;

use poller::Poller;
use timer::Timers;

/// Names a source for the poller and the timers; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(usize);

/// Set in the data of a second descriptor. Keys count from 0 and never get that far.
const SECOND: u64 = 1 << 63;

impl Key {
    /// The key as an `epoll` entry carries it.
    pub(crate) fn as_event_data(self) -> EventData {
        EventData::new_u64(self.0 as u64)
    }

    /// The same for a second descriptor of the source.
    pub(crate) fn as_second_event_data(self) -> EventData {
        EventData::new_u64(self.0 as u64 | SECOND)
    }

    /// The key in the data of either descriptor. True: of the second one.
    pub(crate) fn of_either(data: EventData) -> (Self, bool) {
        let number = data.u64();
        (Self((number & !SECOND) as usize), number & SECOND != 0)
    }

    #[cfg(test)]
    pub(crate) fn for_test(number: usize) -> Self {
        Self(number)
    }
}

/// Something that the engine serves. Called from the engine's thread, with no lock held.
pub(crate) trait Source: Send + Sync {
    /// The socket of `key` is ready; its one-shot interest is used up.
    fn on_ready(self: Arc<Self>, key: Key, readable: bool, writable: bool);

    /// The deadline of `key` has passed and is cleared.
    fn on_deadline(self: Arc<Self>, key: Key);
}

/// What the engine's thread and its clients share.
pub(crate) struct Engine {
    poller: Poller,
    table: Mutex<Table>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: AtomicBool,
    next_key: AtomicUsize,
    /// Sockets whose connections are over and whose peers have not closed yet.
    lingering: AtomicUsize,
}

#[derive(Default)]
struct Table {
    sources: HashMap<Key, Arc<dyn Source>>,
    timers: Timers,
    /// When the thread, asleep now, wakes by itself.
    sleeps_until: Option<Instant>,
    asleep: bool,
}

impl Engine {
    pub(crate) fn new() -> Result<Arc<Self>, RnicError> {
        let poller = Poller::new().map_err(no_descriptor)?;
        Ok(Arc::new(Self {
            poller,
            table: Mutex::default(),
            thread: Mutex::new(None),
            stop: AtomicBool::new(false),
            next_key: AtomicUsize::new(0),
            lingering: AtomicUsize::new(0),
        }))
    }

    /// A key for a source that is about to be enlisted.
    pub(crate) fn new_key(&self) -> Key {
        Key(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    /// Makes a source known and the thread run.
    pub(crate) fn enlist(
        self: &Arc<Self>,
        key: Key,
        source: Arc<dyn Source>,
    ) -> Result<(), RnicError> {
        self.start()?;
        self.lock().sources.insert(key, source);
        Ok(())
    }

    /// Forgets a source and its deadline. Its socket must be unwatched before it is closed.
    pub(crate) fn delist(&self, key: Key) -> bool {
        let mut table = self.lock();
        table.timers.clear(key);
        let source = table.sources.remove(&key);
        drop(table);
        // Dropped outside the lock: it may be the last reference.
        source.is_some()
    }

    /// Like [`Self::enlist`], for a socket that `shutdown` gives a moment to end well.
    pub(crate) fn enlist_lingering(
        self: &Arc<Self>,
        key: Key,
        source: Arc<dyn Source>,
    ) -> Result<(), RnicError> {
        self.enlist(key, source)?;
        self.lingering.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Sockets known by [`Self::enlist_lingering`].
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.load(Ordering::Acquire)
    }

    /// Undoes [`Self::enlist_lingering`].
    pub(crate) fn delist_lingering(&self, key: Key) {
        if self.delist(key) {
            self.lingering.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Adds a socket, interest as given, one-shot.
    pub(crate) fn watch(
        &self,
        key: Key,
        fd: BorrowedFd<'_>,
        interest: Interest,
    ) -> std::io::Result<()> {
        Ok(self.poller.add(fd, key, interest)?)
    }

    /// Changes the interest and arms it again; a socket that was unwatched is watched again. A
    /// level that holds already is told at once.
    ///
    /// The kernel may have no room for a socket that was unwatched (`epoll_ctl(2)`: ENOMEM, or
    /// ENOSPC by `max_user_watches`). Then nothing tells of the socket, and the caller sees to it
    /// that it is looked at all the same, or ended.
    #[must_use = "a socket that nobody watches waits for ever"]
    pub(crate) fn rearm(&self, key: Key, fd: BorrowedFd<'_>, interest: Interest) -> Armed {
        let result = match self.poller.modify(fd, key, interest) {
            Err(Errno::NOENT) => self.poller.add(fd, key, interest),
            result => result,
        };
        result.map_err(|error| {
            tracing::error!(%error, "a socket cannot be watched");
            NotWatched
        })
    }

    /// Takes a socket out of the poller.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = self.poller.delete(fd);
    }

    /// Sets or clears the deadline of a source.
    pub(crate) fn set_deadline(&self, key: Key, deadline: Option<Instant>) {
        let mut table = self.lock();
        match deadline {
            Some(at) if table.sources.contains_key(&key) => {
                table.timers.set(key, at);
                let late = table.asleep && table.sleeps_until.is_none_or(|until| at < until);
                drop(table);
                if late {
                    self.wake();
                }
            }
            _ => table.timers.clear(key),
        }
    }

    /// Has the deadline of a source pass now.
    pub(crate) fn expire(&self, key: Key) {
        self.set_deadline(key, Some(Instant::now()));
    }

    fn wake(&self) {
        // Fails only when the poller is broken; then the thread has ended and said so.
        let _ = self.poller.notify();
    }

    fn start(self: &Arc<Self>) -> Result<(), RnicError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.load(Ordering::Acquire) {
            return Err(RnicError::InvalidState(
                "the interface adapter is being closed",
            ));
        }
        if thread.is_none() {
            *thread = Some(thread::spawn(self.clone())?);
        }
        Ok(())
    }

    /// Ends the thread and forgets all sources. When it returns, no upcall comes from the engine.
    pub(crate) fn shutdown(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            // An upcall that closes the adapter runs in the thread that would be waited for.
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the engine thread panicked");
        }
        let table = std::mem::take(&mut *self.lock());
        drop(table);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

/// The error of a call that makes a descriptor.
pub(crate) fn no_descriptor(error: Errno) -> RnicError {
    match error {
        Errno::MFILE | Errno::NFILE => RnicError::NoResources(Resource::Descriptor),
        other => RnicError::Os(other.into()),
    }
}

/// The kernel does not watch a socket for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotWatched;

/// Whether the kernel watches a socket.
pub(crate) type Armed = Result<(), NotWatched>;

/// What a socket is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Nothing,
    Readable,
    Writable,
    Both,
}

/// A deadline that far away that no one waits for it.
pub(crate) fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}
