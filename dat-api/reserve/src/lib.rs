//! The allocator of the shared libraries.
//!
//! A library may not end the process that it is loaded into, and Rust ends it when an allocation
//! fails. So each library has an arena of its own to which it turns when the system refuses: the
//! call that met the refusal finishes, and those that would make something new ask [`is_short`]
//! first and answer `DAT_INSUFFICIENT_RESOURCES`. Until then the arena is address space that no
//! page backs.
//!
//! Each library declares one:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: reserve::Reserve = reserve::Reserve;
//! # fn main() { assert!(!reserve::is_short()); }
//! ```

mod arena;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use arena::Arena;

/// Enough for what calls that are under way may want: a few staging buffers of 256 KiB and many
/// small objects.
const ARENA_LEN: usize = 2 << 20;
/// What the system must be able to give before it is taken to have recovered.
const PROBE_LEN: usize = 64 * 1024;

static ARENA: Arena<ARENA_LEN> = Arena::new();

/// The system's allocator with an arena behind it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reserve;

/// Whether the system refuses memory. One atomic load as long as it never did.
#[must_use]
pub fn is_short() -> bool {
    if !ARENA.was_used() {
        return false;
    }
    let Ok(layout) = Layout::from_size_align(PROBE_LEN, 16) else {
        return true;
    };
    // The compiler knows that a block which is only given back need not be there at all.
    // SAFETY: the layout is not empty, and the block goes back with the same one.
    unsafe {
        let probe = black_box(System.alloc(layout));
        if !probe.is_null() {
            System.dealloc(probe, layout);
        }
        probe.is_null()
    }
}

// SAFETY: blocks come from the system's allocator or from the arena, which hands out disjoint,
// aligned pieces of memory that lives as long as the program; each goes back to where it came from,
// which its address tells.
unsafe impl GlobalAlloc for Reserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc(layout) };
        if block.is_null() {
            ARENA.take(layout)
        } else {
            block
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's contract.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            return block;
        }
        let block = ARENA.take(layout);
        if !block.is_null() {
            // SAFETY: the arena gave a block of that length.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if ARENA.holds(block) {
            ARENA.give_back(block, layout);
        } else {
            // SAFETY: it came from the system with this layout.
            unsafe { System.dealloc(block, layout) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_len: usize) -> *mut u8 {
        if !ARENA.holds(block) {
            // SAFETY: it came from the system with this layout; the rest is the caller's contract.
            let moved = unsafe { System.realloc(block, layout, new_len) };
            if !moved.is_null() {
                return moved;
            }
        }
        let Ok(new_layout) = Layout::from_size_align(new_len, layout.align()) else {
            return std::ptr::null_mut();
        };
        // SAFETY: both blocks are live, disjoint and at least as long as what is copied; the old
        // one goes back once, with its layout.
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
        // SAFETY: both blocks are as long as what is written and read, and each goes back once,
        // with its layout.
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
