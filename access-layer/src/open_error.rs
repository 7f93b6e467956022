//! The reason why an IA was not opened, for the registry library.
//!
//! `dat_ia_open` returns a number. The registry library of dat-rs asks the provider for the text of
//! the reason and reports it, because only the registry library knows where reports are written.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt::Display;
use std::ptr;

thread_local! {
    /// Reason of the last attempt of this thread.
    static REASON: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Removes the reason, when an attempt to open begins.
pub(crate) fn clear() {
    REASON.set(None);
}

/// Stores the reason for [`last`].
pub(crate) fn store(error: &impl Display) {
    let text: String = error.to_string().replace('\0', " ");
    REASON.set(CString::new(text).ok());
}

/// Returns the stored reason; see [`DatRsOpenErrorFunc`](dat_abi::DatRsOpenErrorFunc).
#[must_use]
pub fn last() -> *const c_char {
    REASON.with_borrow(|reason| reason.as_ref().map_or(ptr::null(), |text| text.as_ptr()))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn the_reason_is_that_of_the_last_attempt_of_the_thread() {
        assert!(last().is_null());
        store(&"no device: a\0b");
        // SAFETY: the string is valid until the thread opens again.
        let text = unsafe { CStr::from_ptr(last()) };
        assert_eq!(text, c"no device: a b");
        std::thread::spawn(|| assert!(last().is_null()))
            .join()
            .unwrap();
        clear();
        assert!(last().is_null());
    }
}
