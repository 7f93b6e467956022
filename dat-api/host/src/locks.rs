//! Locks that stay usable after a thread has panicked while it held them.
//!
//! A panic in these libraries is caught: [`threads::catch_panic`](crate::threads::catch_panic) and
//! the C entries keep the program alive. The lock of the panicking thread is poisoned then. Each
//! step of the code under a lock of this project results in a valid state, so the next thread
//! continues. The alternative, a panic of each later caller, would stop every connection of the
//! process.
//!
//! The locks are those of the standard library and not of a crate such as `parking_lot`, because
//! the threads that wait for a standard lock are recorded in the lock alone. A table of waiting
//! threads that the process shares could be locked by a thread that a `fork` does not copy.

use std::sync::{LockResult, Mutex, MutexGuard};

/// Takes the value out of the result of a lock or of a wait, poisoned or not.
pub trait IgnorePoison {
    /// A guard, or what a lock contains.
    type Value;

    /// Returns the value.
    fn ignore_poison(self) -> Self::Value;
}

impl<V> IgnorePoison for LockResult<V> {
    type Value = V;

    fn ignore_poison(self) -> V {
        match self {
            Ok(value) => value,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

/// Locks a mutex, poisoned or not.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().ignore_poison()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::catch_panic;

    #[test]
    fn a_lock_whose_owner_panicked_is_taken() {
        let lock = Mutex::new(1);
        catch_panic(|| {
            *lock.lock().unwrap() = 2;
            let _held = lock.lock().ignore_poison();
            panic!("of a test");
        });
        assert!(lock.is_poisoned());
        assert_eq!(*super::lock(&lock), 2);
        assert_eq!(lock.into_inner().ignore_poison(), 2);
    }
}
