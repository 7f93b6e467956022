//! Copying between staging buffers and registered memory.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Piece of a large placement; pieces appear in ascending order.
const PIECE: usize = 4096;
/// Bytes at the end of a placement that appear after all others.
const TAIL: usize = 8;

/// A checked range of registered memory, usable while the table is open.
///
/// It hands out copies and checksums, never a reference: the consumer and the peer may change the
/// bytes at any time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    start: *mut u8,
    len: usize,
    table: PhantomData<&'a ()>,
}

impl<'a> Bytes<'a> {
    /// No bytes at all.
    pub(crate) const EMPTY: Self = Self {
        start: std::ptr::dangling_mut(),
        len: 0,
        table: PhantomData,
    };

    /// # Safety
    ///
    /// `len` bytes from `start` stay mapped, with the access that was checked, while the table that
    /// the lifetime stands for is open.
    pub(super) unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self {
            start,
            len,
            table: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The part from `skip` on, at most `len_max` bytes.
    pub(crate) fn part(&self, skip: usize, len_max: usize) -> Self {
        let skip = skip.min(self.len);
        Self {
            start: self.start.wrapping_add(skip),
            len: (self.len - skip).min(len_max),
            ..*self
        }
    }

    /// For a send that the kernel makes before the table closes.
    pub(crate) fn as_io_slice(&self) -> std::io::IoSlice<'a> {
        // SAFETY: mapped and readable while the table is open (constructor), which is what `'a`
        // says. Only the kernel looks at the bytes; a consumer that changes them meanwhile changes
        // what is sent, nothing else.
        std::io::IoSlice::new(unsafe { std::slice::from_raw_parts(self.start, self.len) })
    }

    /// For a receive that the kernel makes before the table closes.
    ///
    /// It is made without a reference: the segments of one receive may overlap, and the consumer
    /// may look at them meanwhile.
    ///
    /// # Safety
    ///
    /// Nobody takes it for a slice; the kernel alone writes there.
    pub(crate) unsafe fn as_io_slice_mut(&self) -> std::io::IoSliceMut<'a> {
        let place = libc::iovec {
            iov_base: self.start.cast(),
            iov_len: self.len,
        };
        // SAFETY: an `IoSliceMut` has the layout of an `iovec` (std). The memory is mapped and
        // writable while the table is open (constructor), which is what `'a` says.
        unsafe { std::mem::transmute::<libc::iovec, std::io::IoSliceMut<'a>>(place) }
    }

    /// Copies into the front of `out`, which is at least as long.
    pub(crate) fn read_into(&self, out: &mut [u8]) {
        let out = &mut out[..self.len];
        // SAFETY: the source is mapped (constructor), the target is a slice of the same length, and
        // staging buffers are not registered memory, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.start, out.as_mut_ptr(), self.len) };
    }

    /// Copies all bytes to `to`.
    ///
    /// # Safety
    ///
    /// There is room for as many bytes at `to`, which is no registered memory.
    pub(crate) unsafe fn read_to(&self, to: *mut u8) {
        // SAFETY: the source is mapped (constructor); the target is the caller's word.
        unsafe { std::ptr::copy_nonoverlapping(self.start, to, self.len) };
    }

    /// Copies as many bytes as the range has from `from`, which may be changed meanwhile. They
    /// appear in the order of [`Self::write`].
    ///
    /// # Safety
    ///
    /// As many bytes are mapped at `from`, which is no registered memory.
    pub(crate) unsafe fn write_from(&self, from: *const u8) {
        let body = self.len.saturating_sub(TAIL);
        let mut at = 0;
        while at < body {
            let piece = (body - at).min(PIECE);
            // SAFETY: the target is mapped and writable (constructor), at + piece is within it; the
            // source is the caller's word.
            unsafe { std::ptr::copy_nonoverlapping(from.add(at), self.start.add(at), piece) };
            fence(Ordering::Release);
            at += piece;
        }
        let mut tail = [0; TAIL];
        let len = self.len - body;
        // SAFETY: as above; `tail` has room for TAIL bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.add(body), tail.as_mut_ptr(), len) };
        // SAFETY: the last `len` bytes of the range.
        unsafe { write_late(self.start.add(body), &tail[..len]) };
    }

    /// The address, for a peer that reads the range by itself.
    pub(crate) fn addr(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    /// The range as a place for the kernel to write to, before the table closes.
    pub(crate) fn as_place(&self) -> (*mut u8, usize) {
        (self.start, self.len)
    }

    /// Replaces the eight bytes of the range atomically and returns what they were; `None` when
    /// they do not lie at a multiple of eight.
    pub(crate) fn update(&self, change: impl Fn(u64) -> u64) -> Option<u64> {
        let word = self.start.cast::<AtomicU64>();
        if self.len != size_of::<u64>() || !word.is_aligned() {
            return None;
        }
        // SAFETY: eight mapped, writable, aligned bytes (constructor and the check above). The
        // consumer uses atomic operations on what it lends for atomics.
        let word = unsafe { &*word };
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)))
            .ok()
    }

    /// Copies `bytes`, which is not longer than the range, to its front.
    ///
    /// A program that polls memory for an RDMA Write sees the bytes appear in ascending order by
    /// pieces of 4 KiB, and the last eight bytes after all others, those included that the kernel
    /// has placed before. `memcpy` alone promises no order.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.len)];
        let body = bytes.len().saturating_sub(TAIL);
        let mut at = 0;
        while at < body {
            let piece = (body - at).min(PIECE);
            // SAFETY: the target is mapped and writable (constructor), at + piece is within both,
            // and staging buffers are not registered memory.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr().add(at), self.start.add(at), piece);
            }
            fence(Ordering::Release);
            at += piece;
        }
        // SAFETY: as above.
        unsafe { write_late(self.start.add(body), &bytes[body..]) };
    }
}

/// Writes bytes that appear after all that was written before them.
///
/// # Safety
///
/// There is room for them at `place`, which is mapped and writable.
pub(crate) unsafe fn write_late(place: *mut u8, bytes: &[u8]) {
    fence(Ordering::Release);
    for (at, byte) in bytes.iter().enumerate() {
        // SAFETY: within the room (caller); volatile, so that the compiler keeps the order.
        unsafe { place.add(at).write_volatile(*byte) };
    }
}
