//! The engine: all work that no consumer's thread does.
//!
//! | File | Contents |
//! |---|---|
//! | [`thread`] | the thread of an RNIC, started by the first [`Source`], ended by `shutdown` |
//! | [`poller`] | readiness of many sockets |
//! | [`timer`] | deadlines of the sources |
//! | [`slice`](mod@slice) | short time slices for the thread, so that it runs soon after a wake-up |
//! | [`io`] | system calls on sockets |
//!
//! A [`Source`] is an object that can become ready or reach a deadline: a listener, a start-up, a
//! lingering socket, the connections of the adapter as a whole ([`crate::progress`]).
//!
//! # Cost
//!
//! A process that opened an RNIC and did nothing has no thread.

mod poller;
mod slice;
mod thread;
mod timer;

pub(crate) use rnic::socket::io;

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use poller::Poller;
use rnic::{Resource, RnicError};
use rustix::event::epoll::EventData;
use rustix::io::Errno;
use timer::Timers;

/// The name of a source for the poller and the timers; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(usize);

/// The bit that marks the data of a second descriptor. Keys count from 0 and never reach it.
const SECOND: u64 = 1 << 63;

impl Key {
    /// The key as an `epoll` entry carries it.
    pub(crate) fn as_event_data(self) -> EventData {
        EventData::new_u64(self.0 as u64)
    }

    /// The data for a second descriptor of the source.
    pub(crate) fn as_second_event_data(self) -> EventData {
        EventData::new_u64(self.0 as u64 | SECOND)
    }

    /// The key in the data of either descriptor, and true for the second descriptor.
    pub(crate) fn of_either(data: EventData) -> (Self, bool) {
        let number = data.u64();
        (Self((number & !SECOND) as usize), number & SECOND != 0)
    }

    #[cfg(test)]
    pub(crate) fn for_test(number: usize) -> Self {
        Self(number)
    }
}

/// An object that the engine serves. Its methods are called on the engine's thread, with no lock
/// held.
pub(crate) trait Source: Send + Sync {
    /// Called when the socket of `key` is ready; its one-shot interest is used up. Sources that
    /// only have deadlines do nothing.
    fn on_ready(self: Arc<Self>, _key: Key, _readable: bool, _writable: bool) {}

    /// Called when the deadline of `key` has passed and is cleared.
    fn on_deadline(self: Arc<Self>, key: Key);
}

/// The state that the engine's thread and its clients share.
pub(crate) struct Engine {
    poller: Poller,
    table: Mutex<Table>,
    thread: Mutex<Option<host::threads::Thread>>,
    stop: AtomicBool,
    next_key: AtomicUsize,
    /// The number of sockets whose connections are over and whose peers have not closed yet.
    lingering: AtomicUsize,
}

#[derive(Default)]
struct Table {
    sources: HashMap<Key, Arc<dyn Source>>,
    timers: Timers,
    /// The time at which the sleeping thread wakes without an event.
    sleeps_until: Option<Instant>,
    is_asleep: bool,
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

