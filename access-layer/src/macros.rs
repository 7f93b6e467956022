//! Exporting a provider.

/// Exports the four entry points of a provider library for an RNIC: `export_provider!(SoftRnic);`.
/// For leaf shared libraries only: a symbol exported by a library crate would appear in every
/// shared library that is linked with it.
#[macro_export]
macro_rules! export_provider {
    ($rnic:ty) => {
        /// `dat_provider_init`: called by a registry library after loading, once for each IA name.
        ///
        /// # Safety
        /// Called by a registry library, with a registration key and a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_provider_init(
            info: *const $crate::abi::DatProviderInfo,
            instance_data: *const ::std::ffi::c_char,
        ) {
            // SAFETY: the contracts are the same.
            unsafe { $crate::provider::init::<$rnic>(info, instance_data) }
        }

        /// `dat_provider_fini`: called by a registry library before unloading.
        ///
        /// # Safety
        /// Called by a registry library, with a registration key.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dat_provider_fini(info: *const $crate::abi::DatProviderInfo) {
            // SAFETY: the contracts are the same.
            unsafe { $crate::provider::fini::<$rnic>(info) }
        }

        /// `dapl_extensions`: extension operations that a registry library passes on without an IA.
        ///
        /// # Safety
        /// Called by a registry library; `args` is the `va_list` of the operation.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn dapl_extensions(
            handle: $crate::abi::DatHandle,
            op: $crate::abi::DatExtendedOp,
            args: $crate::abi::DatVaList,
        ) -> $crate::abi::DatReturn {
            // SAFETY: the contracts are the same.
            unsafe { $crate::provider::extension::<$rnic>(handle, op, args) }
        }

        /// `dat_rs_open_error`: the reason why the last `dat_ia_open` of this thread failed.
        #[unsafe(no_mangle)]
        pub extern "C" fn dat_rs_open_error() -> *const ::std::ffi::c_char {
            $crate::provider::open_error()
        }

        /// `dat_rs_fork`: holds or releases the locks of this library around a `fork`, for a
        /// registry library whose fork has begun before this library was loaded.
        #[cfg(not(miri))]
        #[unsafe(no_mangle)]
        pub extern "C" fn dat_rs_fork(step: ::std::ffi::c_int) -> ::std::ffi::c_int {
            $crate::provider::around_fork(step)
        }
    };
}
