//! Hints to the processor about cache lines of a data area. They change no byte.

/// Prefetches a line that will be read soon.
#[inline]
pub(in super::super) fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint, which faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Prefetches a line that will be written soon.
#[inline]
pub(in super::super) fn prefetch_to_write(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint, which changes neither memory nor registers nor flags, and
    // faults at no address.
    unsafe {
        std::arch::asm!("prefetchw [{0}]", in(reg) line, options(nostack, preserves_flags));
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Moves a written line out of this processor's own caches to a cache that it shares with others.
/// Processors without the instruction execute it as a long NOP.
#[inline]
pub(in super::super) fn demote(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a demotion is a hint, which changes neither memory nor registers nor flags.
    unsafe {
        std::arch::asm!("cldemote [{0}]", in(reg) line, options(nostack, preserves_flags));
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
