//! Locks that stay usable after a panic of a holder.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. The data behind the mutexes of this crate is consistent at every step, so a
/// holder that panicked has left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
