//! Registered memory that the crate owns.
//!
//! A peer, the kernel or a provider's thread may write a region at any time, so its bytes are never
//! borrowed: they are copied in and out with relaxed atomic accesses. A copy that races with a
//! writer returns old or new bytes in any mixture, and nothing worse.
//!
//! The compiler moves atomics one word at a time, slower than `memcpy`. So on x86-64 all but the
//! end of a copy is a loop in assembly, which is opaque to the compiler. The loop consists of plain
//! loads and stores, which are the processor's form of relaxed accesses.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::error::{Error, Result};
use crate::lmr::{Lmr, Privileges, RemoteRegion, check_range};
use crate::pz::Pz;

/// Alignment of a region's first byte: a page.
const ALIGN: usize = 4096;

/// Registered memory: a buffer and its registration. Clones share the memory.
///
/// The memory is deregistered and released when the last clone is dropped. Each endpoint and shared
/// receive queue to which the region was posted keeps a clone for its whole life. A window keeps
/// a clone while the window may be bound to the region. So create a region once and use it often.
#[derive(Clone)]
pub struct Region {
    pub(crate) inner: Arc<RegionInner>,
}

pub(crate) struct RegionInner {
    lmr: Lmr,
    buffer: Buffer,
    /// The number of a holder (`posted_regions::PostedRegions`) that holds this region. A post to
    /// that holder needs no look-up.
    pub(crate) kept_by: AtomicU64,
}

impl Region {
    /// Allocates and registers `len` zero bytes, aligned to a page.
    ///
    /// # Errors
    /// [`Error::Unrepresentable`] for a length of zero, [`Error::OutOfMemory`], and the errors of
    /// the registration, such as `DAT_INVALID_PARAMETER` for a remote write without local write, or
    /// `DAT_INSUFFICIENT_RESOURCES` when a device cannot pin so much (`RLIMIT_MEMLOCK`).
    pub fn create(pz: &Pz, len: usize, privileges: Privileges) -> Result<Self> {
        let buffer = Buffer::new(len)?;
        // SAFETY: the buffer is mapped, readable and writable until it is dropped, which happens
        // after the Lmr has been freed (see the drop of RegionInner), and only `Buffer` accesses
        // it, atomically.
        let lmr = unsafe { Lmr::register(pz, buffer.ptr, len, privileges) }?;
        Ok(Self {
            inner: Arc::new(RegionInner {
                lmr,
                buffer,
                kept_by: AtomicU64::new(0),
            }),
        })
    }

    /// Allocates and registers a copy of `bytes`.
    pub fn from_bytes(pz: &Pz, bytes: &[u8], privileges: Privileges) -> Result<Self> {
        let region = Self::create(pz, bytes.len(), privileges)?;
        region.write(0, bytes)?;
        Ok(region)
    }

    /// Returns true if both are clones of one region.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Copies `bytes` into the region at `offset`.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] outside the region, as for all accessors of a region.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        check_range(offset, bytes.len(), self.len())?;
        self.inner.buffer.copy_in(offset, bytes);
        Ok(())
    }

    /// Fills `bytes` from the region at `offset`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check_range(offset, bytes.len(), self.len())?;
        self.inner.buffer.copy_out(offset, bytes);
        Ok(())
    }

    /// Returns a copy of `len` bytes at `offset`.
    pub fn to_vec(&self, offset: usize, len: usize) -> Result<Vec<u8>> {
        check_range(offset, len, self.len())?;
        let mut bytes = vec![0; len];
        self.inner.buffer.copy_out(offset, &mut bytes);
        Ok(bytes)
    }

    /// Loads one byte, for a loop that waits for the peer to write it. When the new value is
    /// visible, everything written before it, at lower addresses or by earlier RDMA Writes, is
    /// visible too.
    pub fn load(&self, offset: usize) -> Result<u8> {
        check_range(offset, 1, self.len())?;
        Ok(self.inner.buffer.byte(offset).load(Ordering::Acquire))
    }

    /// Stores one byte.
    pub fn store(&self, offset: usize, byte: u8) -> Result<()> {
        check_range(offset, 1, self.len())?;
        self.inner
            .buffer
            .byte(offset)
            .store(byte, Ordering::Release);
        Ok(())
    }

    /// Returns the description of the whole region that the peer needs for RDMA operations.
    #[must_use]
    pub fn remote(&self) -> RemoteRegion {
        self.inner.lmr.remote()
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.lmr.len()
    }

    /// Returns true if the length is zero, which no region has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The registration of the memory.
    #[must_use]
    pub fn lmr(&self) -> &Lmr {
        &self.inner.lmr
    }

    /// Returns the address of the first byte. The caller is responsible for accesses through it.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.inner.buffer.ptr.as_ptr()
    }
}

