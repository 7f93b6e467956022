//! One descriptor for a TCP listener and the listeners next to it, for `EPOLLONESHOT`.
//!
//! A descriptor in a set with `EPOLLONESHOT` reports one event until the program arms it again, and
//! a program with several threads relies on this. The TCP listener and the listeners next to it
//! would report one event each. So the program's set watches a set of this library that contains
//! all of them, and the TCP listener itself is disarmed in the program's set.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;

use host::descriptors::{OwnDescriptor, raise};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// The set, which is made at the first use.
#[derive(Default)]
pub(crate) struct Joint(OnceLock<OwnDescriptor>);

impl Joint {
    /// Returns the set that this process has inherited from its parent. `set` is the inherited
    /// descriptor.
    pub(crate) fn inherited(set: OwnDescriptor) -> Self {
        Self(OnceLock::from(set))
    }

    /// Returns the set, if it was made and the program has not closed it.
    pub(crate) fn get(&self) -> Option<RawFd> {
        let set = self.0.get().filter(|set| !set.is_lost());
        set.map(AsRawFd::as_raw_fd)
    }

    /// Returns the set, and makes it of these descriptors if necessary. `None`: there is no memory
    /// or no descriptor for it.
    pub(crate) fn obtain<'a>(
        &self,
        members: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> Option<RawFd> {
        if self.0.get().is_none() {
            // Two threads may make a set; the second one is dropped. So no thread waits for
            // another, which a signal handler may have interrupted.
            let _ = self.0.set(make(members).ok()?);
        }
        self.get()
    }

    /// Replaces a member. If either is `None`, the other is only added or removed.
    pub(crate) fn exchange(&self, before: Option<RawFd>, now: Option<RawFd>) {
        let Some(set) = self.0.get().filter(|set| !set.is_lost()) else {
            return;
        };
        // SAFETY: the caller's listener keeps both descriptors open during the call.
        let borrow = |fd| unsafe { BorrowedFd::borrow_raw(fd) };
        if let Some(before) = before {
            let _ = epoll::delete(set, borrow(before));
        }
        if let Some(now) = now {
            let _ = add(set, borrow(now));
        }
    }
}

fn make<'a>(members: impl Iterator<Item = BorrowedFd<'a>>) -> Result<OwnDescriptor, Errno> {
    let set = raise(epoll::create(CreateFlags::CLOEXEC)?)?;
    for member in members {
        add(&set, member)?;
    }
    Ok(OwnDescriptor::from(set))
}

fn add(set: impl AsFd, member: BorrowedFd<'_>) -> Result<(), Errno> {
    epoll::add(set, member, EventData::new_u64(0), EventFlags::IN)
}
