//! The initialization, which the loader runs after it has loaded this library into a program.
//!
//! The initialization does little, because programs without sockets run it as well.

use std::ffi::{CStr, c_char, c_int};

use crate::lifecycle::{exiting, forking};
use crate::local::spinning;
use crate::process::{self, last_thread};
use crate::setup::inheritance;
use crate::sharing::exposing;
use crate::socket::relay;

/// Run before `main`, with the arguments of `main`.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn(c_int, *const *const c_char) = begin;

extern "C" fn begin(count: c_int, words: *const *const c_char) {
    let called = (count > 0 && !words.is_null()).then(|| {
        // SAFETY: the loader passes `count` terminated strings, which the program has not
        // overwritten yet.
        unsafe { CStr::from_ptr(*words) }
    });
    host::clock::find();
    last_thread::begin();
    process::begin(called, forking::register);
    exiting::begin();
    spinning::begin();
    relay::on_bytes(exposing::on_bytes);
    inheritance::adopt_inherited();
}
