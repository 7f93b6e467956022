//! A fixed block of memory with a list of its free parts.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Lengths and offsets of all parts are multiples of this, so that a free part has room for its
/// [`Free`].
const UNIT: usize = size_of::<Free>();

/// The offset that ends the list.
const NOTHING: usize = usize::MAX;

/// An arena of `LEN` bytes.
#[repr(C, align(4096))]
pub(super) struct Arena<const LEN: usize> {
    bytes: UnsafeCell<[u8; LEN]>,
    state: UnsafeCell<State>,
    is_locked: AtomicBool,
    was_used: AtomicBool,
    allocated: AtomicUsize,
}

struct State {
    /// The offset from which no byte is allocated.
    front: usize,
    /// The offset of the first free part before the front. The list is ordered by offset, and its
    /// parts do not touch each other or the front.
    first: usize,
}

/// The entry of a free part in the list, stored at its beginning.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Free {
    len: usize,
    next: usize,
}

// SAFETY: `state` and the free parts of `bytes` are accessed only inside `with`, by one thread at a
// time. The allocated blocks are disjoint from each other and from the free parts.
unsafe impl<const LEN: usize> Sync for Arena<LEN> {}

impl<const LEN: usize> Arena<LEN> {
    pub(super) const fn new() -> Self {
        Self {
            bytes: UnsafeCell::new([0; LEN]),
            state: UnsafeCell::new(State {
                front: 0,
                first: NOTHING,
            }),
            is_locked: AtomicBool::new(false),
            was_used: AtomicBool::new(false),
            allocated: AtomicUsize::new(0),
        }
    }

    /// Returns true if a block was ever taken.
    pub(super) fn was_used(&self) -> bool {
        self.was_used.load(Ordering::Relaxed)
    }

