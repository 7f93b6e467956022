//! Handlers that run around a `fork`.
//!
//! The child of a `fork` has the thread that forked and no other. A lock that another thread holds
//! at that moment is never released in the child, so the thread that forks takes the lock before
//! and releases it after, in both processes. [`HeldLock`] is such a lock.
//!
//! A `OnceLock` that another thread fills during the fork is never filled in the child, and its
//! readers block. So such a value is filled under a [`HeldLock`], or in a few instructions, as
//! a page of `providers.rs` in libdat2.

use std::cell::Cell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::locks;

/// A lock that the thread which forks holds during the fork. It must be listed in
/// [`hold_during_forks`](crate::hold_during_forks).
///
/// While it is locked, no other lock of this kind is taken, except one that is listed after it, and
/// no code of a program or of the dynamic loader runs.
pub struct HeldLock<T: 'static> {
    mutex: Mutex<T>,
    /// The thread that holds the lock during a fork; 0 at all other times.
    holder: AtomicUsize,
    /// The guard during a fork. `ManuallyDrop` has no destructor.
    held: Cell<Option<ManuallyDrop<MutexGuard<'static, T>>>>,
}

// SAFETY: the mutex is `Sync`. `held` is used only by the thread that `holder` names, which has
// locked the mutex: the guard never leaves its thread.
unsafe impl<T: Send> Sync for HeldLock<T> {}
// SAFETY: a lock that can be moved is not borrowed, so it has no guard.
unsafe impl<T: Send> Send for HeldLock<T> {}

impl<T: fmt::Debug> fmt::Debug for HeldLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mutex.fmt(f)
    }
}

impl<T> HeldLock<T> {
    /// Makes a lock.
    pub const fn new(value: T) -> Self {
        Self {
            mutex: Mutex::new(value),
            holder: AtomicUsize::new(0),
            held: Cell::new(None),
        }
    }

    /// Locks it, poisoned or not.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        locks::lock(&self.mutex)
    }

    /// Locks it until [`release`](Self::release), unless this thread has done so. For the handlers
    /// of a fork only.
    #[doc(hidden)]
    pub fn hold(&'static self) {
        if !self.is_held() {
            let guard = ManuallyDrop::new(self.lock());
            self.held.set(Some(guard));
            self.holder.store(this_thread(), Ordering::Relaxed);
        }
    }

    /// Returns true if this thread holds the lock during a fork.
    #[doc(hidden)]
    pub fn is_held(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == this_thread()
    }

    /// Returns a copy of the value, if this thread holds the lock during a fork.
    #[doc(hidden)]
    pub fn held_value(&self) -> Option<T>
    where
        T: Copy,
    {
        if !self.is_held() {
            return None;
        }
        let held = self.held.take();
        let value = held.as_ref().map(|guard| ***guard);
        self.held.set(held);
        value
    }

    /// Releases it, if this thread holds it.
    #[doc(hidden)]
    pub fn release(&self) {
        if self.is_held() {
            self.holder.store(0, Ordering::Relaxed);
            drop(self.held.take().map(ManuallyDrop::into_inner));
        }
    }
}

/// Identifies this thread among those that run. The child of a fork has the thread that forked,
/// under the same number.
fn this_thread() -> usize {
    // SAFETY: the call has no preconditions.
    let thread = unsafe { libc::pthread_self() };
    thread as usize
}

/// Lists the [`HeldLock`]s of a crate, in the order in which they are taken. Each needs the methods
/// `hold` and `release`; `release` is called in both processes. The handlers are installed when the
/// library or program is loaded.
#[macro_export]
macro_rules! hold_during_forks {
    ($($lock:expr),+ $(,)?) => {
        extern "C" fn hold_locks() {
            $($lock.hold();)+
        }

        extern "C" fn release_locks() {
            $($lock.release();)+
        }

        extern "C" fn prepare_locks() {
            $crate::forks::around(Some(hold_locks), Some(release_locks), Some(release_locks));
        }

        #[used]
        #[unsafe(link_section = ".init_array")]
        static PREPARE_LOCKS: extern "C" fn() = prepare_locks;
    };
}

/// A handler. It runs in the thread that forks.
pub type Handler = extern "C" fn();

/// Installs handlers that run around each `fork` from now on: before it, after it in the parent,
/// and after it in the child. Does nothing if there is no memory for them.
///
/// Those that run before a fork run in the reverse order of their installation.
pub fn around(before: Option<Handler>, in_parent: Option<Handler>, in_child: Option<Handler>) {
    let raw = |handler: Option<Handler>| handler.map(|handler| handler as unsafe extern "C" fn());
    // SAFETY: the handlers are safe functions of the library that contains this copy of the code.
    // The C library removes them when that library is unloaded.
    unsafe { libc::pthread_atfork(raw(before), raw(in_parent), raw(in_child)) };
}
