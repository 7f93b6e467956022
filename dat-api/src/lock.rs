//! Locks that a panic elsewhere does not spoil.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What the mutexes of this crate guard is whole at every step, so a holder that panicked
/// has left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
