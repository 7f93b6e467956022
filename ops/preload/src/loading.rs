//! What the loader runs when it has put this library into a program.
//!
//! Little is done here, because it is done in programs without sockets as well.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use crate::listening::exec;
use crate::{exiting, spinning};

/// Run before `main`, with what `main` gets.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn(c_int, *const *const c_char) = begin;

/// The name that the program was started by. Programs that tell `ps` what they do write over the
/// place where it was.
static CALLED: OnceLock<Box<CStr>> = OnceLock::new();

extern "C" fn begin(count: c_int, words: *const *const c_char) {
    if count > 0 && !words.is_null() {
        // SAFETY: the loader passes so many words, each of them terminated, and nobody has written
        // over them yet.
        let called = unsafe { CStr::from_ptr(*words) };
        let _ = CALLED.set(called.into());
    }
    exiting::begin();
    spinning::begin();
    exec::adopt_inherited();
}

/// The name that the program was started by, with directories or without; empty where it has none.
pub(crate) fn called() -> String {
    let called = CALLED.get().map(|called| called.to_string_lossy());
    called.unwrap_or_default().into_owned()
}
