//! Values that each process makes for itself: threads, sockets and devices do not come over a
//! `fork`.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::process;

/// A value that the child of a fork makes anew. That of its parent stays where it is, unused: its
/// descriptors and threads are the parent's.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Own<T>>);

struct Own<T> {
    process: i32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value, if this process has made it.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or a box that was leaked for good.
        let own = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        (own.process == process::id()).then_some(&own.value)
    }

    /// The value; `make` makes it. Where two threads do so at once, one of the two is dropped.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &'static T {
        if let Some(value) = self.get() {
            return value;
        }
        let before = self.0.load(Ordering::Acquire);
        let own = Own {
            process: process::id(),
            value: make(),
        };
        let fresh = Box::into_raw(Box::new(own));
        let placed = self
            .0
            .compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire);
        let stands = match placed {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: nobody has seen ours.
                drop(unsafe { Box::from_raw(fresh) });
                other
            }
        };
        // SAFETY: a box that is never freed.
        unsafe { &(*stands).value }
    }
}
