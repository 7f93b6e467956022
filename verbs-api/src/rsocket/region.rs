//! Registered memory.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::fault::Fault;
use crate::memory;

use super::flow::Part;
use super::wire::Range;

/// Memory of this library that is registered until the drop. The peer may write it at any time, so
/// that no reference to it exists.
pub(super) struct Region {
    base: NonNull<u8>,
    layout: Layout,
    mr: *mut ibv_mr,
}

impl Region {
    /// Allocates and registers `len` bytes of zeros.
    pub(super) fn new(
        pd: *mut ibv_pd,
        len: usize,
        access: ibv_access_flags,
    ) -> Result<Self, Fault> {
        let layout = Layout::from_size_align(len.max(1), 64).map_err(|_| Errno::INVAL)?;
        // SAFETY: the layout has a size.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::NOMEM)?;
        let mut region = Self {
            base,
            layout,
            mr: std::ptr::null_mut(),
        };
        let start = base.as_ptr();
        region.mr = memory::register(pd, start.cast(), len, start.addr() as u64, access)?;
        Ok(region)
    }

    /// The memory from `at` on, for this process or the peer.
    pub(super) fn range(&self, at: usize, len: u32) -> Range {
        // SAFETY: the region is alive.
        let key = unsafe { (*self.mr).rkey };
        Range {
            addr: (self.base.as_ptr().addr() + at) as u64,
            key,
            len,
        }
    }

    /// A segment of a request.
    pub(super) fn segment(&self, part: Part) -> ibv_sge {
        // SAFETY: the region is alive.
        let lkey = unsafe { (*self.mr).lkey };
        ibv_sge {
            addr: (self.base.as_ptr().addr() + part.at as usize) as u64,
            length: part.len,
            lkey,
        }
    }

    /// Copies from the memory from `at` on. The peer may write it meanwhile.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes.
    pub(super) unsafe fn read(&self, at: usize, to: *mut u8, len: usize) {
        assert!(at + len <= self.layout.size(), "outside of the region");
        // SAFETY: the place is within the region (checked), and the caller guarantees `to`.
        unsafe { self.base.as_ptr().add(at).copy_to_nonoverlapping(to, len) };
    }

    /// Copies to the memory from `at` on.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes.
    pub(super) unsafe fn write(&self, at: usize, from: *const u8, len: usize) {
        assert!(at + len <= self.layout.size(), "outside of the region");
        // SAFETY: the place is within the region (checked), and the caller guarantees `from`.
        unsafe {
            self.base
                .as_ptr()
                .add(at)
                .copy_from_nonoverlapping(from, len)
        };
    }

    /// Reads a number that the peer may write meanwhile.
    pub(super) fn number(&self, at: usize) -> u32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.layout.size());
        // SAFETY: the place is within the region and aligned (checked).
        unsafe { self.base.as_ptr().add(at).cast::<u32>().read_volatile() }
    }

    /// Stores a number that the peer may read or write meanwhile.
    pub(super) fn set_number(&self, at: usize, value: u32) {
        assert!(at.is_multiple_of(4) && at + 4 <= self.layout.size());
        // SAFETY: the place is within the region and aligned (checked).
        unsafe {
            self.base
                .as_ptr()
                .add(at)
                .cast::<u32>()
                .write_volatile(value)
        };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `new` allocated the memory with this layout and registered it, if the region has
        // a key; no request uses it any more, because the queue pair was destroyed first.
        unsafe {
            if !self.mr.is_null() {
                memory::ibv_dereg_mr(self.mr);
            }
            dealloc(self.base.as_ptr(), self.layout);
        }
    }
}
