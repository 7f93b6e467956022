//! Memory of the caller.
//!
//! A pointer is null or valid for the length next to it, as the caller of each function of the
//! header guarantees; it may be misaligned. Every `SAFETY` here stands on this.

use std::ffi::{c_int, c_void};
use std::{ptr, slice};

use libc::socklen_t;

use crate::errno::{Errno, Outcome};

/// The largest number of bytes of one call, as in the kernel (`MAX_RW_COUNT`).
const BYTES_MAX: usize = 0x7fff_f000;

/// A structure that consists of numbers, without padding.
pub(crate) trait Plain: Copy {}
impl Plain for c_int {}
impl Plain for libc::timeval {}
impl Plain for libc::linger {}

/// Memory to read.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct In(*const c_void);

impl In {
    /// Reads a structure from `len` bytes.
    pub(crate) fn read<T: Plain>(self, len: socklen_t) -> Outcome<T> {
        let bytes = self.bytes(len as usize)?;
        if bytes.len() < size_of::<T>() {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: there are enough bytes, and each pattern is a value of `T`.
        Ok(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
    }

    /// The bytes, for use within the call.
    pub(crate) fn bytes<'a>(self, len: usize) -> Outcome<&'a [u8]> {
        match (self.0.is_null(), len) {
            (true, 1..) => Err(Errno(libc::EFAULT)),
            (true, 0) => Ok(&[]),
            // SAFETY: the module's rule; the bound keeps the length below `isize::MAX`.
            _ => Ok(unsafe { slice::from_raw_parts(self.0.cast(), len.min(BYTES_MAX)) }),
        }
    }
}

/// Memory to write.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Out(*mut c_void);

impl Out {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The room for received bytes, for use within the call.
    pub(crate) fn room<'a>(self, len: usize) -> Outcome<&'a mut [u8]> {
        match (self.0.is_null(), len) {
            (true, 1..) => Err(Errno(libc::EFAULT)),
            (true, 0) => Ok(&mut []),
            // SAFETY: as in `bytes`. Memory of C has a value, though an unknown one.
            _ => Ok(unsafe { slice::from_raw_parts_mut(self.0.cast(), len.min(BYTES_MAX)) }),
        }
    }

    /// Writes as many bytes as there is room for, and their number to `len`.
    pub(crate) fn write(self, bytes: &[u8], len: Len) -> Outcome {
        let room = self.room(len.get()? as usize)?;
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        // SAFETY: the module's rule; `get` has refused null.
        unsafe { len.0.write_unaligned(bytes.len() as socklen_t) };
        Ok(())
    }

    /// Writes a structure, as [`Out::write`] does.
    pub(crate) fn write_plain<T: Plain>(self, value: T, len: Len) -> Outcome {
        let bytes = ptr::from_ref(&value).cast();
        // SAFETY: the bytes of the structure, which has no padding.
        self.write(unsafe { slice::from_raw_parts(bytes, size_of::<T>()) }, len)
    }
}

/// The length of [`Out`], which receives that of the value.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Len(*mut socklen_t);

impl Len {
    pub(crate) fn get(self) -> Outcome<socklen_t> {
        if self.0.is_null() {
            return Err(Errno(libc::EFAULT));
        }
        // SAFETY: the module's rule.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// Memory of a test, to read and to write, and its length.
#[cfg(test)]
pub(crate) fn of_test<T>(value: &mut T, len: &mut socklen_t) -> (In, Out, Len) {
    let memory: *mut c_void = ptr::from_mut(value).cast();
    (In(memory), Out(memory), Len(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_cut_to_the_room_and_its_length_is_returned() {
        let (mut room, mut len) = ([0xee_u8; 4], 2);
        let (out, len_out) = (Out((&raw mut room).cast()), Len(&raw mut len));
        out.write(&[1, 2, 3], len_out).unwrap();
        assert_eq!((room, len), ([1, 2, 0xee, 0xee], 3));
    }

    #[test]
    fn null_is_refused_unless_it_has_no_length() {
        let fault = Errno(libc::EFAULT);
        assert_eq!(In(ptr::null()).bytes(1), Err(fault));
        assert_eq!(In(ptr::null()).bytes(0), Ok(&[][..]));
        assert_eq!(Out(ptr::null_mut()).room(1), Err(fault));
        let mut number: c_int = 7;
        let out = Out((&raw mut number).cast());
        assert_eq!(out.write_plain(1, Len(ptr::null_mut())), Err(fault));
        assert_eq!(
            In((&raw const number).cast()).read::<c_int>(3),
            Err(Errno(libc::EINVAL))
        );
        assert_eq!(In((&raw const number).cast()).read::<c_int>(4), Ok(7));
    }
}
