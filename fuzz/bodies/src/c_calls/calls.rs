//! The functions under test.

use std::ptr::null_mut;

use dat_api::{DatExtensionOpFunc, DatRegistryListProvidersFunc, DatStrerrorFunc, Library, abi::*};

/// Declares the table and both ways to fill it from the slots of a provider.
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
        /// The functions of a registry library, by their names in C.
        pub struct Calls {
            $(#[doc = concat!("`", stringify!($name), "`.")] pub $name: $ty,)+
            $(#[doc = concat!("`", stringify!($opt), "`, where the library has it.")]
              pub $opt: Option<$opt_ty>,)+
        }

        impl Calls {
            /// The functions of a shared library.
            #[must_use]
            pub fn loaded(library: &Library) -> Self {
                Self { $($name: library.$name,)+ $($opt: library.$opt,)+ }
            }

            /// The functions of the registry that is linked into this program.
            #[must_use]
            pub fn linked() -> Self {
                Self { $($name: linked::$name,)+ $($opt: Some(linked::$opt),)+ }
            }
        }
    };
}

for_each_slot! { table }

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").finish_non_exhaustive()
    }
}

/// All functions, each under its own name.
mod linked {
    use dat_api::abi::*;
    pub(super) use libdat2::entry::{calls::*, ia::*, strerror::*};

    unsafe extern "C" {
        /// Written in C, because the function is variadic.
        pub(super) fn dat_extension_op(handle: DatHandle, op: DatExtendedOp, ...) -> DatReturn;
    }

    /// A wrapper with the header's signature, in which the list is not const.
    pub(super) unsafe extern "C" fn dat_registry_list_providers(
        max: DatCount,
        returned: *mut DatCount,
        list: *mut *mut DatProviderInfo,
    ) -> DatReturn {
        // SAFETY: the arguments are passed on unchanged, and the caller guarantees what the
        // function requires.
        unsafe { libdat2::entry::registry::dat_registry_list_providers(max, returned, list) }
    }
}

/// An agent that does nothing, or none.
pub(super) fn idle_agent(is_there: bool) -> DatOsWaitProxyAgent {
    unsafe extern "C" fn nothing(_: DatPvoid, _: DatEvdHandle) {}
    let function: DatAgentFunc = nothing;
    DatOsWaitProxyAgent {
        instance_data: null_mut(),
        proxy_agent_func: is_there.then_some(function),
    }
}
