//! The file of a loaded library.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Returns the path of the library or program that contains `address`, as the loader names it.
/// Libraries of this project look for each other in the same directory.
#[must_use]
pub fn file_of(address: usize) -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the loader compares the address with those of its objects, and fills the record.
    let is_known = unsafe { libc::dladdr(address as *const _, &raw mut info) } != 0;
    if !is_known || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the string is the loader's name of an object that contains code in use, so the object
    // stays loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(OsStr::from_bytes(name.to_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_function_is_found_and_that_of_other_memory_is_not() {
        let own = file_of(file_of as fn(usize) -> _ as usize).unwrap();
        assert_eq!(
            own.canonicalize().unwrap(),
            std::env::current_exe().unwrap()
        );
        assert_eq!(file_of(&raw const *Box::new(0) as usize), None);
    }
}
