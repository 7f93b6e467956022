//! The allocator of the shared libraries.
//!
//! A library must not end the process that loads it, but Rust ends the process when an allocation
//! fails. So each library has its own arena, from which it allocates when the system refuses. The
//! call that met the refusal finishes. Calls that would create a new object check [`is_short`]
//! first and return `DAT_INSUFFICIENT_RESOURCES`, or leave a socket to TCP. Until the system
//! refuses memory, the arena is address space without pages behind it.
//!
//! Two allocations of the C library end the process as well, and both happen when a thread first
//! calls a library: for a destructor of a thread-local value ([`thread_ends`]), and for the
//! thread-local values of a library that was loaded with `dlopen`. The second is avoided by one
//! variable with a TLS descriptor, for which the loader places the values of the whole library in
//! the memory that each thread has from its creation, while there is room (512 bytes by default).
//!
//! The child of a fork has no thread that would release the arena, so a handler of the fork does.
//!
//! Each library declares its allocator once, which includes all three:
//!
//! ```
//! host::allocate_with_reserve!();
//! # fn main() { assert!(!host::reserve::is_short()); }
//! ```

mod arena;
#[doc(hidden)]
pub mod thread_ends;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

use arena::Arena;

/// Length of the arena in bytes: enough for the calls in progress, which need a few staging buffers
/// of 256 KiB and many small objects.
const ARENA_LEN: usize = 2 << 20;
/// Length, in bytes, from which a block is long. The users of long blocks handle their absence.
const LONG_LEN: usize = 128 * 1024;
/// Length, in bytes, of the allocation that must succeed before the system counts as recovered.
const PROBE_LEN: usize = 64 * 1024;

static ARENA: Arena<ARENA_LEN> = Arena::new();

/// The system's allocator with an arena as reserve.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reserve;

/// Makes [`Reserve`] the allocator of a shared library, and lets the library run on threads for
/// which the system has no memory.
#[macro_export]
macro_rules! allocate_with_reserve {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::reserve::Reserve = $crate::reserve::Reserve;

        // The priority installs the handlers before all others of the library.
        #[used]
        #[unsafe(link_section = ".init_array.00101")]
        static PREPARE_RESERVE: extern "C" fn() = $crate::reserve::prepare;

        #[cfg(target_arch = "x86_64")]
        std::arch::global_asm!(
            ".globl __cxa_thread_atexit_impl",
            ".hidden __cxa_thread_atexit_impl",
            "__cxa_thread_atexit_impl: jmp {register}",
            // Never called. The reference makes the loader resolve the descriptor.
            "lea dat_rs_static_tls@tlsdesc(%rip), %rax",
            "call *dat_rs_static_tls@tlscall(%rax)",
            ".section .tbss, \"awT\", @nobits",
            "dat_rs_static_tls: .zero 1",
            ".text",
            register = sym $crate::reserve::thread_ends::register,
            options(att_syntax),
        );

        // On this architecture all thread-local values have TLS descriptors.
        #[cfg(target_arch = "aarch64")]
        std::arch::global_asm!(
            ".globl __cxa_thread_atexit_impl",
            ".hidden __cxa_thread_atexit_impl",
            "__cxa_thread_atexit_impl: b {register}",
            register = sym $crate::reserve::thread_ends::register,
        );
    };
}

/// Prepares for forks, when the library is loaded.
#[doc(hidden)]
pub extern "C" fn prepare() {
    extern "C" fn in_child() {
        ARENA.on_fork();
    }
    crate::forks::around(None, None, Some(in_child));
}

/// Returns true while the system refuses memory and more than half of the arena is allocated. Then
/// work that can wait must wait. Costs one atomic load unless half of the arena is allocated.
#[must_use]
pub fn is_low() -> bool {
    ARENA.allocated() > ARENA_LEN / 2 && is_short()
}

/// Allocates from the arena. Long blocks get at most half of it, because their users can do without
/// them, and the users of other blocks cannot.
#[cold]
fn from_arena(layout: Layout) -> *mut u8 {
    if layout.size() >= LONG_LEN && ARENA.allocated() + layout.size() > ARENA_LEN / 2 {
        return std::ptr::null_mut();
    }
    ARENA.take(layout)
}

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
            from_arena(layout)
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
        let block = from_arena(layout);
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
