//! Settings for the runtimes of sanitizers.
//!
//! The shared runtime of AddressSanitizer refuses to start if another library precedes it in the
//! loader's list, because calls of functions that it replaces might not reach it. The hooks of this
//! library call the next definition, which is that of the runtime, and this library replaces no
//! function that allocates memory.
//!
//! The runtime asks for its settings before it checks the list. A program that defines this
//! function itself, or sets the variable `ASAN_OPTIONS`, has precedence.

use std::ffi::c_char;

/// Returns settings of AddressSanitizer.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    c"verify_asan_link_order=0".as_ptr()
}
