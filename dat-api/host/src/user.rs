//! Names of users.

use std::ffi::CStr;
use std::ptr;

/// The longest entry of a user, in bytes. A real one has a few hundred.
const ENTRY_MAX: usize = 16 << 10;

/// Returns the name of the user with this number, or `None` if the user has none.
#[must_use]
pub fn name_of(user: u32) -> Option<String> {
    // SAFETY: an all-zero `passwd` is a valid value of this C structure.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = ptr::null_mut();
    let mut text = vec![0; ENTRY_MAX];
    // SAFETY: the pointers are to local variables, and the text has the length that is passed.
    let done = unsafe {
        libc::getpwuid_r(
            user,
            &raw mut entry,
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    if done != 0 || found.is_null() || entry.pw_name.is_null() {
        return None;
    }
    // SAFETY: the C library has set the pointer to a C string within `text`.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    name.to_str().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_an_unassigned_number_has_none() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(4_294_000_000), None);
    }
}
