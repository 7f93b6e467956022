//! Copying between staging buffers and registered memory.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The unit of a large placement; the units appear in ascending order.
const PIECE: usize = 4096;
/// Bytes at the end of a placement that appear after all others, so that a program that polls its
/// memory for the end of an RDMA Write finds all of it.
pub(crate) const TAIL: usize = 8;

/// A checked range of registered memory, usable while the table is open.
///
/// The range gives access by copies, by an atomic operation, and by I/O vectors for the kernel,
/// never by reference: the consumer and the peer may change the bytes at any time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    start: *mut u8,
    len: usize,
    table: PhantomData<&'a ()>,
}

impl<'a> Bytes<'a> {
    /// An empty range.
    pub(crate) const EMPTY: Self = Self {
        start: std::ptr::dangling_mut(),
        len: 0,
        table: PhantomData,
    };

    /// # Safety
    ///
    /// `len` bytes from `start` stay mapped, with the access that was checked, for the lifetime of
    /// the result, during which the table is open.
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

    /// Returns the part from `skip` on, at most `len_max` bytes.
    pub(crate) fn part(&self, skip: usize, len_max: usize) -> Self {
        let skip = skip.min(self.len);
        Self {
            start: self.start.wrapping_add(skip),
            len: (self.len - skip).min(len_max),
            ..*self
        }
    }

    /// Borrows the range for a send that the kernel makes before the table closes.
    pub(crate) fn as_io_slice(&self) -> std::io::IoSlice<'a> {
        // SAFETY: mapped and readable while the table is open (constructor), which `'a` expresses.
        // Only the kernel reads the bytes; a consumer that changes them meanwhile changes the sent
        // data and nothing else.
        std::io::IoSlice::new(unsafe { std::slice::from_raw_parts(self.start, self.len) })
    }

    /// Borrows the range for a receive that the kernel makes before the table closes.
    ///
    /// The slice is not made from a reference: the segments of one receive may overlap, and the
    /// consumer may read them meanwhile.
    ///
    /// # Safety
    ///
    /// The caller passes the result to the kernel only, and never uses it as a slice.
    pub(crate) unsafe fn as_io_slice_mut(&self) -> std::io::IoSliceMut<'a> {
        let place = libc::iovec {
            iov_base: self.start.cast(),
            iov_len: self.len,
        };
        // SAFETY: an `IoSliceMut` has the layout of an `iovec` (std). The memory is mapped and
        // writable while the table is open (constructor), which `'a` expresses.
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
    /// `to` points to room for as many bytes, which is not registered memory.
    pub(crate) unsafe fn read_to(&self, to: *mut u8) {
        // SAFETY: the source is mapped (constructor); the caller guarantees the target.
        unsafe { std::ptr::copy_nonoverlapping(self.start, to, self.len) };
    }

    /// Copies as many bytes as the range has from `from`, whose bytes may change meanwhile. They
    /// appear in the order of [`Self::write`].
    ///
    /// # Safety
    ///
    /// `from` points to as many mapped bytes, which are not registered memory.
    pub(crate) unsafe fn write_from(&self, from: *const u8) {
        let body = self.len.saturating_sub(TAIL);
        let mut at = 0;
        while at < body {
            let piece = (body - at).min(PIECE);
            // SAFETY: the target is mapped and writable (constructor), and at + piece is within it;
            // the caller guarantees the source.
            unsafe { std::ptr::copy_nonoverlapping(from.add(at), self.start.add(at), piece) };
            fence(Ordering::Release);
            at += piece;
        }
        let mut tail = [0; TAIL];
        let len = self.len - body;
        // SAFETY: the target has `len` more bytes; `tail` has room for TAIL bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.add(body), tail.as_mut_ptr(), len) };
        // SAFETY: the last `len` bytes of the range.
        unsafe { write_late(self.start.add(body), &tail[..len]) };
    }

    /// Returns the address, for a peer that reads the range directly.
    pub(crate) fn addr(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    /// Returns the range as a target for the kernel, which writes before the table closes.
    pub(crate) fn as_place(&self) -> (*mut u8, usize) {
        (self.start, self.len)
    }

    /// Replaces the eight bytes of the range atomically and returns their old value; `None` if
    /// their address is not a multiple of eight.
    pub(crate) fn update(&self, change: impl Fn(u64) -> u64) -> Option<u64> {
        let word = self.start.cast::<AtomicU64>();
        if self.len != size_of::<u64>() || !word.is_aligned() {
            return None;
        }
        // SAFETY: eight mapped, writable, aligned bytes (constructor and the check above). The
        // consumer uses atomic operations on memory that it registers for atomics.
        let word = unsafe { &*word };
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)))
            .ok()
    }

    /// Copies `bytes`, which is not longer than the range, to its front.
    ///
    /// A program that polls memory for an RDMA Write sees the bytes appear in ascending order in
    /// units of 4 KiB, and the last eight bytes after all others, including those that the kernel
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
        // SAFETY: the range has at least as many mapped and writable bytes from `body` on.
        unsafe { write_late(self.start.add(body), &bytes[body..]) };
    }
}

/// Writes bytes that appear after all bytes that were written before them.
///
/// # Safety
///
/// `place` points to room for the bytes, which is mapped and writable.
pub(crate) unsafe fn write_late(place: *mut u8, bytes: &[u8]) {
    fence(Ordering::Release);
    for (at, byte) in bytes.iter().enumerate() {
        // SAFETY: within the room (caller); volatile, so that the compiler keeps the order.
        unsafe { place.add(at).write_volatile(*byte) };
    }
}
