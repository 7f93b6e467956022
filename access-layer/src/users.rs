//! Use counts, which prevent an object from being freed while it is used.
//!
//! The count and the "being freed" flag are in one word: an object that is being freed accepts no
//! new users, and an object with users cannot be freed. With two words, a create call on another
//! thread could add a use between the check of the count and the end of the object.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const CLOSED: u32 = 1 << 31;

/// The number of objects that use the owner of this count.
#[derive(Debug, Default)]
pub struct Users(Arc<AtomicU32>);

/// One use, which ends when it is dropped.
#[derive(Debug)]
pub struct User(Arc<AtomicU32>);

impl Users {
    /// Creates a count of zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a use; `None` when the owner is being freed.
    #[must_use]
    pub fn take(&self) -> Option<User> {
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < CLOSED - 1).then_some(count + 1)
            })
            .ok()
            .map(|_| User(self.0.clone()))
    }

    /// Refuses new users from now on. Returns `false`, and changes nothing, if there are users or
    /// the owner is already being freed.
    #[must_use]
    pub fn close(&self) -> bool {
        self.0
            .compare_exchange(0, CLOSED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Refuses new users from now on, even if there are users.
    pub fn close_anyway(&self) {
        self.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Returns true if the owner has users.
    #[must_use]
    pub fn has_any(&self) -> bool {
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

    /// Creates an owner with `count` users, open or closed.
    fn owner(count: u32, closed: bool) -> (Users, Vec<User>) {
        let users = Users::new();
        let held = (0..count).map(|_| users.take().unwrap()).collect();
        if closed {
            users.close_anyway();
        }
        (users, held)
    }

    #[test]
    fn every_event_in_every_state() {
        for (count, closed) in [(0, false), (1, false), (2, false), (0, true), (1, true)] {
            let what = format!("{count} users, closed: {closed}");
            let word = |users: &Users| users.0.load(Ordering::Acquire);
            let bits = |count: u32, closed: bool| count | if closed { CLOSED } else { 0 };

            let (users, _held) = owner(count, closed);
            assert_eq!(users.has_any(), count > 0, "{what}");
            let user = users.take();
            assert_eq!(user.is_some(), !closed, "{what}: take");
            assert_eq!(
                word(&users),
                bits(count + u32::from(!closed), closed),
                "{what}: take"
            );

            let (users, mut held) = owner(count, closed);
            if held.pop().is_some() {
                assert_eq!(word(&users), bits(count - 1, closed), "{what}: drop");
            }

            let (users, _held) = owner(count, closed);
            let closes = count == 0 && !closed;
            assert_eq!(users.close(), closes, "{what}: close");
            assert_eq!(word(&users), bits(count, closed || closes), "{what}: close");

            let (users, _held) = owner(count, closed);
            users.close_anyway();
            assert_eq!(word(&users), bits(count, true), "{what}: close_anyway");
        }
    }
}
