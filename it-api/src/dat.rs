//! The calls of the registry library.

use std::sync::atomic::{AtomicBool, Ordering};

use dat_api::Library;
use host::log::{Destination, Outlet};

use crate::status::{Outcome, RESOURCES};

/// The registry library: the one next to this library, unless the environment names another.
pub(crate) fn library() -> Outcome<&'static Library> {
    // No `Once`, which the child of a fork could find half done, and wait for ever. A second thread
    // that does the same changes nothing.
    static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
    if !HAS_BEGUN.load(Ordering::Acquire) {
        let destination = Destination::Descriptor(libc::STDERR_FILENO);
        host::log::begin(Outlet::new("libitapi", destination), None);
        if let Some(path) = neighbour() {
            Library::prefer(path);
        }
        HAS_BEGUN.store(true, Ordering::Release);
    }
    Library::get().map_err(|error| {
        tracing::error!(%error, "no registry library");
        RESOURCES
    })
}

/// The path of `libdat2.so.2` in the directory of this library.
fn neighbour() -> Option<std::path::PathBuf> {
    let own = host::library::file_of(library as fn() -> _ as usize)?;
    let path = own.parent()?.join(dat_api::LIBRARY_NAME);
    path.exists().then_some(path)
}

/// Calls a function of the registry library: `call!(dat_pz_free(pz))?`. `optional` calls one that
/// OFA's library lacks.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {
        crate::dat::library().and_then(|library| {
            // SAFETY: the registry library checks handles itself. Pointers are those of values that
            // live during the call, or of memory that the program passed for this use.
            crate::status::checked(unsafe { (library.$name)($($argument),*) })
        })
    };
    (optional $name:ident($($argument:expr),* $(,)?)) => {
        crate::dat::library().and_then(|library| {
            let function = library.$name.ok_or(crate::status::OP_NOT_SUPPORTED)?;
            // SAFETY: as for the other calls.
            crate::status::checked(unsafe { function($($argument),*) })
        })
    };
}
