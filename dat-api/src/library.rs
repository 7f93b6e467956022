//! The registry library, opened when it is first needed, and the typed table of its functions.
//!
//! The library is loaded by the first call that needs it, so a program that links this crate and
//! never uses DAT has no cost. The library stays loaded for the rest of the process, because
//! objects, events and engine threads of providers may refer to it.

use std::ffi::{OsStr, OsString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use dat_abi::*;
use libloading::os::unix::{Library as Dl, RTLD_GLOBAL, RTLD_NOW};

use crate::environment;

/// Environment variable that names the registry library to load instead of the system's.
pub const LIBRARY_ENV: &str = "DAT_LIBRARY";

/// The name under which every implementation of DAT 2.0 installs its registry library.
pub const LIBRARY_NAME: &str = "libdat2.so.2";

/// Reasons for which the registry library cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadError {
    /// The dynamic loader refused the library.
    #[error(
        "cannot load the DAT registry library {}: {reason}; install a DAT 2.0 registry, add the \
         directory of {LIBRARY_NAME} to LD_LIBRARY_PATH, or name the file in {LIBRARY_ENV}",
        path.to_string_lossy()
    )]
    Open {
        /// The path or name to be loaded.
        path: OsString,
        /// The loader's error message.
        reason: String,
    },
    /// A function of DAT 2.0 is missing from the library.
    #[error(
        "{} has no function {symbol}: it is not a DAT 2.0 registry library; name the right file in \
         {LIBRARY_ENV}",
        path.to_string_lossy()
    )]
    Symbol {
        /// The path or name that was loaded.
        path: OsString,
        /// The missing symbol.
        symbol: &'static str,
    },
}

/// `dat_extension_op`: the one variadic call of DAT.
pub type DatExtensionOpFunc =
    unsafe extern "C" fn(handle: DatHandle, op: DatExtendedOp, ...) -> DatReturn;

/// `dat_strerror`.
pub type DatStrerrorFunc = unsafe extern "C" fn(
    code: DatReturn,
    major: *mut *const c_char,
    minor: *mut *const c_char,
) -> DatReturn;

/// `dat_registry_list_providers`.
pub type DatRegistryListProvidersFunc = unsafe extern "C" fn(
    max: DatCount,
    returned: *mut DatCount,
    list: *mut *mut DatProviderInfo,
) -> DatReturn;

