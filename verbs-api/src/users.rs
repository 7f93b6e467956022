//! Counts of the objects of the program that use an object.
//!
//! The counts of `Arc` include the references that the thread of the RNIC holds during an upcall.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of objects that use an object.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    /// True if the object cannot be destroyed.
    pub(crate) fn exist(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// An object that others use.
pub(crate) trait Used {
    fn users(&self) -> &Users;
}

/// A use of an object, until the drop. It is part of the user's structure for the program, which
/// `ibv_destroy_*` drops before it returns.
#[derive(Debug)]
pub(crate) struct Use<T: Used>(Arc<T>);

impl<T: Used> Use<T> {
    pub(crate) fn of(used: &Arc<T>) -> Self {
        used.users().0.fetch_add(1, Ordering::AcqRel);
        Self(used.clone())
    }
}

impl<T: Used> Drop for Use<T> {
    fn drop(&mut self) {
        self.0.users().0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl<T: Used> Deref for Use<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Object(Users);

    impl Used for Object {
        fn users(&self) -> &Users {
            &self.0
        }
    }

    #[test]
    fn an_object_is_used_until_the_last_user_is_destroyed() {
        let object = Arc::new(Object::default());
        let _reference = object.clone();
        assert!(!object.0.exist());
        let uses = [Use::of(&object), Use::of(&object)];
        assert!(object.0.exist());
        drop(uses);
        assert!(!object.0.exist());
    }
}
