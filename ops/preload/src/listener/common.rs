//! The objects that the processes of a listener share: a process and its children.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;

use crate::listener::accept_lock::AcceptLock;
use crate::listener::activity::{Activity, InheritedActivity};
use crate::listener::offers::Offers;

/// The shared objects.
pub(crate) struct Common {
    lock: AcceptLock,
    activity: Activity,
    offers: Offers,
}

/// The copy for the child of a fork.
#[derive(Clone, Copy)]
pub(crate) struct InheritedCommon {
    lock: RawFd,
    activity: InheritedActivity,
    offers: [RawFd; 2],
}

impl Common {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            lock: AcceptLock::new()?,
            activity: Activity::new()?,
            offers: Offers::new()?,
        })
    }

    /// Makes the objects of the child of a fork.
    pub(crate) fn inherited(from: InheritedCommon) -> Self {
        // SAFETY: the child inherited the descriptors, and forgets the objects that own them in the
        // parent.
        let own = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
        Self {
            lock: AcceptLock::inherited(own(from.lock)),
            activity: Activity::inherited(from.activity),
            offers: Offers::inherited(from.offers.map(own)),
        }
    }

    /// Returns, before a fork, the copy for the child.
    pub(crate) fn copy(&self) -> InheritedCommon {
        InheritedCommon {
            lock: self.lock.as_raw_fd(),
            activity: self.activity.copy(),
            offers: self.offers.numbers(),
        }
    }

    /// The lock for `accept` on the TCP listener.
    pub(crate) fn lock(&self) -> &AcceptLock {
        &self.lock
    }

    /// The use of the listener by calls of this library.
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The clients that are offered over TCP.
    pub(crate) fn offers(&self) -> &Offers {
        &self.offers
    }
}
