//! The one thread of ours in the program: it hears what comes about while the program does not ask.
//!
//! It is started with the first offloaded socket or listener, never before, and sleeps in `epoll`
//! until a descriptor that was given to it is ready. A program without such a socket has no thread
//! of ours.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::guard;

/// Events of one look.
const EVENTS: usize = 64;

/// What a descriptor's owner does when it is ready. Called from the steward's thread alone.
pub(crate) trait Ward: Send + Sync {
    /// The descriptor is ready for this.
    fn ready(&self, flags: EventFlags);
}

/// The thread, and what it watches.
pub(crate) struct Steward {
    set: OwnedFd,
    wards: Mutex<HashMap<RawFd, Arc<dyn Ward>>>,
}

/// The steward of this process; `Err`: descriptors or threads have run out, sockets stay on TCP.
pub(crate) fn steward() -> Result<&'static Steward, Errno> {
    static STEWARD: OnceLock<Result<Steward, Errno>> = OnceLock::new();
    static STARTED: OnceLock<Result<(), Errno>> = OnceLock::new();
    let steward = STEWARD
        .get_or_init(Steward::new)
        .as_ref()
        .map_err(|error| *error)?;
    let started = STARTED.get_or_init(|| {
        let _inside = guard::enter();
        let thread = std::thread::Builder::new().name("ops-steward".into());
        match thread.spawn(|| steward.run()) {
            Ok(_) => Ok(()),
            Err(_) => Err(Errno::AGAIN),
        }
    });
    (*started).map(|()| steward)
}

impl Steward {
    fn new() -> Result<Self, Errno> {
        Ok(Self {
            set: crate::internal::raise(epoll::create(CreateFlags::CLOEXEC)?)?,
            wards: Mutex::new(HashMap::new()),
        })
    }

    /// Watches a descriptor, edge-triggered, until [`leave`](Self::leave).
    pub(crate) fn watch(
        &self,
        fd: impl AsFd,
        flags: EventFlags,
        ward: Arc<dyn Ward>,
    ) -> Result<(), Errno> {
        let raw = fd.as_fd().as_raw_fd();
        self.wards().insert(raw, ward);
        let data = EventData::new_u64(u64::from(raw.unsigned_abs()));
        epoll::add(&self.set, fd, data, flags | EventFlags::ET).inspect_err(|_| {
            self.wards().remove(&raw);
        })
    }

    /// Watches it no more. A call of its ward may still be under way.
    pub(crate) fn leave(&self, fd: impl AsFd) {
        self.wards().remove(&fd.as_fd().as_raw_fd());
        // It may have been closed with its last duplicate, and then it has left by itself.
        let _ = epoll::delete(&self.set, fd);
    }

    fn run(&self) {
        crate::internal::block_signals();
        let nothing = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        };
        let mut events = [nothing; EVENTS];
        loop {
            let count = match epoll::wait(&self.set, &mut events[..], None) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                // The set was closed by a program that closes numbers it does not know.
                Err(_) => return,
            };
            for event in &events[..count] {
                let fd = RawFd::try_from(event.data.u64()).unwrap_or(-1);
                let ward = self.wards().get(&fd).cloned();
                if let Some(ward) = ward {
                    ward.ready(event.flags);
                }
            }
        }
    }

    fn wards(&self) -> MutexGuard<'_, HashMap<RawFd, Arc<dyn Ward>>> {
        self.wards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
