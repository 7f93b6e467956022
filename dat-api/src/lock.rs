//! Locks that ignore poisoning. The crate is published without the workspace's `host`, which has
//! the same helper.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, even if it is poisoned. The data behind the mutexes of this crate is consistent
/// after every step, so a panic of a holder cannot leave it half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
