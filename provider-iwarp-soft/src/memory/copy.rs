//! Copying between staging buffers and registered memory.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::io::Errno;

use super::mapping::Backing;

/// The unit of a large placement; the units appear in ascending order.
const PIECE: usize = 4096;
/// Bytes at the end of a placement that appear after all others, so that a program that polls its
/// memory for the end of an RDMA Write finds all of it.
pub(crate) const TAIL: usize = 8;

/// A checked range of registered memory, usable while the table is open.
///
/// The range gives access by copies, by an atomic operation, and by I/O vectors for the kernel,
/// never by reference: the consumer and the peer may change the bytes at any time.
///
/// Bytes of a file may disappear with the end of the file while they are mapped. They are copied by
/// the kernel, one or two system calls for each copy, and the copy fails then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a> {
    start: *mut u8,
    len: usize,
    backing: Backing,
    table: PhantomData<&'a ()>,
}

impl<'a> Bytes<'a> {
    /// An empty range.
    pub(crate) const EMPTY: Self = Self {
        start: std::ptr::dangling_mut(),
        len: 0,
        backing: Backing::Anonymous,
        table: PhantomData,
    };

    /// # Safety
    ///
    /// `len` bytes from `start` stay mapped, with the access that was checked, for the lifetime of
    /// the result, during which the table is open.
    pub(super) unsafe fn new(start: *mut u8, len: usize, backing: Backing) -> Self {
        Self {
            start,
            len,
            backing,
            table: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// True if a copy may fail.
    pub(crate) fn may_fail(&self) -> bool {
        self.backing == Backing::File
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

    /// Copies into the front of `out`, which is at least as long. Returns false if the bytes do not
    /// exist any more.
    #[must_use]
    #[inline]
    pub(crate) fn read_into(&self, out: &mut [u8]) -> bool {
        let out = &mut out[..self.len];
        // SAFETY: the target is a slice of the same length, and staging buffers are not registered
        // memory.
        unsafe { self.read_to(out.as_mut_ptr()) }
    }

    /// Copies all bytes to `to`. Returns false if the bytes do not exist any more.
    ///
    /// # Safety
    ///
    /// `to` points to room for as many bytes, which is not registered memory.
    #[must_use]
    #[inline]
    pub(crate) unsafe fn read_to(&self, to: *mut u8) -> bool {
        if self.may_fail() {
            // SAFETY: the caller guarantees the target; the source is mapped (constructor).
            match unsafe { copy_by_kernel(to, self.start, self.len) } {
                Ok(()) => return true,
                Err(Errno::FAULT) => return false,
                Err(_) => {}
            }
        }
        // SAFETY: the source is mapped (constructor); the caller guarantees the target, which does
        // not overlap, because it is not registered memory.
        unsafe { std::ptr::copy_nonoverlapping(self.start, to, self.len) };
        true
    }

    /// Copies as many bytes as the range has from `from`, whose bytes may change meanwhile. They
    /// appear in the order of [`Self::write`]. Returns false if the range does not exist any more.
    ///
    /// # Safety
    ///
    /// `from` points to as many mapped bytes, which are not registered memory.
    #[must_use]
    #[inline]
    pub(crate) unsafe fn write_from(&self, from: *const u8) -> bool {
        if self.may_fail() {
            // SAFETY: as for the caller.
            return unsafe { self.write_checked(from) };
        }
        // SAFETY: as for the caller.
        unsafe { self.write_directly(from) };
        true
    }

    /// # Safety
    ///
    /// As for [`Self::write_from`].
    unsafe fn write_directly(&self, from: *const u8) {
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

    /// Copies as many bytes as the range has from `from`, as [`Self::write_from`] does, and detects
    /// memory that cannot be written, if the kernel permits this process to copy its own memory by
    /// `process_vm_readv`. Returns false if the memory cannot be written.
    ///
    /// # Safety
    ///
    /// As for [`Self::write_from`].
    pub(crate) unsafe fn write_checked(&self, from: *const u8) -> bool {
        let body = self.len.saturating_sub(TAIL);
        for (at, len) in [(0, body), (body, self.len - body)] {
            // SAFETY: the caller guarantees the source; both ranges are within this one.
            match unsafe { copy_by_kernel(self.start.add(at), from.add(at), len) } {
                Ok(()) => {}
                Err(Errno::FAULT) => return false,
                Err(_) => {
                    // SAFETY: as for the caller.
                    unsafe { self.write_directly(from) };
                    return true;
                }
            }
        }
        true
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
    /// their address is not a multiple of eight, or if they do not exist any more.
    pub(crate) fn update(&self, change: impl Fn(u64) -> u64) -> Option<u64> {
        let word = self.start.cast::<AtomicU64>();
        if self.len != size_of::<u64>() || !word.is_aligned() {
            return None;
        }
        if self.may_fail() && !self.read_into(&mut [0; size_of::<u64>()]) {
            return None;
        }
        // SAFETY: eight mapped, writable, aligned bytes (constructor and the check above). The
        // consumer uses atomic operations on memory that it registers for atomics.
        let word = unsafe { &*word };
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)))
            .ok()
    }

    /// Copies `bytes`, which is not longer than the range, to its front. Returns false if the range
    /// does not exist any more.
    ///
    /// A program that polls memory for an RDMA Write sees the bytes appear in ascending order in
    /// units of 4 KiB, and the last eight bytes after all others, including those that the kernel
    /// has placed before. `memcpy` alone promises no order.
    #[must_use]
    #[inline]
    pub(crate) fn write(&self, bytes: &[u8]) -> bool {
        let front = self.part(0, bytes.len());
        // SAFETY: `bytes` has at least as many bytes as `front`, and staging buffers are not
        // registered memory.
        unsafe { front.write_from(bytes.as_ptr()) }
    }
}

/// Copies memory of this process by the kernel, which reports `EFAULT` for memory that cannot be
/// accessed.
///
/// # Safety
///
/// `from` points to `len` mapped bytes. No reference to the target exists.
unsafe fn copy_by_kernel(to: *mut u8, from: *const u8, len: usize) -> Result<(), Errno> {
    if len == 0 {
        return Ok(());
    }
    let iovec = |base: *mut u8| libc::iovec {
        iov_base: base.cast(),
        iov_len: len,
    };
    let (local, remote) = (iovec(to), iovec(from.cast_mut()));
    // The number of the calling thread, because a main thread that has ended has no memory.
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    // SAFETY: the vectors are of this frame. The kernel checks the target and the source; the
    // caller guarantees that the target may be written.
    let copied =
        unsafe { libc::process_vm_readv(thread, &raw const local, 1, &raw const remote, 1, 0) };
    match usize::try_from(copied) {
        Ok(copied) if copied == len => Ok(()),
        Ok(_) => Err(Errno::FAULT),
        Err(_) => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
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
