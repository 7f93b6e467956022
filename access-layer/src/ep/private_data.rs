//! Private data that a consumer reads through a pointer in an event.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Bytes at a fixed address that the consumer may read and, for connection requests, write.
///
/// No Rust reference to the bytes exists after construction, because C code accesses them at any
/// time.
#[derive(Debug)]
pub(crate) struct PrivateData {
    /// Pointer from `Box::into_raw`; `None` for no bytes.
    bytes: Option<NonNull<[u8]>>,
}

// SAFETY: the value only stores the address; the consumer must synchronise accesses to the bytes.
unsafe impl Send for PrivateData {}
// SAFETY: as for Send; no method creates a reference to the bytes.
unsafe impl Sync for PrivateData {}

impl PrivateData {
    /// No bytes: null pointer, length 0.
    pub(crate) const EMPTY: Self = Self { bytes: None };

    /// Creates a copy of exactly `bytes`.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let copy = || NonNull::new(Box::into_raw(Box::<[u8]>::from(bytes)));
        Self {
            bytes: if bytes.is_empty() { None } else { copy() },
        }
    }

    /// Returns true if there are no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }

    /// Returns the address of the bytes; null for none. Valid until the drop.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.bytes
            .map_or(std::ptr::null_mut(), |bytes| bytes.as_ptr().cast())
    }

    /// Returns a copy of the current bytes, including changes by the consumer.
    pub(crate) fn copy(&self) -> Vec<u8> {
        let Some(bytes) = self.bytes else {
            return Vec::new();
        };
        let mut copy = vec![0; bytes.len()];
        // SAFETY: `bytes.len()` bytes exist until the drop, and the copy is separate memory. If a
        // consumer writes meanwhile, against the rules of the call, the copy is a mixture of old
        // and new bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr().cast::<u8>(),
                copy.as_mut_ptr(),
                bytes.len(),
            );
        }
        copy
    }

    /// Returns the length as a C count.
    pub(crate) fn len(&self) -> i32 {
        // Private data is bounded by the RNIC's limit, some hundred bytes.
        self.bytes
            .map_or(0, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX))
    }
}

impl Drop for PrivateData {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            // SAFETY: the pointer came from Box::into_raw and is removed from `self`, so this runs
            // once.
            drop(unsafe { Box::from_raw(bytes.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_and_may_be_written() {
        let data = PrivateData::new(&[1, 2, 3]);
        assert_eq!(data.len(), 3);
        // SAFETY: three bytes exist until `data` is dropped, and this thread is the only user.
        let seen = unsafe {
            data.as_ptr().cast::<u8>().write(9);
            std::slice::from_raw_parts(data.as_ptr().cast::<u8>(), 3)
        };
        assert_eq!(seen, [9, 2, 3]);
        assert_eq!(data.copy(), [9, 2, 3]);
    }

    #[test]
    fn no_bytes_are_a_null_pointer() {
        let data = PrivateData::new(&[]);
        assert!(data.as_ptr().is_null());
        assert_eq!(data.len(), 0);
        assert!(data.copy().is_empty());
    }
}