    /// Returns a key for a source that is about to be enlisted.
    pub(crate) fn new_key(&self) -> Key {
        Key(self.next_key.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds a source, and starts the thread if it does not run.
    pub(crate) fn enlist(
        self: &Arc<Self>,
        key: Key,
        source: Arc<dyn Source>,
    ) -> Result<(), RnicError> {
        self.start()?;
        self.lock().sources.insert(key, source);
        Ok(())
    }

    /// Removes a source and its deadline. Its socket must be unwatched before it is closed.
    pub(crate) fn delist(&self, key: Key) -> bool {
        let mut table = self.lock();
        table.timers.remove(key);
        let source = table.sources.remove(&key);
        drop(table);
        // Dropped outside the lock, because this may be the last reference.
        source.is_some()
    }

    /// Like [`Self::enlist`], for a socket that `shutdown` gives a moment to close gracefully.
    pub(crate) fn enlist_lingering(
        self: &Arc<Self>,
        key: Key,
        source: Arc<dyn Source>,
    ) -> Result<(), RnicError> {
        self.enlist(key, source)?;
        self.lingering.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The number of sockets that [`Self::enlist_lingering`] added.
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.load(Ordering::Acquire)
    }

    /// Undoes [`Self::enlist_lingering`].
    pub(crate) fn delist_lingering(&self, key: Key) {
        if self.delist(key) {
            self.lingering.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Adds a socket with a one-shot interest.
    pub(crate) fn watch(
        &self,
        key: Key,
        fd: BorrowedFd<'_>,
        interest: Interest,
    ) -> std::io::Result<()> {
        Ok(self.poller.add(fd, key, interest)?)
    }

    /// Changes the interest and arms it again, also for a socket that was unwatched. A socket that
    /// is ready already causes an event at once.
    ///
    /// The kernel may have no room for a socket that was unwatched (`epoll_ctl(2)`: ENOMEM, or
    /// ENOSPC by `max_user_watches`). Then the socket has no events, and the caller must poll it or
    /// end it.
    #[must_use = "a socket that is not watched waits for ever"]
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

    /// Removes a socket from the poller.
    pub(crate) fn unwatch(&self, fd: BorrowedFd<'_>) {
        let _ = self.poller.delete(fd);
    }

    /// Sets or clears the deadline of a source. A source that [`Self::expire`] wakes is woken
    /// nevertheless.
    pub(crate) fn set_deadline(&self, key: Key, deadline: Option<Instant>) {
        match deadline {
            Some(at) => self.change_timers(key, at, |timers| timers.set(key, at)),
            None => self.lock().timers.clear(key),
        }
    }

    /// Makes the deadline of a source pass now.
    pub(crate) fn expire(&self, key: Key) {
        let now = Instant::now();
        self.change_timers(key, now, |timers| timers.wake(key, now));
    }

    /// Changes the timers of a source, and wakes the thread if it sleeps until after `at`.
    fn change_timers(&self, key: Key, at: Instant, change: impl FnOnce(&mut Timers)) {
        let mut table = self.lock();
        if !table.sources.contains_key(&key) {
            return table.timers.remove(key);
        }
        change(&mut table.timers);
        let late = table.is_asleep && table.sleeps_until.is_none_or(|until| at < until);
        drop(table);
        if late {
            self.wake();
        }
    }

    fn wake(&self) {
        // This fails only if the poller is broken; the thread has then ended and logged an error.
        let _ = self.poller.notify();
    }

    fn start(self: &Arc<Self>) -> Result<(), RnicError> {
        let mut thread = self.thread.lock().ignore_poison();
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

    /// Ends the thread and removes all sources. After it returns, the engine makes no upcalls.
    pub(crate) fn shutdown(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
        let thread = self.thread.lock().ignore_poison().take();
        if let Some(thread) = thread
            // An upcall that closes the adapter runs on the thread that would be joined.
            && !thread.is_current()
        {
            thread.join();
        }
        let table = std::mem::take(&mut *self.lock());
        drop(table);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().ignore_poison()
    }
}

rnic::opaque_debug!(Engine { stop });

/// The error of a call that opens a descriptor.
pub(crate) fn no_descriptor(error: Errno) -> RnicError {
    match error {
        Errno::MFILE | Errno::NFILE => RnicError::NoResources(Resource::Descriptor),
        other => RnicError::Os(other.into()),
    }
}

/// Error: the kernel does not watch a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotWatched;

/// The result of watching a socket.
pub(crate) type Armed = Result<(), NotWatched>;

/// The readiness for which a socket is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interest {
    Nothing,
    Readable,
    Writable,
    Both,
}

/// A deadline after this time; `None` if it is too far away to be represented.
pub(crate) fn deadline_after(timeout: Option<Duration>) -> Option<Instant> {
    timeout.and_then(|timeout| Instant::now().checked_add(timeout))
}
