//! The use of a listener by the calls that this library replaces, in all processes that have it.
//!
//! The memory is shared by a process and its children. A count costs one atomic addition.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::listener::offers::Beside;

/// The shared memory.
#[derive(Default)]
struct Counts {
    accepts: AtomicU64,
    is_awaited: AtomicBool,
    /// One bit for each listener of which a client is offered over TCP.
    offering: AtomicU8,
    is_draining: AtomicBool,
}

/// The use of one listener.
pub(crate) struct Activity(NonNull<Counts>);

/// The copy for the child of a fork, which inherits the mapping.
#[derive(Clone, Copy)]
pub(crate) struct InheritedActivity(NonNull<Counts>);

// SAFETY: the memory has atomic values only, and is mapped until the drop.
unsafe impl Send for Activity {}
// SAFETY: as above.
unsafe impl Sync for Activity {}

impl Activity {
    pub(crate) fn new() -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let len = size_of::<Counts>();
        // SAFETY: the kernel chooses the address of the new memory. Zeroes are a valid value.
        let mapped = unsafe { mmap_anonymous(ptr::null_mut(), len, access, MapFlags::SHARED)? };
        NonNull::new(mapped.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    /// Makes the object of the child of a fork.
    pub(crate) fn inherited(InheritedActivity(counts): InheritedActivity) -> Self {
        Self(counts)
    }

    /// Returns, before a fork, the copy for the child.
    pub(crate) fn copy(&self) -> InheritedActivity {
        InheritedActivity(self.0)
    }

    fn counts(&self) -> &Counts {
        // SAFETY: the memory is mapped until the drop.
        unsafe { self.0.as_ref() }
    }

    /// Counts a call of `accept` that this library has received.
    pub(crate) fn on_accept(&self) {
        self.counts().accepts.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of calls of `accept`.
    pub(crate) fn accepts(&self) -> u64 {
        self.counts().accepts.load(Ordering::Relaxed)
    }

    /// Records a wait for the listener that this library has received.
    pub(crate) fn on_awaited(&self) {
        self.counts().is_awaited.store(true, Ordering::Relaxed);
    }

    /// Returns true if a process has waited for the listener by a call of this library.
    pub(crate) fn is_awaited(&self) -> bool {
        self.counts().is_awaited.load(Ordering::Relaxed)
    }

    /// Records that a client of a listener is offered over TCP, or is not any more.
    pub(crate) fn set_offering(&self, of: Beside, is_offering: bool) {
        let offering = &self.counts().offering;
        match is_offering {
            true => offering.fetch_or(of.bit(), Ordering::Release),
            false => offering.fetch_and(!of.bit(), Ordering::Release),
        };
    }

    /// Returns true while a client of this listener is offered over TCP.
    pub(crate) fn is_offering(&self, of: Beside) -> bool {
        self.counts().offering.load(Ordering::Acquire) & of.bit() != 0
    }

    /// Records that all clients of a listener are passed on over TCP until its offer is withdrawn.
    pub(crate) fn set_draining(&self, is_draining: bool) {
        let flag = &self.counts().is_draining;
        flag.store(is_draining, Ordering::Release);
    }

    /// Returns true while clients in the queue of the TCP listener were there before those of the
    /// other listeners.
    pub(crate) fn prefers_tcp(&self) -> bool {
        self.is_offering_any() || self.counts().is_draining.load(Ordering::Acquire)
    }

    /// Returns true while any client is offered over TCP.
    pub(crate) fn is_offering_any(&self) -> bool {
        self.counts().offering.load(Ordering::Acquire) != 0
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this memory, in this process or in the parent whose memory this
        // process has copied, and nothing uses it any more.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<Counts>()) };
    }
}
