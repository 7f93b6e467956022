//! The cell of an endpoint's queue pair: read without a lock, replaced rarely.

use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use host::locks::IgnorePoison as _;

/// A value that is set late, read by every work request, and rarely replaced.
///
/// Readers take no lock and keep no count. Replaced values therefore stay until
/// [`QpCell::take_replaced`] is called at a time without readers. There are few: only
/// `dat_ep_modify` of an endpoint that already has its queue pair replaces the value, and
/// [`QpCell::replace`] limits their number.
#[derive(Debug)]
pub(crate) struct QpCell<T> {
    current: AtomicPtr<T>,
    /// Every value ever set, the current one last. The pointers come from `Box::into_raw`; the drop
    /// frees them.
    all: Mutex<Vec<*mut T>>,
}

/// Maximum number of values of one cell.
const KEPT_MAX: usize = 64;

// SAFETY: the cell owns its values as a box does, and returns shared references only.
unsafe impl<T: Send + Sync> Send for QpCell<T> {}
// SAFETY: as for Send; values are replaced under the lock and published by an atomic.
unsafe impl<T: Send + Sync> Sync for QpCell<T> {}

impl<T> QpCell<T> {
    /// Creates a cell without a value.
    pub(crate) fn empty() -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            all: Mutex::default(),
        }
    }

    /// Returns the value, if there is one. The value stays valid even if it is replaced meanwhile.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: the pointer is null or came from a box that is freed by the drop of the cell, or
        // by `take_replaced` at a time without readers. The acquire load makes the value's bytes
        // visible.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Returns all values that were ever set, the current one last.
    pub(crate) fn all(&self) -> Vec<&T> {
        let all = self.all.lock().ignore_poison();
        // SAFETY: as for `get`.
        all.iter().map(|raw| unsafe { &**raw }).collect()
    }

    /// Returns true if another value may be set.
    pub(crate) fn has_room(&self) -> bool {
        self.all.lock().ignore_poison().len() < KEPT_MAX
    }

    /// Sets or replaces the value. At the limit, `Err` returns the value.
    pub(crate) fn replace(&self, value: T) -> Result<(), T> {
        let mut all = self.all.lock().ignore_poison();
        if all.len() >= KEPT_MAX {
            return Err(value);
        }
        let raw = Box::into_raw(Box::new(value));
        all.push(raw);
        self.current.store(raw, Ordering::Release);
        Ok(())
    }

    /// Removes the replaced values that `is_idle` selects, if `is_alone` returns true.
    ///
    /// # Safety
    ///
    /// If `is_alone` returns true, no thread has a reference that [`get`](Self::get) or
    /// [`all`](Self::all) returned before. The list is locked meanwhile.
    pub(crate) unsafe fn take_replaced(
        &self,
        is_alone: impl FnOnce() -> bool,
        is_idle: impl Fn(&T) -> bool,
    ) -> Vec<Box<T>> {
        let mut all = self.all.lock().ignore_poison();
        if all.len() < 2 || !is_alone() {
            return Vec::new();
        }
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: as for `all`.
        let can_go = |raw: &mut *mut T| *raw != current && is_idle(unsafe { &**raw });
        // SAFETY: each pointer came from a box and is in the list once. The caller guarantees that
        // there are no references, and no new ones are made: `get` returns another value, and `all`
        // waits for the lock.
        let boxed = |raw| unsafe { Box::from_raw(raw) };
        all.extract_if(.., can_go).map(boxed).collect()
    }
}

impl<T> Drop for QpCell<T> {
    fn drop(&mut self) {
        let all = self.all.get_mut().ignore_poison();
        for raw in all.drain(..) {
            // SAFETY: each pointer came from a box and is in the list once, and no reference
            // outlives the borrow of the cell that is being dropped.
            drop(unsafe { Box::from_raw(raw) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_replaced_value_stays_valid_and_all_are_dropped_with_the_cell() {
        let counted = Arc::new(());
        let cell = QpCell::empty();
        assert!(cell.get().is_none());
        cell.replace((1, counted.clone())).unwrap();
        let first = cell.get().unwrap();
        cell.replace((2, counted.clone())).unwrap();
        assert_eq!((first.0, cell.get().unwrap().0), (1, 2));
        assert_eq!(cell.all().iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(Arc::strong_count(&counted), 3);
        drop(cell);
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn replaced_values_are_taken_when_no_thread_uses_the_cell() {
        let cell = QpCell::empty();
        for value in 0..4 {
            cell.replace(value).unwrap();
        }
        // SAFETY: the test has no reference into the cell.
        let take = |is_alone: bool| unsafe { cell.take_replaced(|| is_alone, |value| *value != 1) };
        assert_eq!(take(false), []);
        assert_eq!(take(true).iter().map(|it| **it).collect::<Vec<_>>(), [0, 2]);
        assert_eq!(cell.all(), [&1, &3]);
        assert_eq!(cell.get(), Some(&3));
    }

    #[test]
    fn the_number_of_kept_values_is_bounded() {
        let cell = QpCell::empty();
        for value in 0..KEPT_MAX {
            cell.replace(value).unwrap();
        }
        assert!(!cell.has_room());
        assert_eq!(cell.replace(KEPT_MAX), Err(KEPT_MAX));
        assert_eq!(cell.get(), Some(&(KEPT_MAX - 1)));
    }
}
