//! The place of an endpoint's queue pair: read without a lock, replaced rarely.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// A value that is set late, read by every work request, and replaced now and then.
///
/// Readers take no lock and count nothing, so nobody can tell when the last of them has left a
/// replaced value. Replaced values therefore stay until the cell goes. Only `dat_ep_modify` of an
/// endpoint that has its queue pair already replaces one, so there are few; [`QpCell::replace`]
/// bounds them.
#[derive(Debug)]
pub(crate) struct QpCell<T> {
    current: AtomicPtr<T>,
    /// Every value ever set, the current one last. Boxes made by `Box::into_raw`, freed by the
    /// drop.
    all: Mutex<Vec<*mut T>>,
}

/// Values that one cell keeps at most.
const KEPT_MAX: usize = 64;

// SAFETY: the cell owns its values like boxes and hands out shared references only.
unsafe impl<T: Send + Sync> Send for QpCell<T> {}
// SAFETY: as above; replacing goes through the lock and an atomic.
unsafe impl<T: Send + Sync> Sync for QpCell<T> {}

impl<T> QpCell<T> {
    /// Without a value.
    pub(crate) fn empty() -> Self {
        Self {
            current: AtomicPtr::new(ptr::null_mut()),
            all: Mutex::default(),
        }
    }

    /// The value, if there is one. Valid as long as the cell, even when it is replaced meanwhile.
    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: the pointer is null or came from a box that is freed by the drop of the cell
        // only, and the acquire load makes the value's bytes visible.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// All values that were ever set, the current one last.
    pub(crate) fn all(&self) -> Vec<&T> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: as for `get`: the boxes are freed by the drop of the cell only.
        all.iter().map(|raw| unsafe { &**raw }).collect()
    }

    /// Whether another value may still be set.
    pub(crate) fn has_room(&self) -> bool {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
            < KEPT_MAX
    }

    /// Sets or replaces the value. `Err` gives it back when the bound is reached.
    pub(crate) fn replace(&self, value: T) -> Result<(), T> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= KEPT_MAX {
            return Err(value);
        }
        let raw = Box::into_raw(Box::new(value));
        all.push(raw);
        self.current.store(raw, Ordering::Release);
        Ok(())
    }
}

impl<T> Drop for QpCell<T> {
    fn drop(&mut self) {
        let all = self.all.get_mut().unwrap_or_else(PoisonError::into_inner);
        for raw in all.drain(..) {
            // SAFETY: each pointer came from a box, is in the list once, and no reference outlives
            // the borrow of the cell that is being dropped.
            drop(unsafe { Box::from_raw(raw) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
