//! Waits for several descriptors. A signal ends the wait under the same conditions as `accept`.
//!
//! A handler that was installed with `SA_RESTART` does not end an `accept`; any other handler does.
//! Both end a `poll`, which does not report which of them ran. A wait on a futex is ended as
//! `accept` is, so the event thread watches the descriptors and the caller waits on a futex.

use std::any::Any;
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use host::descriptors::{OwnDescriptor, raise};
use host::locks::IgnorePoison as _;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::events::wait_queue::WaitQueue;
use crate::events::{EventHandler, event_thread};
use crate::process::guard;
use crate::process::per_process::PerProcess;
use crate::process::signals_blocked::SignalsBlocked;

/// A descriptor and the event to wait for.
#[derive(Clone, Copy)]
pub(crate) enum Awaited<'a> {
    /// The descriptor is readable.
    Input(BorrowedFd<'a>),
    /// The other end of the descriptor is closed.
    End(BorrowedFd<'a>),
}

impl<'a> Awaited<'a> {
    fn fd(self) -> BorrowedFd<'a> {
        match self {
            Self::Input(fd) | Self::End(fd) => fd,
        }
    }

    /// Returns the entry for `poll`. The end is always reported and needs no flag.
    fn polled(self) -> PollFd<'a> {
        let flags = match self {
            Self::Input(_) => PollFlags::IN,
            Self::End(_) => PollFlags::empty(),
        };
        PollFd::from_borrowed_fd(self.fd(), flags)
    }

    fn event(self) -> EventFlags {
        match self {
            Self::Input(_) => EventFlags::IN,
            Self::End(_) => EventFlags::empty(),
        }
    }
}

/// The objects of a wait. They belong to the thread and not to the frames of the call: a handler
/// may leave the call by `siglongjmp`, which drops no frame. The next wait of the thread drops
/// them. All use of them is with signals blocked: a handler must not wait for a lock of this
/// thread, or leave the call with a lock held.
struct Held {
    watch: Option<Watch>,
    owner: Arc<dyn Any + Send + Sync>,
}

thread_local! {
    static HELD: Cell<Option<Box<Held>>> = const { Cell::new(None) };
}

impl Held {
    /// Holds the owner of descriptors, instead of the one that an earlier wait has left.
    fn begin(owner: Arc<dyn Any + Send + Sync>, _: &SignalsBlocked) {
        let held = Box::new(Self { watch: None, owner });
        let _ = HELD.try_with(|it| it.replace(Some(held)));
    }

    /// Returns the owner that the thread holds, if it is `expected`.
    fn end<T>(expected: *const T, _: &SignalsBlocked) -> Option<Arc<dyn Any + Send + Sync>> {
        let held = HELD.try_with(Cell::take).ok().flatten()?;
        if held.is(expected) {
            return Some(held.owner);
        }
        let _ = HELD.try_with(|it| it.set(Some(held)));
        None
    }

    /// Changes the watch of the wait for `expected`. Returns false if the thread does not hold that
    /// owner any more, because a handler has called this module too.
    fn set_watch<T>(expected: *const T, watch: Option<Watch>, _: &SignalsBlocked) -> bool {
        let Some(mut held) = HELD.try_with(Cell::take).ok().flatten() else {
            return false;
        };
        let is_held = held.is(expected);
        if is_held {
            held.watch = watch;
        }
        let _ = HELD.try_with(|it| it.set(Some(held)));
        is_held
    }

    fn is<T>(&self, expected: *const T) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.owner), expected)
    }
}

/// Drops what a wait of this thread for the descriptors of `owner` has left.
pub(crate) fn drop_left<T>(owner: &Arc<T>) {
    let signals_blocked = SignalsBlocked::begin();
    drop(Held::end(Arc::as_ptr(owner), &signals_blocked));
}

/// Forgets, in the child of a fork, what a wait of the parent has left. Its parts belong to the
/// parent.
pub(crate) fn reset_after_fork() {
    let left = HELD.try_with(Cell::take);
    std::mem::forget(left);
}