impl Drop for RegionInner {
    fn drop(&mut self) {
        if let Err(error) = self.lmr.free_once() {
            // The provider may still access the memory, so the memory must not be released.
            tracing::error!(%error, "a memory region could not be deregistered; it is leaked");
            self.buffer.leak();
        }
    }
}

opaque_debug!(Region, |it| [lmr: it.inner.lmr]);

/// Page-aligned zeroed memory that is only accessed atomically.
struct Buffer {
    ptr: NonNull<u8>,
    layout: Option<Layout>,
    len: usize,
}

// SAFETY: the buffer owns its memory, and every access from any thread is atomic.
unsafe impl Send for Buffer {}
// SAFETY: as for `Send`.
unsafe impl Sync for Buffer {}

impl Buffer {
    fn new(len: usize) -> Result<Self> {
        let layout = Layout::from_size_align(len, ALIGN)
            .ok()
            .filter(|layout| layout.size() > 0)
            .ok_or(Error::Unrepresentable {
                what: "a region length",
            })?;
        // SAFETY: the layout has a size.
        let ptr =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Error::OutOfMemory { len })?;
        Ok(Self {
            ptr,
            layout: Some(layout),
            len,
        })
    }

    /// Releases ownership: the memory stays allocated for the life of the process.
    fn leak(&mut self) {
        self.layout = None;
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!(offset < self.len, "callers check the range");
        // SAFETY: the byte is within the buffer (callers check), which lives as long as `self`, and
        // all accesses of this process's Rust code to it are atomic.
        unsafe { AtomicU8::from_ptr(self.ptr.as_ptr().add(offset)) }
    }

    /// Returns the eight bytes at `offset`, which must be a multiple of eight.
    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(
            offset.is_multiple_of(8) && offset + 8 <= self.len,
            "callers check the range"
        );
        // SAFETY: as for `byte`; the base is page aligned, so the word is aligned.
        unsafe { AtomicU64::from_ptr(self.ptr.as_ptr().add(offset).cast()) }
    }

    /// Copies `bytes` to `offset`. The caller has checked that the bytes fit.
    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let moved = moved_in_blocks(bytes.len());
        if moved > 0 {
            debug_assert!(offset + moved <= self.len, "callers check the range");
            // SAFETY: the target is within the buffer (callers check), which lives as long as
            // `self`. No Rust slice covers the buffer, so source and target do not overlap. The
            // module's documentation explains why a concurrent writer is allowed.
            unsafe { move_blocks(bytes.as_ptr(), self.ptr.as_ptr().add(offset), moved) };
        }
        self.copy_words_in(offset + moved, &bytes[moved..]);
    }

    /// Fills `bytes` from `offset`. The caller has checked that the buffer holds that many bytes.
    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let moved = moved_in_blocks(bytes.len());
        if moved > 0 {
            debug_assert!(offset + moved <= self.len, "callers check the range");
            // SAFETY: as for `copy_in`, with source and target exchanged.
            unsafe { move_blocks(self.ptr.as_ptr().add(offset), bytes.as_mut_ptr(), moved) };
        }
        self.copy_words_out(offset + moved, &mut bytes[moved..]);
    }

    fn copy_words_in(&self, offset: usize, bytes: &[u8]) {
        let (head, body) = bytes.split_at(head_len(offset, bytes.len()));
        let mut at = offset;
        for byte in head {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
        let (words, tail) = body.as_chunks::<8>();
        for word in words {
            self.word(at)
                .store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            at += 8;
        }
        for byte in tail {
            self.byte(at).store(*byte, Ordering::Relaxed);
            at += 1;
        }
    }

    fn copy_words_out(&self, offset: usize, bytes: &mut [u8]) {
        let (head, body) = bytes.split_at_mut(head_len(offset, bytes.len()));
        let mut at = offset;
        for byte in head {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
        let (words, tail) = body.as_chunks_mut::<8>();
        for word in words {
            *word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
            at += 8;
        }
        for byte in tail {
            *byte = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
    }
}

/// Number of bytes that one turn of the assembly loop moves.
const BLOCK: usize = 64;

/// Returns the part of `len` bytes that the assembly loop moves.
const fn moved_in_blocks(len: usize) -> usize {
    // Miri cannot execute assembly.
    if cfg!(all(target_arch = "x86_64", not(miri))) {
        len - len % BLOCK
    } else {
        0
    }
}

/// Copies bytes in a way that is opaque to the compiler.
///
/// # Safety
///
/// `len` is a multiple of [`BLOCK`] and not zero; `len` bytes at `from` can be read, `len` bytes at
/// `to` can be written, and these ranges do not overlap.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn move_blocks(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees both ranges. Each turn moves one block, and the last turn ends
    // exactly at the end of the ranges. The instructions need no alignment and exist in every
    // processor of the architecture.
    unsafe {
        std::arch::asm!(
            "2:",
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            "add {from}, 64",
            "add {to}, 64",
            "sub {len}, 64",
            "jnz 2b",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            len = inout(reg) len => _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack)
        );
    }
}

