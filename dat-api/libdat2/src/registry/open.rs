//! Opening and closing IAs over the static registry, the dynamic registry and the IA table.

use super::ia_table::{self, OpenIa};
use super::{Key, NOT_REGISTERED, dynamic, static_};
use crate::handle::{self, ProviderRef, resolve_ia, resolve_object};
use dat_abi::*;
use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the first open of an IA with extensions. `dat_extension_op` asks for it before it does
/// anything with a handle, as consumers of OFA's library expect.
static EXTENSIONS: AtomicBool = AtomicBool::new(false);

/// What a provider must have in order to be opened.
const INCOMPLETE_PROVIDER: DatReturn = DatReturn::error(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);

/// Whether any IA with extensions was ever opened, or an extension query.
#[must_use]
pub fn extensions_are_enabled() -> bool {
    EXTENSIONS.load(Ordering::Relaxed)
}

/// Lets `dat_extension_op` through from now on.
pub fn enable_extensions() {
    EXTENSIONS.store(true, Ordering::Relaxed);
}

/// References to a provider and, if the file has its key, to its library; given back when dropped.
#[derive(Debug)]
pub struct ProviderLease {
    key: Key,
    provider: ProviderRef,
    holds_library: bool,
    kept: bool,
}

impl ProviderLease {
    /// Finds the provider of a key, loading its library if need be. A provider that was only ever
    /// added with `dat_registry_add_provider` is found as well.
    ///
    /// # Errors
    /// [`NOT_REGISTERED`], or `DAT_INVALID_STATE` from within init or fini of the same key.
    pub fn acquire(key: &Key) -> Result<Self, DatReturn> {
        let holds_library = match static_::global().acquire(key) {
            Ok(()) => true,
            Err(NOT_REGISTERED) => false,
            Err(error) => return Err(error),
        };
        match dynamic::global().acquire(key) {
            Ok(provider) => Ok(Self {
                key: key.clone(),
                provider,
                holds_library,
                kept: false,
            }),
            Err(error) => {
                release_library(key, holds_library);
                Err(error)
            }
        }
    }

    /// The provider.
    #[must_use]
    pub fn provider(&self) -> ProviderRef {
        self.provider
    }

    /// Whether there is a reference to a library of the static registry.
    #[must_use]
    pub fn holds_library(&self) -> bool {
        self.holds_library
    }

