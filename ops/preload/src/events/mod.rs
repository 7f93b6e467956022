//! The library's thread in the program: it receives the events that come while the program makes no
//! call.
//!
//! It is started with the first offloaded socket or listener, never before, and sleeps in `epoll`
//! until a descriptor that was given to it is ready. A program without such a socket has no thread
//! of ours.
//!
//! | File | What |
//! |---|---|
//! | `mod` | the thread `ops-events` |
//! | [`watches`] | which handler it calls for which descriptor |
//! | [`wait_queue`] | where threads of the program sleep in a blocking call |
//! | [`restarting`] | waiting for descriptors, ended by signals as the kernel ends `accept` |

pub(crate) mod restarting;
pub(crate) mod wait_queue;
mod watches;

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use host::descriptors::raise;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use crate::events::watches::Watches;
use crate::process::guard;

/// Events of one look.
const EVENTS: usize = 64;

/// The mark of the wake-up's events, which no watch has.
const WAKEUP: u64 = u64::MAX;

/// Called when a descriptor is ready, from the event thread alone.
pub(crate) trait EventHandler: Send + Sync {
    /// The descriptor is ready for this.
    fn ready(&self, flags: EventFlags);
}

/// The thread, and what it watches.
pub(crate) struct EventThread {
    set: OwnedFd,
    watches: Mutex<Watches>,
    /// Handlers to be called soon, without an event.
    soon: Mutex<Vec<Arc<dyn EventHandler>>>,
    /// Readable when there is one and the thread may be asleep.
    wakeup: OwnedFd,
    thread: OnceLock<Result<(), Errno>>,
}

static EVENT_THREAD: AtomicPtr<EventThread> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static IS_EVENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// The event thread of this process; `Err`: descriptors or threads have run out, sockets stay on
/// TCP.
pub(crate) fn event_thread() -> Result<&'static EventThread, Errno> {
    let found = EVENT_THREAD.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    let thread = match unsafe { found.as_ref() } {
        Some(thread) => thread,
        None => EventThread::make()?,
    };
    let started = thread.thread.get_or_init(|| {
        let _inside = guard::enter();
        match host::threads::spawn_quiet("ops-events", || thread.run()) {
            Ok(_) => Ok(()),
            Err(_) => Err(Errno::AGAIN),
        }
    });
    (*started).map(|()| thread)
}

/// In the child of a fork: the parent's event thread does not run here, and its locks may be held.
pub(crate) fn reset_after_fork() {
    let before = EVENT_THREAD.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or leaked.
    if let Some(before) = unsafe { before.as_ref() } {
        for fd in [&before.set, &before.wakeup] {
            // SAFETY: the child's copies of two numbers that nothing in the child uses any more.
            drop(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) });
        }
    }
}

impl EventThread {
    fn make() -> Result<&'static Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fresh = Box::into_raw(Box::new(Self {
            set: raise(epoll::create(CreateFlags::CLOEXEC)?)?,
            watches: Mutex::default(),
            soon: Mutex::new(Vec::new()),
            wakeup: raise(eventfd(0, flags)?)?,
            thread: OnceLock::new(),
        }));
        let null = ptr::null_mut();
        match EVENT_THREAD.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked for good.
            Ok(_) => unsafe { Ok(&*fresh) },
            // SAFETY: nobody has seen ours; the other one is leaked for good.
            Err(other) => unsafe {
                drop(Box::from_raw(fresh));
                Ok(&*other)
            },
        }
    }

    /// Calls a handler soon, with no event.
    pub(crate) fn run_soon(&self, handler: Arc<dyn EventHandler>) {
        self.soon().push(handler);
        if !IS_EVENT_THREAD.get() {
            // Full: it is readable.
            let _ = rustix::io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }

    /// Watches a descriptor, edge-triggered, until [`unwatch`](Self::unwatch).
    pub(crate) fn watch(
        &self,
        fd: impl AsFd,
        flags: EventFlags,
        handler: Arc<dyn EventHandler>,
    ) -> Result<(), Errno> {
        let raw = fd.as_fd().as_raw_fd();
        let mark = EventData::new_u64(self.watches().begin(raw, handler));
        epoll::add(&self.set, fd, mark, flags | EventFlags::ET).inspect_err(|_| {
            self.watches().end(raw);
        })
    }

    /// Watches it no more. A call of its handler may still be under way.
    pub(crate) fn unwatch(&self, fd: impl AsFd) {
        self.watches().end(fd.as_fd().as_raw_fd());
        // It may have been closed with its last duplicate, and then it has left by itself.
        let _ = epoll::delete(&self.set, fd);
    }

    /// Watches a descriptor for something else, from now on.
    pub(crate) fn modify(&self, fd: impl AsFd, flags: EventFlags) {
        // Of a descriptor that is not watched nothing is heard.
        if let Some(mark) = self.watches().mark_of(fd.as_fd().as_raw_fd()) {
            let mark = EventData::new_u64(mark);
            let _ = epoll::modify(&self.set, fd, mark, flags | EventFlags::ET);
        }
    }

    /// As [`unwatch`](Self::unwatch), for a descriptor that another object owns.
    pub(crate) fn unwatch_number(&self, fd: RawFd) {
        // SAFETY: the caller knows that it is open.
        self.unwatch(unsafe { BorrowedFd::borrow_raw(fd) });
    }

    fn run(&self) {
        IS_EVENT_THREAD.set(true);
        let data = EventData::new_u64(WAKEUP);
        // Without it, those that are to run soon wait for the next event of another kind.
        let _ = epoll::add(&self.set, &self.wakeup, data, EventFlags::IN);
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; EVENTS];
        loop {
            let no_wait = Timespec::default();
            let limit = (!self.soon().is_empty()).then_some(&no_wait);
            let count = match epoll::wait(&self.set, &mut events[..], limit) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // The set was closed by a program that closes numbers it does not know.
                Err(_) => return,
            };
            for event in &events[..count] {
                if event.data.u64() == WAKEUP {
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&self.wakeup, &mut count[..]);
                    continue;
                }
                let handler = self.watches().find(event.data.u64());
                if let Some(handler) = handler {
                    handler.ready(event.flags);
                }
            }
            let soon = std::mem::take(&mut *self.soon());
            for handler in soon {
                handler.ready(EventFlags::empty());
            }
        }
    }

    fn soon(&self) -> MutexGuard<'_, Vec<Arc<dyn EventHandler>>> {
        self.soon.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
