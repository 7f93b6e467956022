//! Waits for several descriptors. A signal ends the wait under the same conditions as `accept`.
//!
//! A handler that was installed with `SA_RESTART` does not end an `accept`; any other handler does.
//! Both end a `poll`, which does not report which of them ran. A wait on a futex is ended as
//! `accept` is, so the event thread watches the descriptors and the caller waits on a futex.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use host::descriptors::raise;
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

/// Waits until a descriptor is ready, and returns true if it is the first one. `INTR`: a handler
/// without `SA_RESTART` ran. `AGAIN`: the deadline has passed.
pub(crate) fn wait(all: &[Awaited<'_>], deadline: Option<Instant>) -> Result<bool, Errno> {
    let mut set: Vec<PollFd<'_>> = all.iter().map(|one| one.polled()).collect();
    loop {
        // With a timeout, every handler ends the wait, as it ends `poll`.
        let limit = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => std::time::Duration::ZERO,
        };
        let limit = Timespec::try_from(limit).map_err(|_| Errno::INVAL)?;
        let polled = {
            let _asleep = guard::fall_asleep();
            poll(&mut set, Some(&limit))
        };
        if polled? > 0 {
            return Ok(set.first().is_some_and(|one| !one.revents().is_empty()));
        }
        match deadline {
            Some(_) => return Err(Errno::AGAIN),
            None => sleep(all)?,
        }
    }
}

/// Sleeps until a descriptor may be ready.
fn sleep(all: &[Awaited<'_>]) -> Result<(), Errno> {
    // A handler that interrupts this work must not wait for a lock of this thread, or leave the
    // call with a lock held.
    let signals_blocked = SignalsBlocked::begin();
    let waker = Arc::new(Waker::default());
    let seen = waker.0.seq();
    list(&waker);
    // Each call has its own set, because several threads may wait for the same descriptors.
    let set = raise(epoll::create(CreateFlags::CLOEXEC)?)?;
    for one in all {
        epoll::add(&set, one.fd(), EventData::new_u64(0), one.event())?;
    }
    let thread = event_thread()?;
    thread.watch(&set, EventFlags::IN, waker.clone())?;
    drop(signals_blocked);
    let slept = waker.0.sleep(seen, None);
    let _signals_blocked = SignalsBlocked::begin();
    thread.unwatch(&set);
    slept
}

/// The wakers of threads that sleep. Some of these threads may have woken already.
static SLEEPERS: PerProcess<Mutex<Vec<Weak<Waker>>>> = PerProcess::new();

fn list(waker: &Arc<Waker>) {
    let sleepers = SLEEPERS.get_or_init(Mutex::default);
    let _signals_blocked = SignalsBlocked::begin();
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
