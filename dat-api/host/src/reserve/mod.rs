//! The allocator of the shared libraries.
//!
//! A library must not end the process that loads it, but Rust ends the process when an allocation
//! fails. So each library has its own arena, from which it allocates when the system refuses. The
//! call that met the refusal finishes. Calls that would create a new object check [`is_short`]
//! first and return `DAT_INSUFFICIENT_RESOURCES`. Until the system refuses memory, the arena is
//! address space without pages behind it.
//!
//! Each library declares one allocator:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: host::reserve::Reserve = host::reserve::Reserve;
//! # fn main() { assert!(!host::reserve::is_short()); }
//! ```

mod arena;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use arena::Arena;

/// Length of the arena in bytes: enough for the calls in progress, which need a few staging buffers
/// of 256 KiB and many small objects.
const ARENA_LEN: usize = 2 << 20;
/// Length, in bytes, of the allocation that must succeed before the system counts as recovered.
const PROBE_LEN: usize = 64 * 1024;

static ARENA: Arena<ARENA_LEN> = Arena::new();

/// The system's allocator with an arena as reserve.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reserve;

/// Returns true while the system refuses memory. Costs one atomic load as long as it never did.
#[must_use]
pub fn is_short() -> bool {
    if !ARENA.was_used() {
        return false;
    }
    let Ok(layout) = Layout::from_size_align(PROBE_LEN, 16) else {
        return true;
    };
    // `black_box`, because the compiler may omit an allocation that is only freed again.
    // SAFETY: the layout is not empty, and the block is freed with the same layout.
    unsafe {
        let probe = black_box(System.alloc(layout));
        if !probe.is_null() {
            System.dealloc(probe, layout);
        }
        probe.is_null()
    }
}

// SAFETY: blocks come from the system's allocator or from the arena, which allocates disjoint,
// aligned blocks of memory that exists as long as the program. Each block is freed in the allocator
// it came from, which its address identifies.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the contract of `GlobalAlloc`.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() {
            ARENA.take(layout)
        } else {
            block
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the contract of `GlobalAlloc`.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = ARENA.take(layout);
        if !block.is_null() {
            // SAFETY: the arena returned a block of that length.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if ARENA.holds(block) {
            ARENA.free(block, layout);
        } else {
            // SAFETY: the block came from the system with this layout.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        if !ARENA.holds(block) {
            // SAFETY: the block came from the system with this layout; the caller guarantees the
            // rest.
            let moved = unsafe { System.realloc(block, layout, new_len) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(new_layout) = Layout::from_size_align(new_len, layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: both blocks are live, disjoint and at least as long as the copied bytes; the old
        // block is freed once, with its layout.
        unsafe {
            let moved = self.alloc(new_layout);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(block, layout.size().min(new_len));
                self.dealloc(block, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_the_arena_grows_into_one_of_the_system() {
        let (layout, longer) = (Layout::new::<[u8; 100]>(), Layout::new::<[u8; 200]>());
        let block = ARENA.take(layout);
        assert!(ARENA.holds(block));
        // SAFETY: both blocks are as long as the bytes that are written and read, and each is freed
        // once, with its layout.
        unsafe {
            block.write_bytes(0xa5, layout.size());
            let moved = Reserve.realloc(block, layout, longer.size());
            assert!(!moved.is_null() && !ARENA.holds(moved));
            assert_eq!(moved.cast::<[u8; 100]>().read(), [0xa5; 100]);
            Reserve.dealloc(moved, longer);
            assert_eq!(ARENA.take(layout), block, "the arena is empty again");
            Reserve.dealloc(block, layout);
        }
        assert!(!is_short(), "the system has memory");
    }
}
