//! Private data that a consumer reads through a pointer in an event.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Bytes at a fixed place that the consumer may read and, for connection requests, write.
///
/// No Rust reference to the bytes exists after construction: C code works on them without asking.
#[derive(Debug)]
pub(crate) struct PrivateData {
    /// From `Box::into_raw`; `None` for no bytes.
    bytes: Option<NonNull<[u8]>>,
}

// SAFETY: the value only stores the address; the bytes behind it are C's to synchronise.
unsafe impl Send for PrivateData {}
// SAFETY: as above; no method reads the bytes.
unsafe impl Sync for PrivateData {}

impl PrivateData {
    /// No bytes: null pointer, length 0.
    pub(crate) const EMPTY: Self = Self { bytes: None };

    /// A copy of `bytes`, of exactly that length.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let copy = || NonNull::new(Box::into_raw(Box::<[u8]>::from(bytes)));
        Self {
            bytes: if bytes.is_empty() { None } else { copy() },
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_none()
    }

    /// Where they are; null for none. Valid until the drop.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.bytes
            .map_or(std::ptr::null_mut(), |bytes| bytes.as_ptr().cast())
    }

    /// The bytes as they are now, whatever the consumer has made of them.
    pub(crate) fn copy(&self) -> Vec<u8> {
        let Some(bytes) = self.bytes else {
            return Vec::new();
        };
        let mut copy = vec![0; bytes.len()];
        // SAFETY: as many bytes are there until the drop, and the copy is memory of its own. A
        // consumer that writes meanwhile, against the rules of the call, gets parts of both.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr().cast::<u8>(),
                copy.as_mut_ptr(),
                bytes.len(),
            );
        }
        copy
    }

    /// How many they are, as C counts.
    pub(crate) fn len(&self) -> i32 {
        // Private data is bounded by the RNIC's limit, some hundred bytes.
        self.bytes
            .map_or(0, |bytes| i32::try_from(bytes.len()).unwrap_or(i32::MAX))
    }
}

impl Drop for PrivateData {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            // SAFETY: the pointer came from Box::into_raw and is taken out, so this runs once.
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
        // SAFETY: three bytes are there until `data` is dropped, and this thread is the only user.
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
