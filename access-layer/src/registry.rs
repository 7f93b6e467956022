//! The registry library of the process, of any vendor: found at run time, never linked.
//!
//! OFA's providers look up `dat_registry_add_provider` in the global scope. That fails if libdat2
//! itself was loaded without `RTLD_GLOBAL` (by a plug-in or a scripting language). The look-up here
//! works in both cases. Nothing is cached, because these calls are rare, and the registry library
//! may be replaced in between.

use std::ffi::{CStr, c_void};
use std::ptr;

use dat_abi::*;

use crate::handle::{Handle, ProviderRef};

/// `dat_registry_add_provider` and `dat_registry_remove_provider`.
type RegistryFunc =
    unsafe extern "C" fn(provider: *const DatProvider, info: *const DatProviderInfo) -> DatReturn;
/// `dats_get_ia_handle`.
type GetIaHandleFunc = unsafe extern "C" fn(ia: DatIaHandle, out: *mut DatIaHandle) -> DatReturn;

const SONAME: &CStr = c"libdat2.so.2";

/// Returns a function of the registry library; `None` when there is no such library in this
/// process.
fn find(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; the pseudo handle selects the global scope.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if !global.is_null() {
        return Some(global);
    }
    // SAFETY: the name is a C string; NOLOAD only finds a library that is loaded already, so no
    // code runs. The reference is never released, because the pointers must stay valid.
    let library = unsafe { libc::dlopen(SONAME.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the handle was just opened, and the name is a C string.
    let local = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!local.is_null()).then_some(local)
}

/// Registers a provider; `None` without a registry library.
pub(crate) fn add_provider(provider: ProviderRef, info: &DatProviderInfo) -> Option<DatReturn> {
    call(c"dat_registry_add_provider", provider, info)
}

/// Unregisters a provider; `None` without a registry library.
pub(crate) fn remove_provider(provider: ProviderRef, info: &DatProviderInfo) -> Option<DatReturn> {
    call(c"dat_registry_remove_provider", provider, info)
}

fn call(name: &CStr, provider: ProviderRef, info: &DatProviderInfo) -> Option<DatReturn> {
    let Some(address) = find(name) else {
        tracing::error!(?name, "no registry library in this process");
        return None;
    };
    // SAFETY: every DAT 2.0 registry library exports these names with this signature.
    let func = unsafe { std::mem::transmute::<*mut c_void, RegistryFunc>(address) };
    // SAFETY: the table is never freed; `info` is only read during the call.
    Some(unsafe { func(provider.get(), info) })
}

/// Returns the consumer's small integer for an IA, or the provider's own handle if no registry
/// library has an integer for it.
pub(crate) fn consumer_ia_handle(ia: Handle) -> DatIaHandle {
    assigned_ia_handle(ia.as_dat()).unwrap_or(ia.as_dat())
}

/// Returns the consumer's handle of the IA whose own handle is `ia`; `None` if no registry library
/// has assigned one.
fn assigned_ia_handle(ia: DatIaHandle) -> Option<DatIaHandle> {
    let address = find(c"dats_get_ia_handle")?;
    // SAFETY: every DAT 2.0 registry library exports this name with this signature.
    let func = unsafe { std::mem::transmute::<*mut c_void, GetIaHandleFunc>(address) };
    let mut out = ptr::null_mut();
    // SAFETY: the out pointer is to a local; the registry only compares the handle with its own.
    let code = unsafe { func(ia, &raw mut out) };
    code.is_success().then_some(out)
}
