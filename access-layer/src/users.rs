//! Counting who uses an object, so that it cannot be freed under them.
//!
//! The count and the freedom are one word: an object that is being freed takes no new users, and an
//! object with users cannot be freed. Without that a create call in another thread could slip
//! between the look at the count and the end of the object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const CLOSED: u32 = 1 << 31;

/// How many objects use the owner of this.
#[derive(Debug, Default)]
pub struct Users(Arc<AtomicU32>);

/// One use; its drop ends it.
#[derive(Debug)]
pub struct User(Arc<AtomicU32>);

impl Users {
    /// Nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One more; `None` when the owner is being freed.
    #[must_use]
    pub fn take(&self) -> Option<User> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < CLOSED - 1).then_some(count + 1)
            })
            .ok()
            .map(|_| User(self.0.clone()))
    }

    /// Takes no more users from now on. `false`, and nothing is changed, while there are some.
    #[must_use]
    pub fn close(&self) -> bool {
        self.0
            .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Takes no more users from now on, whoever is left.
    pub fn close_anyway(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Whether anybody uses the owner.
    #[must_use]
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) & !CLOSED != 0
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_with_users_does_not_close() {
        let users = Users::new();
        let first = users.take().unwrap();
        let second = users.take().unwrap();
        assert!(!users.close());
        drop(first);
        assert!(!users.close());
        drop(second);
        assert!(!users.any());
        assert!(users.close());
    }

    #[test]
    fn a_closed_owner_takes_no_users() {
        let users = Users::new();
        assert!(users.close());
        assert!(users.take().is_none());
        assert!(!users.close());
    }

    #[test]
    fn users_left_behind_by_force_can_still_go() {
        let users = Users::new();
        let user = users.take().unwrap();
        users.close_anyway();
        assert!(users.take().is_none());
        assert!(users.any());
        drop(user);
        assert!(!users.any());
    }
}
