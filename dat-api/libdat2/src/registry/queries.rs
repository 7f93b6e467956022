//! References held by extension queries between their open and their close operation.
//!
//! The close operation identifies its provider only by a handle of the provider. So the references
//! of the open operation are stored here by key. A close without an open releases nothing.

use std::ffi::CStr;
use std::sync::MutexGuard;

use host::forks::HeldLock;

use super::open;
use crate::key::Key;

#[derive(Debug)]
pub(crate) struct Query {
    key: Key,
    holds_library: bool,
}

pub(crate) static OPEN: HeldLock<Vec<Query>> = HeldLock::new(Vec::new());

/// Stores the references that a successful open operation keeps.
pub fn opened(key: Key, holds_library: bool) {
    lock().push(Query { key, holds_library });
}

/// Releases the references of one open operation on this name, if there was one.
pub fn closed(name: &CStr) {
    let found = {
        let mut open = lock();
        let index = open.iter().position(|query| query.key.name() == name);
        index.map(|index| open.swap_remove(index))
    };
    if let Some(query) = found {
        open::release(&query.key, query.holds_library);
    }
}

fn lock() -> MutexGuard<'static, Vec<Query>> {
    // Only pushes and removals happen under this lock.
    OPEN.lock()
}