/// Waits until a descriptor is ready, and returns true if it is the first one, together with
/// `owner`, which keeps the descriptors open. `INTR`: a handler without `SA_RESTART` ran, or a
/// handler waited too. `AGAIN`: the deadline has passed.
pub(crate) fn wait<T: Any + Send + Sync>(
    owner: Arc<T>,
    all: &[Awaited<'_>],
    deadline: Option<Instant>,
) -> Result<(bool, Arc<T>), Errno> {
    let of = Arc::as_ptr(&owner);
    let signals_blocked = SignalsBlocked::begin();
    Held::begin(owner, &signals_blocked);
    let is_first = wait_while_held(of, all, deadline, &signals_blocked);
    let owner = Held::end(of, &signals_blocked).and_then(|owner| owner.downcast().ok());
    Ok((is_first?, owner.ok_or(Errno::INTR)?))
}

fn wait_while_held<T>(
    owner: *const T,
    all: &[Awaited<'_>],
    deadline: Option<Instant>,
    signals_blocked: &SignalsBlocked,
) -> Result<bool, Errno> {
    let mut set: Vec<PollFd<'_>> = all.iter().map(|one| one.polled()).collect();
    loop {
        let polled = match deadline {
            // With a timeout, every handler ends the wait, as it ends `poll`.
            Some(deadline) => {
                let limit = deadline.saturating_duration_since(Instant::now());
                let limit = Timespec::try_from(limit).map_err(|_| Errno::INVAL)?;
                signals_blocked.unblock_during(|| {
                    let _asleep = guard::fall_asleep();
                    poll(&mut set, Some(&limit))
                })
            }
            None => poll(&mut set, Some(&Timespec::default())),
        };
        if polled? > 0 {
            return Ok(set.first().is_some_and(|one| !one.revents().is_empty()));
        }
        if deadline.is_some() {
            return Err(Errno::AGAIN);
        }
        sleep(owner, all, signals_blocked)?;
        if !Held::set_watch(owner, None, signals_blocked) {
            return Err(Errno::INTR);
        }
    }
}

/// Sleeps until a descriptor may be ready.
fn sleep<T>(
    owner: *const T,
    all: &[Awaited<'_>],
    signals_blocked: &SignalsBlocked,
) -> Result<(), Errno> {
    let waker = Arc::new(Waker::default());
    let seen = waker.0.seq();
    register(&waker, signals_blocked);
    let watch = Watch::begin(all, waker.clone())?;
    if !Held::set_watch(owner, Some(watch), signals_blocked) {
        return Err(Errno::INTR);
    }
    signals_blocked.unblock_during(|| waker.0.sleep(seen, None))
}

/// A watch of several descriptors by the event thread. Each wait has its own set, because several
/// threads may wait for the same descriptors.
struct Watch {
    set: OwnDescriptor,
    waker: Arc<Waker>,
}

impl Watch {
    fn begin(all: &[Awaited<'_>], waker: Arc<Waker>) -> Result<Self, Errno> {
        let set = raise(epoll::create(CreateFlags::CLOEXEC)?)?;
        for one in all {
            epoll::add(&set, one.fd(), EventData::new_u64(0), one.event())?;
        }
        event_thread()?.watch(&set, EventFlags::IN, waker.clone())?;
        Ok(Self {
            set: set.into(),
            waker,
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(thread) = event_thread() {
            thread.unwatch(&self.set);
        }
        // A handler may wait while the wait that it has interrupted continues.
        self.waker.0.wake();
    }
}

/// The wakers of threads that sleep. Some of these threads may have woken already.
static SLEEPERS: PerProcess<Mutex<Vec<Weak<Waker>>>> = PerProcess::new();

fn register(waker: &Arc<Waker>, _: &SignalsBlocked) {
    let sleepers = SLEEPERS.get_or_init(Mutex::default);
    let mut sleepers = sleepers.lock().ignore_poison();
    sleepers.retain(|it| it.strong_count() > 0);
    sleepers.push(Arc::downgrade(waker));
}

/// Wakes all sleeping threads, because one of them was cancelled.
pub(crate) fn wake_all() {
    let Some(sleepers) = SLEEPERS.get() else {
        return;
    };
    let _signals_blocked = SignalsBlocked::begin();
    let sleepers = sleepers.lock().ignore_poison();
    let awake = sleepers.iter().filter_map(Weak::upgrade);
    awake.for_each(|it| it.0.wake());
}

/// Wakes the thread that waits on the queue.
#[derive(Default)]
struct Waker(WaitQueue);

impl EventHandler for Waker {
    fn ready(&self, _seen: EventFlags) {
        self.0.wake();
    }
}