    /// The sum of the lengths of the allocated blocks.
    pub(super) fn allocated(&self) -> usize {
        self.allocated.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn holds(&self, block: *mut u8) -> bool {
        block.addr().wrapping_sub(self.bytes.get().addr()) < LEN
    }

    /// Allocates a block; returns null when no free part is long enough.
    #[cold]
    pub(super) fn take(&self, layout: Layout) -> *mut u8 {
        self.was_used.store(true, Ordering::Relaxed);
        let Some(len) = length_of(layout) else {
            return std::ptr::null_mut();
        };
        let at = self.with(|state| {
            let found = self.take_free(state, len, layout.align());
            found.or_else(|| self.take_front(state, len, layout.align()))
        });
        match at {
            Some(at) => {
                self.allocated.fetch_add(len, Ordering::Relaxed);
                self.start().wrapping_add(at)
            }
            None => std::ptr::null_mut(),
        }
    }

    /// Frees a block. The layout must be that of its allocation.
    #[cold]
    pub(super) fn free(&self, block: *mut u8, layout: Layout) {
        let at = block.addr() - self.start().addr();
        let len = length_of(layout).unwrap_or(0);
        self.allocated.fetch_sub(len, Ordering::Relaxed);
        self.with(|state| self.insert(state, at, len));
    }

    fn start(&self) -> *mut u8 {
        self.bytes.get().cast()
    }

    /// The first offset from `at` on whose address has the alignment.
    fn aligned(&self, at: usize, align: usize) -> usize {
        (self.start().addr() + at).next_multiple_of(align) - self.start().addr()
    }

    /// Takes a block from the first free part that is long enough.
    fn take_free(&self, state: &mut State, len: usize, align: usize) -> Option<usize> {
        let (mut before, mut here) = (NOTHING, state.first);
        while here != NOTHING {
            let part = self.part(here);
            let (at, end) = (self.aligned(here, align), here + part.len);
            if at
                .checked_add(len)
                .is_some_and(|block_end| block_end <= end)
            {
                let mut next = part.next;
                if at + len < end {
                    let rest = end - at - len;
                    next = self.set_part(at + len, Free { len: rest, next });
                }
                if at > here {
                    next = self.set_part(
                        here,
                        Free {
                            len: at - here,
                            next,
                        },
                    );
                }
                self.link(state, before, next);
                return Some(at);
            }
            (before, here) = (here, part.next);
        }
        None
    }

    fn take_front(&self, state: &mut State, len: usize, align: usize) -> Option<usize> {
        let front = state.front;
        let at = self.aligned(front, align);
        let end = at.checked_add(len).filter(|end| *end <= LEN)?;
        state.front = end;
        if at > front {
            self.insert(state, front, at - front);
        }
        Some(at)
    }

    /// Inserts a free part into the list, and merges it with the parts that it touches.
    fn insert(&self, state: &mut State, at: usize, len: usize) {
        let (mut before, mut next) = (NOTHING, state.first);
        let mut link_of_before = NOTHING;
        while next < at {
            link_of_before = before;
            (before, next) = (next, self.part(next).next);
        }
        let mut free = Free { len, next };
        if next == at + len {
            let after = self.part(next);
            free = Free {
                len: len + after.len,
                next: after.next,
            };
        }
        let (mut at, mut previous) = (at, before);
        if before != NOTHING && before + self.part(before).len == at {
            free.len += at - before;
            (at, previous) = (before, link_of_before);
        }
        if at + free.len == state.front {
            state.front = at;
            self.link(state, previous, free.next);
        } else {
            let here = self.set_part(at, free);
            self.link(state, previous, here);
        }
    }

    /// Makes `next` the part after `before`, or the first one.
    fn link(&self, state: &mut State, before: usize, next: usize) {
        if before == NOTHING {
            state.first = next;
        } else {
            let part = self.part(before);
            self.set_part(before, Free { next, ..part });
        }
    }

    /// The entry of the free part at this offset.
    fn part(&self, at: usize) -> Free {
        // SAFETY: the list has only offsets at which `set_part` has stored an entry, and no other
        // thread accesses free parts while this thread has the lock.
        unsafe { self.start().add(at).cast::<Free>().read() }
    }

    fn set_part(&self, at: usize, part: Free) -> usize {
        // SAFETY: the part is free and within the arena, it has room for the entry, and its address
        // is a multiple of `UNIT`. This thread has the lock.
        unsafe { self.start().add(at).cast::<Free>().write(part) };
        at
    }

    /// Runs `work` with the state locked. The lock spins for a few instructions; a lock that sleeps
    /// might allocate.
    /// Called in the child of a fork, which has one thread. If another thread of the parent was
    /// changing the state, no part of it is valid, and only blocks that are freed from now on are
    /// allocated again.
    pub(super) fn on_fork(&self) {
        if !self.is_locked.load(Ordering::Acquire) {
            return;
        }
        let state = State {
            front: LEN,
            first: NOTHING,
        };
        // SAFETY: the thread that had exclusive access does not exist in this process, which has no
        // other thread.
        unsafe { *self.state.get() = state };
        self.is_locked.store(false, Ordering::Release);
    }

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

/// The length of the part for a block.
fn length_of(layout: Layout) -> Option<usize> {
    layout.size().max(1).checked_next_multiple_of(UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(len: usize, align: usize) -> Layout {
        Layout::from_size_align(len, align).unwrap()
    }

    #[test]
    fn the_child_of_a_fork_does_not_wait_for_a_thread_of_its_parent() {
        static ARENA: Arena<4096> = Arena::new();
        let small = layout(64, 16);
        let block = ARENA.take(small);
        ARENA.on_fork();
        let other = ARENA.take(small);
        assert!(!other.is_null(), "nothing was changed at that moment");
        ARENA.is_locked.store(true, Ordering::Relaxed);
        ARENA.on_fork();
        assert!(ARENA.take(small).is_null());
        ARENA.free(block, small);
        assert_eq!(ARENA.take(small), block);
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
        assert_eq!(arena.take(layout(60, 1)), first);
        assert!(arena.take(layout(60, 1)).is_null(), "the rest is too short");
        arena.free(first, layout(60, 1));
        arena.free(second, layout(100, 1));
        assert_eq!(arena.take(layout(200, 1)), first);
        assert_eq!(arena.allocated(), 208);
    }

    /// Allocates and frees blocks in a changing order while one block stays allocated.
    #[test]
    fn free_parts_are_merged_in_every_order() {
        const LEN: usize = 1 << 14;
        let arena = Box::new(Arena::<LEN>::new());
        let kept = arena.take(layout(40, 8));
        let mut blocks: Vec<(*mut u8, Layout)> = Vec::new();
        let mut random = 1_u32;
        for _ in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let choice = (random >> 8) as usize;
            if blocks.len() > 20 {
                let (block, of) = blocks.swap_remove(choice % blocks.len());
                // SAFETY: the block is allocated with this layout.
                let bytes = unsafe { std::slice::from_raw_parts(block, of.size()) };
                assert!(
                    bytes
                        .iter()
                        .all(|byte| usize::from(*byte) == of.size() % 251)
                );
                arena.free(block, of);
                continue;
            }
            let of = layout(choice % 500 + 1, 1 << (choice % 8));
            let block = arena.take(of);
            assert!(!block.is_null() && block.addr().is_multiple_of(of.align()));
            // SAFETY: the block was allocated with this layout.
            unsafe { block.write_bytes((of.size() % 251) as u8, of.size()) };
            blocks.push((block, of));
        }
        blocks
            .into_iter()
            .for_each(|(block, of)| arena.free(block, of));
        assert_eq!(arena.allocated(), 48);
        assert!(!arena.take(layout(LEN - 64, 16)).is_null());
        arena.free(kept, layout(40, 8));
    }
}
