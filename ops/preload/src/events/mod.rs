//! The library's thread in the program, which handles events while the program makes no call.
//!
//! The thread is started with the first offloaded socket or listener. A program without such a
//! socket has no thread of this library. The thread sleeps in `epoll` until a registered descriptor
//! is ready.
//!
//! | File | Contents |
//! |---|---|
//! | `mod` | the thread `ops-events` |
//! | [`watches`] | the handlers of the watched descriptors |
//! | [`wait_queue`] | the queue on which threads of the program sleep in a blocking call |
//! | [`restarting`] | waits for descriptors, which signals end under the same conditions as `accept` |

pub(crate) mod restarting;
pub(crate) mod wait_queue;
mod watches;

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use host::descriptors::{OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::events::watches::Watches;
use crate::process::{guard, last_thread, real};

/// The maximum number of events that one call of `epoll_wait` returns.
const EVENTS: usize = 64;

/// The mark of the wake-up descriptor's events, which no watch uses.
const WAKEUP: u64 = u64::MAX;

/// A handler that the event thread, and no other thread, calls when its descriptor is ready.
pub(crate) trait EventHandler: Send + Sync {
    /// Handles these events of the descriptor.
    fn ready(&self, flags: EventFlags);
}

pub(crate) struct EventThread {
    set: OwnDescriptor,
    watches: Mutex<Watches>,
    /// Handlers that the thread calls next, without an event.
    soon: Mutex<Vec<Arc<dyn EventHandler>>>,
    /// Handlers that the thread calls at a time, without an event.
    later: Mutex<Vec<(Instant, Arc<dyn EventHandler>)>>,
    /// Readable if `soon` or `later` has a new handler and the thread may be asleep.
    wakeup: OwnDescriptor,
    /// A function that the thread calls next, which a signal handler has stored; null: none.
    for_handler: AtomicPtr<()>,
    thread: OnceLock<Result<(), Errno>>,
}

static EVENT_THREAD: AtomicPtr<EventThread> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static IS_EVENT_THREAD: Cell<bool> = const { Cell::new(false) };
}

/// Returns the event thread of this process, and starts it if necessary. An error means
/// that no descriptor or thread is available; sockets then stay on TCP.
pub(crate) fn event_thread() -> Result<&'static EventThread, Errno> {
    let found = EVENT_THREAD.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or to a box that is never freed.
    let thread = match unsafe { found.as_ref() } {
        Some(thread) => thread,
        None => EventThread::make()?,
    };
    let started = thread.thread.get_or_init(|| {
        let _inside = guard::enter();
        real::on_own_thread();
        last_thread::watch();
        match host::threads::spawn_quiet("ops-events", || thread.run()) {
            Ok(_) => Ok(()),
            Err(_) => Err(Errno::AGAIN),
        }
    });
    (*started).map(|()| thread)
}

/// The number of functions that the event thread has called for signal handlers.
static HANDLED: AtomicU32 = AtomicU32::new(0);

/// Makes the event thread call a function, and waits until it has returned, at most `within`.
/// Returns false if it has not, or if there is no event thread. A signal handler may call this: it
/// takes no lock and allocates nothing.
pub(crate) fn run_for_handler(work: fn(), within: Duration) -> bool {
    // SAFETY: the pointer is null, or to a box that is never freed.
    let Some(thread) = (unsafe { EVENT_THREAD.load(Ordering::Acquire).as_ref() }) else {
        return false;
    };
    let before = HANDLED.load(Ordering::Acquire);
    thread.run_for_handler(work);
    let deadline = Instant::now() + within;
    while HANDLED.load(Ordering::Acquire) == before {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let Ok(timeout) = futex::Timespec::try_from(left) else {
            return false;
        };
        let _ = futex::wait(&HANDLED, futex::Flags::PRIVATE, before, Some(&timeout));
    }
    true
}

/// Detaches the child of a fork from the parent's event thread, which does not run in the child and
/// whose locks may be held.
pub(crate) fn reset_after_fork() {
    restarting::reset_after_fork();
    let before = EVENT_THREAD.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: the pointer is null, or to a box that is never freed.
    if let Some(before) = unsafe { before.as_ref() } {
        let own = [&before.set, &before.wakeup];
        for fd in own.into_iter().filter(|fd| !fd.is_lost()) {
            // SAFETY: the numbers are the child's copies, and nothing in the child uses them any
            // more.
            drop(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) });
        }
    }
}

