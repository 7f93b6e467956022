//! Lists of buffers, `struct iovec` in C.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};

use libc::iovec;
use rustix::io::Errno;

/// The most parts that the kernel accepts (`UIO_MAXIOV`).
pub(crate) const PARTS_MAX: usize = 1024;
/// The longest list that needs no allocation.
const INLINE: usize = 16;
const NO_PART: iovec = iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// A copy of a caller's list, because a call shortens the list as it makes progress.
pub(crate) struct Vector {
    inline: [iovec; INLINE],
    long: Vec<iovec>,
    count: usize,
    len: usize,
    has_null: bool,
}

impl Vector {
    /// Copies a list. Fails with the kernel's errors for an invalid list.
    ///
    /// # Safety
    /// `parts` is null or points to `count` parts. Each part is null or valid for its length.
    pub(crate) unsafe fn copy(parts: *const iovec, count: c_int) -> Result<Self, Errno> {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        if count > PARTS_MAX {
            return Err(Errno::INVAL);
        }
        let mut vector = Self {
            inline: [NO_PART; INLINE],
            long: Vec::new(),
            count,
            len: 0,
            has_null: false,
        };
        if count == 0 {
            return Ok(vector);
        }
        if parts.is_null() {
            return Err(Errno::FAULT);
        }
        // SAFETY: the caller guarantees that the list has `count` parts.
        let given = unsafe { std::slice::from_raw_parts(parts, count) };
        let mut total = 0_usize;
        for part in given {
            vector.has_null |= part.iov_base.is_null() && part.iov_len > 0;
            total = total.checked_add(part.iov_len).ok_or(Errno::INVAL)?;
        }
        if isize::try_from(total).is_err() {
            return Err(Errno::INVAL);
        }
        vector.len = total;
        match vector.inline.get_mut(..count) {
            Some(inline) => inline.copy_from_slice(given),
            None => vector.long.extend_from_slice(given),
        }
        vector.replace_null();
        Ok(vector)
    }

    /// Returns the number of bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if a part with a length is null. The caller must report that as an error when
    /// it copies bytes, as the kernel does.
    pub(crate) fn has_null(&self) -> bool {
        self.has_null
    }

    /// Replaces null pointers, because even an empty slice must not be null.
    fn replace_null(&mut self) {
        for part in self.parts() {
            if part.iov_base.is_null() {
                part.iov_base = std::ptr::dangling_mut::<u8>().cast();
            }
        }
    }

    fn parts(&mut self) -> &mut [iovec] {
        if self.long.is_empty() {
            &mut self.inline[..self.count]
        } else {
            &mut self.long
        }
    }

    /// Returns the parts as targets of a receive.
    ///
    /// # Safety
    /// The parts may be written to, and none of them [is null](Self::has_null).
    pub(crate) unsafe fn as_targets(&mut self) -> &mut [IoSliceMut<'_>] {
        let parts = self.parts();
        // SAFETY: `IoSliceMut` has the layout of `iovec`. No part is null, and the caller
        // guarantees that the parts may be written to.
        unsafe { &mut *(std::ptr::from_mut(parts) as *mut [IoSliceMut<'_>]) }
    }

    /// Returns the parts as sources of a send. `EFAULT`: a part is null.
    pub(crate) fn as_sources(&mut self) -> Result<&mut [IoSlice<'_>], Errno> {
        if self.has_null {
            return Err(Errno::FAULT);
        }
        let parts = self.parts();
        // SAFETY: `IoSlice` has the layout of `iovec`. No part is null, and the caller of `copy`
        // has guaranteed that the parts are valid for their lengths.
        Ok(unsafe { &mut *(std::ptr::from_mut(parts) as *mut [IoSlice<'_>]) })
    }
}
