//! Lists of buffers, from C.

use std::ffi::c_int;
use std::io::{IoSlice, IoSliceMut};

use libc::iovec;
use rustix::io::Errno;

/// `UIO_MAXIOV`.
const PARTS_MAX: usize = 1024;
/// Lists up to this long need no allocation; nearly all are.
const INLINE: usize = 16;
const NO_PART: iovec = iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

/// A copy of a caller's list, which may be shortened from its front.
pub(crate) struct Vector {
    inline: [iovec; INLINE],
    long: Vec<iovec>,
    count: usize,
    len: usize,
    has_null: bool,
}

impl Vector {
    /// Copies a list, with the errors that the kernel has for it.
    ///
    /// # Safety
    /// `parts` is null or points to `count` parts, each null or as long as it says.
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
        // SAFETY: the caller answers for the list.
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

    /// All its bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns true if a part that is not empty is null. The kernel reports that when it copies
    /// bytes.
    pub(crate) fn has_null(&self) -> bool {
        self.has_null
    }

    /// Slices must not be null, not even empty ones.
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
        // SAFETY: `IoSliceMut` has the layout of `iovec`; no part is null, and the caller answers
        // for what they point to.
        unsafe { &mut *(std::ptr::from_mut(parts) as *mut [IoSliceMut<'_>]) }
    }

    /// Returns the parts as sources of a send. `EFAULT`: a part is null.
    pub(crate) fn as_sources(&mut self) -> Result<&mut [IoSlice<'_>], Errno> {
        if self.has_null {
            return Err(Errno::FAULT);
        }
        let parts = self.parts();
        // SAFETY: `IoSlice` has the layout of `iovec`; no part is null, and the caller of `copy`
        // answered for what they point to.
        Ok(unsafe { &mut *(std::ptr::from_mut(parts) as *mut [IoSlice<'_>]) })
    }
}
