//! Return codes as text.

use super::guard::guard;
use crate::strerror::describe;
use dat_abi::DatReturn;
use std::ffi::c_char;

/// `dat_strerror` of DAT 2.0. The strings are constants. Both outputs are always written, because
/// programs print them without checking the return value.
///
/// # Safety
/// `major` and `minor` are null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_strerror(
    value: DatReturn,
    major: *mut *const c_char,
    minor: *mut *const c_char,
) -> DatReturn {
    guard("dat_strerror", || {
        let text = describe(value);
        for (place, string) in [(major, text.major), (minor, text.minor)] {
            if !place.is_null() {
                // SAFETY: the pointer is not null, so the caller guarantees that it is valid for
                // writes.
                unsafe { place.write(string.as_ptr()) };
            }
        }
        Ok(text.status)
    })
}
