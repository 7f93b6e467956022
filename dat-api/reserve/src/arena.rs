//! A stretch of memory that is handed out from its front and starts again when all is back.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory of `LEN` bytes.
#[repr(C, align(4096))]
pub(super) struct Arena<const LEN: usize> {
    bytes: UnsafeCell<[u8; LEN]>,
    state: UnsafeCell<State>,
    is_locked: AtomicBool,
    was_used: AtomicBool,
}

/// What is handed out.
struct State {
    /// Where the free end begins.
    front: usize,
    blocks: usize,
}

// SAFETY: `state` is touched only inside `with`, by one thread at a time; of `bytes` only the
// address is used here, and the blocks of it that are handed out are disjoint.
unsafe impl<const LEN: usize> Sync for Arena<LEN> {}

impl<const LEN: usize> Arena<LEN> {
    pub(super) const fn new() -> Self {
        Self {
            bytes: UnsafeCell::new([0; LEN]),
            state: UnsafeCell::new(State {
                front: 0,
                blocks: 0,
            }),
            is_locked: AtomicBool::new(false),
            was_used: AtomicBool::new(false),
        }
    }

    /// Whether a block was ever taken.
    pub(super) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    /// Whether a block is one of this arena.
    #[inline]
    pub(super) fn holds(&self, block: *mut u8) -> bool {
        block.addr().wrapping_sub(self.bytes.get().addr()) < LEN
    }

    /// A block, or null when the free end is too short.
    #[cold]
    pub(super) fn take(&self, layout: Layout) -> *mut u8 {
        self.was_used.store(true, Ordering::Relaxed);
        let start = self.bytes.get().cast::<u8>();
        self.with(|state| {
            let at = (start.addr() + state.front).next_multiple_of(layout.align()) - start.addr();
            match at.checked_add(layout.size()).filter(|end| *end <= LEN) {
                Some(end) => {
                    state.front = end;
                    state.blocks += 1;
                    start.wrapping_add(at)
                }
                None => std::ptr::null_mut(),
            }
        })
    }

    /// Takes back a block with the layout that it was taken with.
    #[cold]
    pub(super) fn give_back(&self, block: *mut u8, layout: Layout) {
        let at = block.addr() - self.bytes.get().addr();
        self.with(|state| {
            state.blocks -= 1;
            if state.blocks == 0 {
                state.front = 0;
            } else if at + layout.size() == state.front {
                state.front = at;
            }
        });
    }

    /// A lock that sleeps might allocate; this one is held for a few instructions.
    fn with<V>(&self, work: impl FnOnce(&mut State) -> V) -> V {
        while self.is_locked.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: whoever sets the mark has the state to itself until it clears it.
        let value = work(unsafe { &mut *self.state.get() });
        self.is_locked.store(false, Ordering::Release);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(len: usize, align: usize) -> Layout {
        Layout::from_size_align(len, align).unwrap()
    }

    #[test]
    fn blocks_are_aligned_disjoint_and_bounded() {
        let arena = Box::new(Arena::<256>::new());
        assert!(!arena.was_used());
        let first = arena.take(layout(3, 1));
        let second = arena.take(layout(64, 64));
        assert_eq!(second.addr() % 64, 0);
        assert!(second.addr() >= first.addr() + 3);
        assert!(arena.was_used() && arena.holds(first) && arena.holds(second));
        assert!(!arena.holds(std::ptr::from_ref(&arena).cast_mut().cast()));
        assert!(arena.take(layout(256, 1)).is_null());
        assert!(arena.take(layout(usize::MAX / 2, 1)).is_null());
    }

    #[test]
    fn what_comes_back_is_handed_out_again() {
        let arena = Box::new(Arena::<256>::new());
        let first = arena.take(layout(100, 1));
        let second = arena.take(layout(100, 1));
        assert!(arena.take(layout(100, 1)).is_null());
        arena.give_back(second, layout(100, 1));
        assert_eq!(arena.take(layout(100, 1)), second);
        arena.give_back(first, layout(100, 1));
        assert!(
            arena.take(layout(100, 1)).is_null(),
            "the hole is not at the end"
        );
        arena.give_back(second, layout(100, 1));
        assert_eq!(arena.take(layout(200, 1)), first);
    }
}
