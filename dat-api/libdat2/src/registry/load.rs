//! Provider libraries: finding and loading them, calling init and fini.

use super::forks;
use crate::key::Key;
use dat_abi::*;
use host::forks::HeldLock;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CStr, OsStr, OsString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Reasons for which a provider library could not be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The dynamic loader failed.
    #[error("{}", loader_text(.0))]
    Open(#[source] libloading::Error),
    /// An earlier load has failed so late that the C library keeps the library.
    #[error("an earlier load was not completed for lack of memory")]
    HalfLoaded,
    /// The library is not a provider.
    #[error("not a provider: {}", loader_text(.0))]
    Symbol(#[source] libloading::Error),
}

/// Returns the error message of the dynamic loader, which names file and cause. The text of
/// `libloading`'s own error does not.
fn loader_text(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A loaded provider library. Dropping it releases one reference of the dynamic loader.
#[derive(Debug)]
pub struct ProviderLibrary {
    init: DatProviderInitFunc,
    fini: DatProviderFiniFunc,
    /// Only providers of dat-rs export this function.
    open_error: Option<DatRsOpenErrorFunc>,
    /// Keeps the code of the functions mapped; declared last, so dropped last.
    _library: Library,
}

impl ProviderLibrary {
    /// Loads a library. A name without slash is searched in the directory of `libdat2.so.2` first,
    /// so that an installation finds its own providers in any directory, then in the paths of the
    /// dynamic loader.
    ///
    /// # Errors
    /// The library cannot be loaded, or lacks `dat_provider_init` or `dat_provider_fini`.
    pub fn load(lib_path: &CStr) -> Result<Self, LoadError> {
        let _load = forks::Load::begin();
        make_self_global();
        let name = OsStr::from_bytes(lib_path.to_bytes());
        let library = match next_to_self(name).map(|path| open(path.as_os_str())) {
            Some(Ok(library)) => library,
            Some(Err(error)) => {
                tracing::warn!(library = ?name, %error, "provider next to libdat2 does not load");
                open(name)?
            }
            None => open(name)?,
        };
        // SAFETY: the two names are those of the provider interface and have these types in it.
        let (init, fini) = unsafe {
            (
                symbol::<DatProviderInitFunc>(&library, DAT_PROVIDER_INIT_NAME)?,
                symbol::<DatProviderFiniFunc>(&library, DAT_PROVIDER_FINI_NAME)?,
            )
        };
        // SAFETY: the symbol is only looked up, not called.
        if unsafe { symbol::<*mut c_void>(&library, DAPL_EXTENSIONS_NAME) }.is_err() {
            tracing::debug!(library = ?name, "provider exports no dapl_extensions");
        }
        // SAFETY: the symbol has this type in the libraries that export it.
        let open_error = unsafe { symbol::<DatRsOpenErrorFunc>(&library, DAT_RS_OPEN_ERROR_NAME) };
        // SAFETY: as above.
        if let Ok(around) = unsafe { symbol::<DatRsForkFunc>(&library, DAT_RS_FORK_NAME) } {
            forks::add(around);
        }
        Ok(Self {
            init,
            fini,
            open_error: open_error.ok(),
            _library: library,
        })
    }

    /// Calls `dat_provider_init`, which calls `dat_registry_add_provider`.
    pub fn init(&self, key: &Key, ia_params: &CStr) {
        // SAFETY: the library is loaded; info and parameters are valid during the call. The
        // provider copies the data that it keeps.
        unsafe { (self.init)(&key.to_info(), ia_params.as_ptr()) }
    }

    /// Returns the reason why the last attempt of this thread to open an IA of this library failed,
    /// if the library has the reason and has not logged it.
    pub fn open_error(&self) -> Option<String> {
        let open_error = self.open_error?;
        // SAFETY: the library is loaded; the string is copied before the thread calls open again.
        let text = unsafe { open_error() };
        if text.is_null() {
            return None;
        }
        // SAFETY: a string that is not null is a C string.
        Some(
            unsafe { CStr::from_ptr(text) }
                .to_string_lossy()
                .into_owned(),
        )
    }

    /// Calls `dat_provider_fini`, which unregisters the providers.
    pub fn fini(&self, key: &Key) {
        // SAFETY: as for init.
        unsafe { (self.fini)(&key.to_info()) }
    }
}

/// The names of libraries whose load has failed after the C library had begun to keep them.
pub(crate) static HALF_LOADED: HeldLock<Vec<OsString>> = HeldLock::new(Vec::new());

fn open(name: &OsStr) -> Result<Library, LoadError> {
    let half_loaded = || HALF_LOADED.lock();
    let file = Path::new(name).file_name().unwrap_or(name);
    if half_loaded().iter().any(|it| it == file) {
        return Err(LoadError::HalfLoaded);
    }
    // SAFETY: loading a library runs its initialisers. The registry file names the libraries, and
    // its author is trusted with that.
    let opened = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
    opened.map_err(|error| {
        // The C library keeps a library of `-z nodelete` even if its memory ends late in the load.
        // The next load would return that library without its initialisation.
        let flags = RTLD_NOW | libc::RTLD_NOLOAD;
        // The C library opens the file also for this question, and would wait for a FIFO.
        let may_be_loaded = !Path::new(name).has_root() || Path::new(name).is_file();
        // SAFETY: a library that is loaded already runs no initialiser. It is not used.
        if may_be_loaded && unsafe { Library::open(Some(name), flags) }.is_ok() {
            half_loaded().push(file.to_owned());
        }
        LoadError::Open(error)
    })
}

/// # Safety
/// `T` is the type of the symbol.
unsafe fn symbol<T: Copy>(library: &Library, name: &CStr) -> Result<T, LoadError> {
    // SAFETY: the caller guarantees the type.
    unsafe { library.get::<T>(name.to_bytes_with_nul()) }
        .map(|symbol| *symbol)
        .map_err(LoadError::Symbol)
}

/// Makes the symbols of this library visible to providers. Providers of other vendors call
/// `dat_registry_add_provider` without a dependency on the library that exports it. If a plug-in or
/// an interpreter has loaded this library, its symbols are local until this call. Several threads
/// may do this at once: a thread that waited for another one would wait for ever in the child of a
/// fork.
fn make_self_global() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Ordering::Acquire) {
        return;
    }
    if let Some(path) = self_path() {
        // SAFETY: the library is loaded already, so no initialiser runs.
        let again =
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL | libc::RTLD_NOLOAD) };
        match again {
            // The reference is kept for the life of the process: providers may hold addresses of
            // this library.
            Ok(library) => std::mem::forget(library),
            Err(error) => tracing::debug!(?path, %error, "cannot make own symbols global"),
        }
    }
    IS_DONE.store(true, Ordering::Release);
}