impl EventThread {
    fn make() -> Result<&'static Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fresh = Box::into_raw(Box::new(Self {
            set: raise(epoll::create(CreateFlags::CLOEXEC)?)?.into(),
            watches: Mutex::default(),
            soon: Mutex::default(),
            later: Mutex::default(),
            wakeup: raise(eventfd(0, flags)?)?.into(),
            for_handler: AtomicPtr::new(ptr::null_mut()),
            thread: OnceLock::new(),
        }));
        let null = ptr::null_mut();
        match EVENT_THREAD.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the box was leaked above and is never freed.
            Ok(_) => unsafe { Ok(&*fresh) },
            // SAFETY: no other thread has seen our box; the other thread's box is never freed.
            Err(other) => unsafe {
                drop(Box::from_raw(fresh));
                Ok(&*other)
            },
        }
    }

    /// Makes the event thread call a handler soon, without an event.
    pub(crate) fn run_soon(&self, handler: Arc<dyn EventHandler>) {
        self.soon().push(handler);
        if !IS_EVENT_THREAD.get() {
            self.wake();
        }
    }

    /// Makes the event thread call a handler at a time, without an event.
    pub(crate) fn run_at(&self, at: Instant, handler: Arc<dyn EventHandler>) {
        self.later().push((at, handler));
        if !IS_EVENT_THREAD.get() {
            self.wake();
        }
    }

    /// Makes the event thread call a function soon. The function replaces an earlier one that has
    /// not been called yet.
    fn run_for_handler(&self, work: fn()) {
        self.for_handler.store(work as *mut (), Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.wakeup.count_up();
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

    /// Ends the watch of a descriptor. A call of its handler may still be in progress.
    pub(crate) fn unwatch(&self, fd: impl AsFd) {
        self.watches().end(fd.as_fd().as_raw_fd());
        // A descriptor that was closed with its last duplicate is no longer in the set; the error
        // is ignored.
        let _ = epoll::delete(&self.set, fd);
    }

    /// Changes the events that a descriptor is watched for.
    pub(crate) fn modify(&self, fd: impl AsFd, flags: EventFlags) {
        // A descriptor without a watch is ignored.
        if let Some(mark) = self.watches().mark_of(fd.as_fd().as_raw_fd()) {
            let mark = EventData::new_u64(mark);
            let _ = epoll::modify(&self.set, fd, mark, flags | EventFlags::ET);
        }
    }

    fn run(&self) {
        IS_EVENT_THREAD.set(true);
        let data = EventData::new_u64(WAKEUP);
        // If this fails, handlers of `soon` run only after the next event of a watch.
        let _ = epoll::add(&self.set, &self.wakeup, data, EventFlags::IN);
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; EVENTS];
        loop {
            let limit = self.time_to_sleep();
            let count = match epoll::wait(&self.set, &mut events[..], limit.as_ref()) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // The program has closed the set, for example with all its descriptors.
                Err(_) => return,
            };
            for event in &events[..count] {
                if event.data.u64() == WAKEUP {
                    if self.wakeup.is_lost() {
                        return;
                    }
                    let mut count = [0; 8];
                    let _ = rustix::io::read(&self.wakeup, &mut count[..]);
                    continue;
                }
                let handler = self.watches().find(event.data.u64());
                if let Some(handler) = handler {
                    handler.ready(event.flags);
                }
            }
            let work = self.for_handler.swap(ptr::null_mut(), Ordering::AcqRel);
            if !work.is_null() {
                // SAFETY: only `run_for_handler` stores pointers, which it makes of this type.
                let work: fn() = unsafe { std::mem::transmute(work) };
                work();
                HANDLED.fetch_add(1, Ordering::Release);
                // Waking cannot fail, because the word is valid memory of this process.
                let _ = futex::wake(&HANDLED, futex::Flags::PRIVATE, u32::MAX >> 1);
            }
            let soon = std::mem::take(&mut *self.soon());
            for handler in soon.into_iter().chain(self.take_due()) {
                handler.ready(EventFlags::empty());
            }
        }
    }

    /// Returns the time limit of the next wait; `None` for no limit.
    fn time_to_sleep(&self) -> Option<Timespec> {
        if !self.soon().is_empty() {
            return Some(Timespec::default());
        }
        let next = self.later().iter().map(|(at, _)| *at).min()?;
        let left = next.saturating_duration_since(Instant::now());
        Some(Timespec::try_from(left).unwrap_or_default())
    }

    /// Takes the handlers whose time has come.
    fn take_due(&self) -> Vec<Arc<dyn EventHandler>> {
        let mut later = self.later();
        if later.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        let due = later.extract_if(.., |(at, _)| *at <= now);
        due.map(|(_, handler)| handler).collect()
    }

    fn later(&self) -> MutexGuard<'_, Vec<(Instant, Arc<dyn EventHandler>)>> {
        self.later.lock().ignore_poison()
    }

    fn soon(&self) -> MutexGuard<'_, Vec<Arc<dyn EventHandler>>> {
        self.soon.lock().ignore_poison()
    }

    fn watches(&self) -> MutexGuard<'_, Watches> {
        self.watches.lock().ignore_poison()
    }
}
