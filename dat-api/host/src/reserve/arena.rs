//! Memory that is allocated from its front and starts again when all blocks have been freed.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};

/// An arena of `LEN` bytes.
#[repr(C, align(4096))]
pub(super) struct Arena<const LEN: usize> {
    bytes: UnsafeCell<[u8; LEN]>,
    state: UnsafeCell<State>,
    is_locked: AtomicBool,
    was_used: AtomicBool,
}

struct State {
    /// Offset of the first free byte.
    front: usize,
    blocks: usize,
}

// SAFETY: `state` is accessed only inside `with`, by one thread at a time; of `bytes` only the
// address is used here, and the allocated blocks are disjoint.
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

    /// Returns true if a block was ever taken.
    pub(super) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn holds(&self, block: *mut u8) -> bool {
        block.addr().wrapping_sub(self.bytes.get().addr()) < LEN
    }

    /// Allocates a block; returns null when the free part is too short.
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

    /// Frees a block. The layout must be that of its allocation.
    #[cold]
    pub(super) fn free(&self, block: *mut u8, layout: Layout) {
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

    /// Runs `work` with the state locked. The lock spins for a few instructions; a lock that sleeps
    /// might allocate.
    fn with<V>(&self, work: impl FnOnce(&mut State) -> V) -> V {
        while self.is_locked.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        // SAFETY: the thread that sets the flag has exclusive access to the state until it clears
        // the flag.
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
    fn returned_blocks_are_allocated_again() {
        let arena = Box::new(Arena::<256>::new());
        let first = arena.take(layout(100, 1));
        let second = arena.take(layout(100, 1));
        assert!(arena.take(layout(100, 1)).is_null());
        arena.free(second, layout(100, 1));
        assert_eq!(arena.take(layout(100, 1)), second);
        arena.free(first, layout(100, 1));
        assert!(
            arena.take(layout(100, 1)).is_null(),
            "the hole is not at the end"
        );
        arena.free(second, layout(100, 1));
        assert_eq!(arena.take(layout(200, 1)), first);
    }
}