fn next_to_self(name: &OsStr) -> Option<PathBuf> {
    if name.is_empty() || name.as_bytes().contains(&b'/') {
        return None;
    }
    let path = self_path()?;
    let candidate = path
        .parent()
        .filter(|parent| *parent != Path::new(""))?
        .join(name);
    candidate.exists().then_some(candidate)
}

/// Returns the path of the file from which this code was loaded.
fn self_path() -> Option<PathBuf> {
    let here = self_path as fn() -> Option<PathBuf>;
    host::library::file_of(here as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_in_the_error() {
        let error = ProviderLibrary::load(c"libno-such-provider.so.9").expect_err("missing");
        assert!(
            error.to_string().contains("libno-such-provider.so.9"),
            "{error}"
        );
    }

    #[test]
    fn a_library_that_is_no_provider_is_refused() {
        let error = ProviderLibrary::load(c"libc.so.6").expect_err("not a provider");
        assert!(matches!(error, LoadError::Symbol(_)), "{error}");
    }

    #[test]
    fn only_names_without_slash_are_searched_next_to_the_library() {
        assert_eq!(next_to_self(OsStr::new("")), None);
        assert_eq!(next_to_self(OsStr::new("./x.so")), None);
        assert_eq!(next_to_self(OsStr::new("no-such-file.so")), None);
        let own = self_path().expect("a test program has a file");
        let name = own.file_name().expect("a file has a name");
        assert_eq!(next_to_self(name), Some(own.clone()));
    }
}
