//! Staging buffers.
//!
//! Every drive of a connection may need one buffer for received bytes and one in which it assembles
//! frames. A connection owns no buffer while it has no partial frame and no consumer polls it, so
//! ten thousand idle connections need no buffer. The engine takes the buffers of a consumer that
//! has stopped polling. A thread that makes progress keeps one spare buffer to itself, which makes
//! the usual take and return two moves of a pointer without a lock. All other spare buffers are in
//! one small pool of the process.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The length of a staging buffer. The longest FPDU (65544 bytes) fits, with room to receive more
/// after it. A longer buffer would not be faster, because it does not fit a level-2 cache.
pub(crate) const STAGING_LEN: usize = 256 * 1024;

/// Maximum number of spare buffers of the process; further ones are returned to the allocator.
const SPARES_MAX: usize = 8;

static SPARES: Mutex<Vec<Staging>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: RefCell<Option<Staging>> = const { RefCell::new(None) };
}

/// A buffer of [`STAGING_LEN`] bytes.
#[derive(Debug)]
pub(crate) struct Staging(Box<[u8]>);

impl Staging {
    /// Takes a buffer. It has the content of its last use. Returns `None` without memory: the
    /// reserve has room for a few buffers only, and peers decide how many are in use.
    pub(crate) fn take() -> Option<Self> {
        if let Ok(Some(own)) = OWN.try_with(|own| own.borrow_mut().take()) {
            return Some(own);
        }
        let spare = spares().and_then(|mut spares| spares.pop());
        spare.or_else(Self::allocate)
    }

    /// Allocates a buffer of zeroes, whose pages cost nothing until they are used.
    fn allocate() -> Option<Self> {
        const LAYOUT: Layout = Layout::new::<[u8; STAGING_LEN]>();
        // SAFETY: the layout is not empty.
        let bytes = unsafe { alloc_zeroed(LAYOUT) };
        if bytes.is_null() {
            return None;
        }
        let bytes = std::ptr::slice_from_raw_parts_mut(bytes, STAGING_LEN);
        // SAFETY: the block was allocated above with the layout of the slice, and is initialised.
        Some(Self(unsafe { Box::from_raw(bytes) }))
    }

    /// Returns a buffer for the next use by any thread.
    pub(crate) fn put(self) {
        let mut rest = Some(self);
        // A thread that is ending has no slot any more; then the pool takes the buffer.
        let _ = OWN.try_with(|own| {
            let mut own = own.borrow_mut();
            if own.is_none() {
                *own = rest.take();
            }
        });
        if let Some(rest) = rest
            && let Some(mut spares) = spares()
            && spares.len() < SPARES_MAX
        {
            spares.push(rest);
        }
    }
}

impl std::ops::Deref for Staging {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::DerefMut for Staging {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// The spare buffers of the process; `None` while another thread uses the list. A thread that
/// receives `None` creates or drops a buffer and does not wait: in the child of a fork the other
/// thread may not exist.
fn spares() -> Option<MutexGuard<'static, Vec<Staging>>> {
    match SPARES.try_lock() {
        Ok(spares) => Some(spares),
        Err(TryLockError::Poisoned(spares)) => Some(spares.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_buffer_is_taken_again_by_the_same_thread() {
        let mut first = Staging::take().unwrap();
        first[0] = 77;
        let place = first.as_ptr();
        first.put();
        let second = Staging::take().unwrap();
        assert_eq!(second.as_ptr(), place);
        let third = Staging::take().unwrap();
        assert_ne!(third.as_ptr(), place);
        assert_eq!(third.len(), STAGING_LEN);
    }
}