/// Declares the table and its loader from the public calls among the slots of a provider, and from
/// the functions that no provider has.
macro_rules! table {
    (
        provider $first:tt
        required { $($name:ident => $slot:ident: $ty:ident $found:tt $arguments:tt;)+ }
        optional { $($opt:ident => $opt_slot:ident: $opt_ty:ident $opt_found:tt $opt_args:tt;)+ }
        provider $last:tt
    ) => {
        table! {
            $($name: $ty,)+
            dat_ia_openv: DatIaOpenvFunc,
            dat_extension_op: DatExtensionOpFunc,
            dat_strerror: DatStrerrorFunc,
            dat_registry_list_providers: DatRegistryListProvidersFunc,
            ; $($opt: $opt_ty,)+
        }
    };
    ($($name:ident: $ty:ty,)+; $($opt:ident: $opt_ty:ty,)+) => {
        /// The functions of a loaded registry library, ready to be called.
        ///
        /// These are calls of C: the caller must follow the rules of DAT 2.0 about handles, buffers
        /// and out-pointers. The other modules of this crate do that. A program for which
        /// nanoseconds matter may call the functions directly.
        pub struct Library {
            path: OsString,
            $(#[doc = concat!("`", stringify!($name), "`.")] pub $name: $ty,)+
            $(#[doc = concat!("`", stringify!($opt), "`, where the library has it.")]
              pub $opt: Option<$opt_ty>,)+
        }

        impl Library {
            /// Looks up every function of `dl`.
            fn resolve(dl: &Dl, path: &OsStr) -> Result<Self, LoadError> {
                Ok(Self {
                    path: path.to_owned(),
                    // SAFETY: the symbol is the C function of this name, whose signature DAT 2.0
                    // defines and dat-abi declares; the library is never unloaded (`load` leaks
                    // it).
                    $($name: *unsafe { dl.get::<$ty>(concat!(stringify!($name), "\0").as_bytes()) }
                        .map_err(|_| LoadError::Symbol {
                            path: path.to_owned(),
                            symbol: stringify!($name),
                        })?,)+
                    // SAFETY: as above.
                    $($opt: unsafe { dl.get::<$opt_ty>(concat!(stringify!($opt), "\0").as_bytes()) }
                        .ok()
                        .map(|symbol| *symbol),)+
                })
            }
        }
    };
}

for_each_slot! { table }

/// The path given to [`Library::prefer`].
static PREFERRED: OnceLock<OsString> = OnceLock::new();

impl Library {
    /// Returns the registry library of this process; opens it on the first call.
    ///
    /// The file is the one that the environment variable [`LIBRARY_ENV`] names, else the path given
    /// to [`Library::prefer`], else `lib/libdat2.so.2` next to the directory of the program, else
    /// [`LIBRARY_NAME`] where the dynamic loader finds it. A program with raised privileges ignores
    /// the variable and its own directory. The result of the first call is kept for the life of the
    /// process.
    pub fn get() -> Result<&'static Self, LoadError> {
        // No `OnceLock`, which the child of a fork could find half filled, and wait for ever.
        static LIBRARY: AtomicPtr<Result<Library, LoadError>> = AtomicPtr::new(ptr::null_mut());
        let mut library = LIBRARY.load(Ordering::Acquire);
        if library.is_null() {
            let loaded = Box::into_raw(Box::new(Self::load()));
            let null = ptr::null_mut();
            let set = LIBRARY.compare_exchange(null, loaded, Ordering::AcqRel, Ordering::Acquire);
            library = set.map_or_else(
                |other| {
                    // SAFETY: the exchange failed, so no other thread has seen this box.
                    drop(unsafe { Box::from_raw(loaded) });
                    other
                },
                |_| loaded,
            );
        }
        // SAFETY: the pointer is to a box that is never freed.
        unsafe { &*library }.as_ref().map_err(Clone::clone)
    }

    /// Sets the file to load if [`LIBRARY_ENV`] names none, for a library that was installed with
    /// another one. Only the first call has an effect, and only before the first
    /// [`Library::get`].
    pub fn prefer(path: impl Into<OsString>) {
        // A second path is ignored, because the first may have been loaded already.
        let _ = PREFERRED.set(path.into());
    }

    /// The name under which the library was loaded: the value of [`LIBRARY_ENV`], the file given to
    /// [`Library::prefer`], the path of the one that was installed with the program, or
    /// [`LIBRARY_NAME`].
    #[must_use]
    pub fn path(&self) -> &OsStr {
        &self.path
    }

    fn load() -> Result<Self, LoadError> {
        let path = environment::variable(LIBRARY_ENV)
            .filter(|path| !path.is_empty())
            .or_else(|| PREFERRED.get().cloned())
            .or_else(|| environment::installed("lib", LIBRARY_NAME).map(Into::into))
            .unwrap_or_else(|| LIBRARY_NAME.into());
        // RTLD_GLOBAL, because providers of other vendors look up the registry's functions in the
        // global scope instead of naming the library as a dependency.
        const FLAGS: c_int = RTLD_NOW | RTLD_GLOBAL;
        // SAFETY: loading runs the library's constructors. The name is the well-known name, a file
        // that was installed with the program, or a value of the environment. The latter two are
        // used only without raised privileges, and the user could preload code as well.
        let dl = unsafe { Dl::open(Some(&path), FLAGS) }.map_err(|error| LoadError::Open {
            path: path.clone(),
            reason: describe(&error),
        })?;
        let library = Self::resolve(&dl, &path)?;
        // The library is never unloaded: the table and the threads of providers refer to it.
        std::mem::forget(dl);
        tracing::debug!(path = %path.to_string_lossy(), "loaded the DAT registry library");
        Ok(library)
    }
}

opaque_debug!(Library, |it| [path: it.path]);

/// Returns the loader's error message; `libloading` keeps it as the source of its error.
fn describe(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}
