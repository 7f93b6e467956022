//! The library's thread in the program: it hears what comes about while the program does not ask.
//!
//! It is started with the first offloaded socket or listener, never before, and sleeps in `epoll`
//! until a descriptor that was given to it is ready. A program without such a socket has no thread
//! of ours.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

use crate::guard;
use crate::wards::Wards;

/// Events of one look.
const EVENTS: usize = 64;

/// What the bell's events carry: no watch's mark.
const BELL: u64 = u64::MAX;

/// What a descriptor's owner does when it is ready. Called from the steward's thread alone.
pub(crate) trait Ward: Send + Sync {
    /// The descriptor is ready for this.
    fn ready(&self, flags: EventFlags);
}

/// The thread, and what it watches.
pub(crate) struct Steward {
    set: OwnedFd,
    wards: Mutex<Wards>,
    /// Those whose turn is next, ready or not.
    next: Mutex<Vec<Arc<dyn Ward>>>,
    /// Readable when there is one and the thread may be asleep.
    bell: OwnedFd,
    thread: OnceLock<Result<(), Errno>>,
}

static STEWARD: AtomicPtr<Steward> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static IS_STEWARD: Cell<bool> = const { Cell::new(false) };
}

/// The steward of this process; `Err`: descriptors or threads have run out, sockets stay on TCP.
pub(crate) fn steward() -> Result<&'static Steward, Errno> {
    let found = STEWARD.load(Ordering::Acquire);
    // SAFETY: null, or leaked below.
    let steward = match unsafe { found.as_ref() } {
        Some(steward) => steward,
        None => Steward::make()?,
    };
    let started = steward.thread.get_or_init(|| {
        let _inside = guard::enter();
        match threads::spawn_quiet("ops-steward", || steward.run()) {
            Ok(_) => Ok(()),
            Err(_) => Err(Errno::AGAIN),
        }
    });
    (*started).map(|()| steward)
}

/// In the child of a fork: the parent's steward is none of ours, and its locks may be held.
pub(crate) fn begin_without() {
    let before = STEWARD.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or leaked.
    if let Some(before) = unsafe { before.as_ref() } {
        for fd in [&before.set, &before.bell] {
            // SAFETY: the child's copies of two numbers that nothing in the child uses any more.
            drop(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) });
        }
    }
}

impl Steward {
    fn make() -> Result<&'static Self, Errno> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fresh = Box::into_raw(Box::new(Self {
            set: crate::internal::raise(epoll::create(CreateFlags::CLOEXEC)?)?,
            wards: Mutex::default(),
            next: Mutex::new(Vec::new()),
            bell: crate::internal::raise(eventfd(0, flags)?)?,
            thread: OnceLock::new(),
        }));
        let null = ptr::null_mut();
        match STEWARD.compare_exchange(null, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just leaked for good.
            Ok(_) => unsafe { Ok(&*fresh) },
            // SAFETY: nobody has seen ours; the other one is leaked for good.
            Err(other) => unsafe {
                drop(Box::from_raw(fresh));
                Ok(&*other)
            },
        }
    }

    /// Gives somebody a turn soon, with nothing seen.
    pub(crate) fn soon(&self, ward: Arc<dyn Ward>) {
        self.next().push(ward);
        if !IS_STEWARD.get() {
            // Full: it rings.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    /// Watches a descriptor, edge-triggered, until [`leave`](Self::leave).
    pub(crate) fn watch(
        &self,
        fd: impl AsFd,
        flags: EventFlags,
        ward: Arc<dyn Ward>,
    ) -> Result<(), Errno> {
        let raw = fd.as_fd().as_raw_fd();
        let mark = EventData::new_u64(self.wards().begin(raw, ward));
        epoll::add(&self.set, fd, mark, flags | EventFlags::ET).inspect_err(|_| {
            self.wards().end(raw);
        })
    }

    /// Watches it no more. A call of its ward may still be under way.
    pub(crate) fn leave(&self, fd: impl AsFd) {
        self.wards().end(fd.as_fd().as_raw_fd());
        // It may have been closed with its last duplicate, and then it has left by itself.
        let _ = epoll::delete(&self.set, fd);
    }

    /// Watches a descriptor for something else, from now on.
    pub(crate) fn ask_for(&self, fd: impl AsFd, flags: EventFlags) {
        // Of a descriptor that is not watched nothing is heard.
        if let Some(mark) = self.wards().mark_of(fd.as_fd().as_raw_fd()) {
            let mark = EventData::new_u64(mark);
            let _ = epoll::modify(&self.set, fd, mark, flags | EventFlags::ET);
        }
    }

    /// As [`leave`](Self::leave), for a descriptor that somebody else holds.
    pub(crate) fn leave_number(&self, fd: RawFd) {
        // SAFETY: the caller knows that it is open.
        self.leave(unsafe { BorrowedFd::borrow_raw(fd) });
    }

    fn run(&self) {
        IS_STEWARD.set(true);
        let data = EventData::new_u64(BELL);
        // Without it, those who are given a turn wait for the next event of another kind.
        let _ = epoll::add(&self.set, &self.bell, data, EventFlags::IN);
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; EVENTS];
        loop {
            let no_wait = Timespec::default();
            let limit = (!self.next().is_empty()).then_some(&no_wait);
            let count = match epoll::wait(&self.set, &mut events[..], limit) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // The set was closed by a program that closes numbers it does not know.
                Err(_) => return,
            };
            for event in &events[..count] {
                if event.data.u64() == BELL {
                    let mut rings = [0; 8];
                    let _ = rustix::io::read(&self.bell, &mut rings[..]);
                    continue;
                }
                let ward = self.wards().find(event.data.u64());
                if let Some(ward) = ward {
                    ward.ready(event.flags);
                }
            }
            let next = std::mem::take(&mut *self.next());
            for ward in next {
                ward.ready(EventFlags::empty());
            }
        }
    }

    fn next(&self) -> MutexGuard<'_, Vec<Arc<dyn Ward>>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wards(&self) -> MutexGuard<'_, Wards> {
        self.wards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
