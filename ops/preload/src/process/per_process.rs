//! Values that the child of a `fork` creates for itself, because threads and devices are not
//! inherited.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::process;

/// A value that each process makes for itself. The child of a fork does not drop the parent's
/// value, because the descriptors and threads of that value belong to the parent.
pub(crate) struct PerProcess<T: 'static>(AtomicPtr<Own<T>>);

struct Own<T> {
    process: i32,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value, if this process has made it.
    pub(crate) fn get(&self) -> Option<&'static T> {
        // SAFETY: the pointer is null, or points to a box that is never freed.
        let own = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        (own.process == process::current()).then_some(&own.value)
    }

    /// Returns the value, which the first call of a process makes. If two threads call this at
    /// once, one of the two values is dropped.
    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &'static T {
        if let Some(value) = self.get() {
            return value;
        }
        let before = self.0.load(Ordering::Acquire);
        let own = Own {
            process: process::current(),
            value: make(),
        };
        let fresh = Box::into_raw(Box::new(own));
        let exchanged = self
            .0
            .compare_exchange(before, fresh, Ordering::AcqRel, Ordering::Acquire);
        let stored = match exchanged {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: the exchange failed, so no other thread has seen this box.
                drop(unsafe { Box::from_raw(fresh) });
                other
            }
        };
        // SAFETY: the pointer is to a box that is never freed.
        unsafe { &(*stored).value }
    }
}