    /// Leaves the references in place; [`release`] gives them back later.
    pub fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for ProviderLease {
    fn drop(&mut self) {
        if !self.kept {
            release(&self.key, self.holds_library);
        }
    }
}

/// Gives back what a kept [`ProviderLease`] held.
pub fn release(key: &Key, holds_library: bool) {
    dynamic::global().release(key);
    handle::forget_pages();
    release_library(key, holds_library);
}

fn release_library(key: &Key, holds_library: bool) {
    if holds_library && let Err(error) = static_::global().release(key) {
        tracing::error!(ia = %key, ?error, "reference to a provider library was lost");
    }
}

/// `dat_ia_openv` once its arguments are checked.
///
/// # Errors
/// No provider serves the key, or the provider's own error; then `*ia` holds what the provider left
/// there.
///
/// # Safety
/// The pointers are those of the consumer: `name` a C string, the other two valid for the provider
/// to read and write, `ia` not null.
pub unsafe fn open(
    key: &Key,
    name: &CStr,
    async_evd_qlen: DatCount,
    async_evd: *mut DatEvdHandle,
    ia: *mut DatIaHandle,
) -> Result<(), DatReturn> {
    if reserve::is_short() {
        return Err(DatReturn::error(
            DAT_INSUFFICIENT_RESOURCES,
            DAT_RESOURCE_MEMORY,
        ));
    }
    let lease = ProviderLease::acquire(key).inspect_err(|_| report_unknown(key))?;
    let ia_open = lease.provider().ia_open.ok_or(INCOMPLETE_PROVIDER)?;
    // SAFETY: the provider is registered, and the lease keeps it so; pointers are the consumer's.
    let status = unsafe { ia_open(name.as_ptr().cast_mut(), async_evd_qlen, async_evd, ia) };
    if !status.is_success() {
        match static_::global().open_error(key) {
            Some(error) => tracing::warn!(ia = %key, %error, "open failed"),
            None => tracing::info!(ia = %key, ?status, "provider refuses to open"),
        }
        return Err(status);
    }
    // SAFETY: the caller vouches for the pointer, and the provider has just stored its handle
    // there.
    let provider_ia = unsafe { ia.read() };
    let target = resolve_object(provider_ia, DAT_INVALID_HANDLE_IA).map_err(|_| {
        tracing::error!(
            ia = %key,
            handle = ?provider_ia,
            "provider returned a handle that is not its own"
        );
        DatReturn::error(DAT_INTERNAL_ERROR, DAT_NO_SUBTYPE)
    })?;
    let handle = ia_table::global().insert(OpenIa {
        provider_ia: provider_ia.expose_provenance(),
        key: key.clone(),
        holds_library: lease.holds_library(),
    });
    lease.keep();
    if has_extensions(target.provider, provider_ia) {
        enable_extensions();
    }
    // SAFETY: as above.
    unsafe { ia.write(handle) };
    tracing::debug!(ia = %key, handle = handle.addr(), "opened");
    Ok(())
}

/// `dat_ia_close`.
///
/// The value returned is that of looking the provider up in the file again under the name, version
/// and thread safety it reports, as OFA's library does: a provider that is not in the file, or
/// reports something else than the file says, gets `DAT_PROVIDER_NOT_FOUND` although its IA is
/// closed.
///
/// # Errors
/// `DAT_INVALID_HANDLE` for anything but an open IA; the provider's own error, and then nothing is
/// closed; or the above.
pub fn close(ia: DatIaHandle, flags: DatCloseFlags) -> Result<(), DatReturn> {
    let target = resolve_ia(ia)?;
    let reported = reported_key(target.provider, target.handle)?;
    let ia_close = target.provider.ia_close.ok_or(INCOMPLETE_PROVIDER)?;
    // SAFETY: the handle is that of an open IA of this provider.
    let status = unsafe { ia_close(target.handle, flags) };
    if !status.is_success() {
        return Err(status);
    }
    let closed = ia_table::global()
        .remove(ia, target.handle.addr())
        .ok_or(DatReturn::error(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA))?;
    release(&closed.key, closed.holds_library);
    tracing::debug!(ia = %closed.key, handle = ia.addr(), "closed");
    match reported {
        Some(key) if static_::global().contains(&key) => Ok(()),
        _ => Err(NOT_REGISTERED),
    }
}

/// Reports a name that no entry has. Where an entry has it, what is wrong with its libraries has
/// been reported.
fn report_unknown(key: &Key) {
    if !static_::global().contains(key) {
        let error = "no entry of the registry has this name, version and thread safety; datinfo \
                     --list names those that there are";
        tracing::warn!(ia = %key, %error, "open failed");
    }
}

fn has_extensions(provider: ProviderRef, provider_ia: DatIaHandle) -> bool {
    let Some(ia_query) = provider.ia_query else {
        return false;
    };
    let mut attr = DatIaAttr::zeroed();
    // SAFETY: the handle is the provider's own; the structure is ours and lives during the call.
    let status = unsafe {
        ia_query(
            provider_ia,
            ptr::null_mut(),
            DAT_IA_FIELD_ALL,
            &mut attr,
            0,
            ptr::null_mut(),
        )
    };
    status.is_success() && attr.extension_supported != DAT_EXTENSION_NONE
}

/// The key a provider reports for an open IA; `None` if its name is no name.
fn reported_key(provider: ProviderRef, provider_ia: DatIaHandle) -> Result<Option<Key>, DatReturn> {
    let ia_query = provider.ia_query.ok_or(INCOMPLETE_PROVIDER)?;
    let mut attr = DatProviderAttr::zeroed();
    // SAFETY: the handle is the provider's own; the structure is ours and lives during the call.
    let status = unsafe {
        ia_query(
            provider_ia,
            ptr::null_mut(),
            0,
            ptr::null_mut(),
            DAT_PROVIDER_FIELD_ALL,
            &mut attr,
        )
    };
    if !status.is_success() {
        return Err(status);
    }
    if provider.device_name.is_null() {
        return Ok(None);
    }
    // SAFETY: the device name of a registered provider is a C string.
    Ok(unsafe {
        Key::from_c(
            provider.device_name,
            attr.dapl_version_major,
            attr.dapl_version_minor,
            attr.is_thread_safe,
        )
    })
}