/// Never called on this architecture: `moved_in_blocks` returns zero.
///
/// # Safety
///
/// None.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn move_blocks(_from: *const u8, _to: *mut u8, _len: usize) {}

/// Returns the number of bytes before the first aligned word.
fn head_len(offset: usize, len: usize) -> usize {
    (offset.next_multiple_of(8) - offset).min(len)
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: the memory was allocated by `alloc_zeroed` with this layout and is released
            // once.
            unsafe { dealloc(self.ptr.as_ptr(), layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies `bytes` into a new buffer and out again.
    fn check_copies(room: usize, offset: usize, bytes: &[u8]) {
        let buffer = Buffer::new(room).unwrap();
        buffer.copy_in(offset, bytes);
        let mut all = vec![0xFF; room];
        buffer.copy_out(0, &mut all);
        let end = offset + bytes.len();
        assert!(all[..offset].iter().all(|byte| *byte == 0));
        assert_eq!(all[offset..end], *bytes);
        assert!(all[end..].iter().all(|byte| *byte == 0));
        let mut part = vec![0; bytes.len()];
        buffer.copy_out(offset, &mut part);
        assert_eq!(part, bytes);
    }

    #[test]
    fn copies_at_every_alignment_and_length_keep_the_bytes_and_their_neighbours() {
        let source: Vec<u8> = (1..=40).collect();
        for offset in 0..17 {
            (0..source.len()).for_each(|len| check_copies(64, offset, &source[..len]));
        }
    }

    #[test]
    fn long_copies_keep_the_bytes_and_their_neighbours_too() {
        let source: Vec<u8> = (0..5 * BLOCK).map(|at| (at % 251) as u8 + 1).collect();
        for offset in [0, 1, 7, 8, 63] {
            for len in BLOCK - 1..=source.len() {
                check_copies(8 * BLOCK, offset, &source[..len]);
            }
        }
    }

    #[test]
    fn a_buffer_without_bytes_or_too_long_for_an_address_space_is_refused() {
        assert!(matches!(Buffer::new(0), Err(Error::Unrepresentable { .. })));
        assert!(matches!(
            Buffer::new(usize::MAX),
            Err(Error::Unrepresentable { .. })
        ));
    }
}
