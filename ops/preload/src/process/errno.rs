//! `errno`, and results in the form of C functions.

use std::ffi::{c_int, c_long};

use libc::ssize_t;
use rustix::io::Errno;

/// Sets the calling thread's `errno`.
pub(crate) fn set(value: c_int) {
    // SAFETY: the C library's pointer to the calling thread's errno is always valid.
    unsafe { *libc::__errno_location() = value };
}

/// Returns the calling thread's `errno`.
pub(crate) fn get() -> c_int {
    // SAFETY: the C library's pointer to the calling thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

/// Converts the result of a C function.
pub(crate) fn check(result: c_int) -> Result<c_int, Errno> {
    match result {
        -1 => Err(Errno::from_raw_os_error(get())),
        result => Ok(result),
    }
}

/// The conversion of a result to the form of a C function.
pub(crate) trait ToC<T> {
    /// Returns the value, or -1 with `errno` set.
    fn to_c(self) -> T;
}

impl ToC<ssize_t> for Result<usize, Errno> {
    fn to_c(self) -> ssize_t {
        match self {
            Ok(count) => ssize_t::try_from(count).unwrap_or(ssize_t::MAX),
            Err(error) => {
                set(error.raw_os_error());
                -1
            }
        }
    }
}

impl ToC<c_int> for Result<c_int, Errno> {
    fn to_c(self) -> c_int {
        self.unwrap_or_else(|error| {
            set(error.raw_os_error());
            -1
        })
    }
}

impl ToC<c_int> for Result<(), Errno> {
    fn to_c(self) -> c_int {
        self.map(|()| 0).to_c()
    }
}

impl ToC<c_long> for Result<c_long, Errno> {
    fn to_c(self) -> c_long {
        self.unwrap_or_else(|error| {
            set(error.raw_os_error());
            -1
        })
    }
}
