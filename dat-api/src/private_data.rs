//! Private data of a connection request and of the answer to it.

use std::ffi::c_void;

use dat_abi::{DatCount, DatPvoid};

use crate::error::{Result, to_count};

/// Returns private data as length and pointer; the pointer is null if there is no data.
pub(crate) fn private_data_parts(private_data: &[u8]) -> Result<(DatCount, *const c_void)> {
    let len = to_count(private_data.len(), "private data")?;
    let data = if len == 0 {
        std::ptr::null()
    } else {
        private_data.as_ptr().cast()
    };
    Ok((len, data))
}

/// Copies private data that a library returned.
///
/// # Safety
///
/// `data` is null or readable for `size` bytes.
pub(crate) unsafe fn copy_private_data(data: DatPvoid, size: DatCount) -> Vec<u8> {
    match usize::try_from(size) {
        Ok(size) if size > 0 && !data.is_null() => {
            // SAFETY: the caller guarantees the bytes; they are only read, and copied at once.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }.to_vec()
        }
        _ => Vec::new(),
    }
}
