//! Loads the libraries.

use std::error::Error;

use libloading::os::unix::{Library, RTLD_NOW};

use crate::cm::RdmaCm;
use crate::verbs::IbVerbs;

const VERBS: &str = "libibverbs.so.1";
const CM: &str = "librdmacm.so.1";

/// Both libraries, loaded. Their functions are fields with function pointers; a call is as unsafe
/// as in C.
pub struct Libraries {
    /// libibverbs.
    pub verbs: IbVerbs,
    /// librdmacm.
    pub cm: RdmaCm,
}

impl std::fmt::Debug for Libraries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Libraries").finish_non_exhaustive()
    }
}

/// The reason why a library could not be loaded.
#[derive(Debug, thiserror::Error)]
#[error("{library} (package {package}) cannot be loaded: {reason}")]
pub struct LoadError {
    library: &'static str,
    package: &'static str,
    /// The loader's message.
    reason: String,
}

impl LoadError {
    fn new(library: &'static str, package: &'static str, error: &libloading::Error) -> Self {
        // The outer error only says which call failed.
        let reason = error
            .source()
            .map_or_else(|| error.to_string(), ToString::to_string);
        Self {
            library,
            package,
            reason,
        }
    }
}

impl Libraries {
    /// Loads both libraries and looks up every function that the bindings declare.
    ///
    /// # Errors
    /// Names the library that is missing, or the function that is missing in it.
    pub fn load() -> Result<Self, LoadError> {
        // SAFETY: the initialisers of these libraries set up logging and look for device drivers;
        // they have no preconditions. The signatures in the bindings are those of the headers, and
        // the version in the file name guarantees that the library matches them.
        let verbs = unsafe { open(VERBS).and_then(|library| IbVerbs::from_library(library)) };
        let verbs = verbs.map_err(|error| LoadError::new(VERBS, "libibverbs1", &error))?;
        // SAFETY: the reasons for libibverbs apply to librdmacm too.
        let cm = unsafe { open(CM).and_then(|library| RdmaCm::from_library(library)) };
        let cm = cm.map_err(|error| LoadError::new(CM, "librdmacm1", &error))?;
        Ok(Self { verbs, cm })
    }
}

/// Opens a library for the rest of the process.
///
/// librdmacm keeps a context of every device that it has used, and does not close it when it is
/// unloaded. If it were unloaded, each opening of an adapter would leak one more context.
unsafe fn open(name: &str) -> Result<Library, libloading::Error> {
    let flags = RTLD_NOW | libc::RTLD_NODELETE;
    // SAFETY: the caller guarantees that the library's initialisers have no preconditions.
    unsafe { Library::open(Some(name), flags) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        // SAFETY: no library has this name, so nothing is loaded.
        let error = unsafe { open("libibverbs.so.0") }.err().unwrap();
        let text = LoadError::new(VERBS, "libibverbs1", &error).to_string();
        assert!(
            text.starts_with("libibverbs.so.1 (package libibverbs1) cannot"),
            "{text}"
        );
        assert!(text.contains("libibverbs.so.0"), "{text}");
    }
}
