//! Opening and closing IAs over the static registry, the dynamic registry and the IA table.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_abi::*;

use super::{NOT_REGISTERED, dynamic, static_};
use crate::handle::{self, ProviderRef, resolve_ia, resolve_object};
use crate::ia_table::{self, OpenIa};
use crate::key::Key;

/// Set by the first open of an IA with extensions. `dat_extension_op` checks it before it uses a
/// handle, as consumers of OFA's library expect.
static EXTENSIONS: AtomicBool = AtomicBool::new(false);

/// Error for a provider that lacks a function that opening an IA needs.
const INCOMPLETE_PROVIDER: DatReturn = DatReturn::error(DAT_NOT_IMPLEMENTED, DAT_NO_SUBTYPE);

/// Returns true if an IA with extensions, or an extension query, was ever opened.
#[must_use]
pub fn extensions_are_enabled() -> bool {
    EXTENSIONS.load(Ordering::Relaxed)
}

/// Allows `dat_extension_op` from now on.
pub fn enable_extensions() {
    EXTENSIONS.store(true, Ordering::Relaxed);
}

/// References to a provider and, if the file has its key, to its library. Dropping the lease
/// releases them, unless [`keep`](Self::keep) was called.
#[derive(Debug)]
pub struct ProviderLease {
    key: Key,
    provider: ProviderRef,
    holds_library: bool,
    kept: bool,
}

impl ProviderLease {
    /// Finds the provider of a key, and loads its library if necessary. Also finds a provider that
    /// was only added with `dat_registry_add_provider`.
    ///
    /// # Errors
    /// [`NOT_REGISTERED`], or `DAT_INVALID_STATE` when called from init or fini of the same key.
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

    /// The table of the leased provider.
    #[must_use]
    pub fn provider(&self) -> ProviderRef {
        self.provider
    }

    /// True if the lease holds a reference to a library of the static registry.
    #[must_use]
    pub fn holds_library(&self) -> bool {
        self.holds_library
    }

    /// Keeps the references after the drop; [`release`] releases them later.
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

/// Releases the references of a kept [`ProviderLease`].
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

/// Implements `dat_ia_openv` after its arguments were checked.
///
/// # Errors
/// No provider serves the key, or the provider's own error. In the second case the provider may
/// have written `*ia`.
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
    if host::reserve::is_short() {
        return Err(DatReturn::error(
            DAT_INSUFFICIENT_RESOURCES,
            DAT_RESOURCE_MEMORY,
        ));
    }
    let lease = ProviderLease::acquire(key).inspect_err(|error| {
        if *error == NOT_REGISTERED {
            report_unknown(key);
        }
    })?;
    let ia_open = lease.provider().ia_open.ok_or(INCOMPLETE_PROVIDER)?;
    // SAFETY: the lease keeps the provider registered; the caller guarantees the pointers.
    let status = unsafe { ia_open(name.as_ptr().cast_mut(), async_evd_qlen, async_evd, ia) };
    if !status.is_success() {
        match static_::global().open_error(key) {
            Some(error) => tracing::warn!(ia = %key, %error, "open failed"),
            None => tracing::info!(ia = %key, ?status, "provider refuses to open"),
        }
        return Err(status);
    }
    // SAFETY: the caller guarantees the pointer, and the provider has just stored its handle there.
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
    // SAFETY: the caller guarantees the pointer.
    unsafe { ia.write(handle) };
    tracing::debug!(ia = %key, handle = handle.addr(), "opened");
    Ok(())
}

/// Implements `dat_ia_close`.
///
/// As in OFA's library, the returned value is the result of a second look-up: the provider is
/// searched in the file under the name, version and thread safety that it reports. A provider that
/// is not in the file, or that reports values other than those in the file, causes
/// `DAT_PROVIDER_NOT_FOUND`, although its IA is closed.
///
/// # Errors
/// `DAT_INVALID_HANDLE` for anything but an open IA; the provider's own error, with the IA still
/// open; `DAT_PROVIDER_NOT_FOUND` from the second look-up.
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

/// Reports a key that no entry of the file has. For other keys the errors of their libraries have
/// been reported already.
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
    // SAFETY: the handle is the provider's own; the structure is in this frame and is valid during
    // the call.
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

/// Returns the key that a provider reports for an open IA; `None` if its name is invalid.
fn reported_key(provider: ProviderRef, provider_ia: DatIaHandle) -> Result<Option<Key>, DatReturn> {
    let ia_query = provider.ia_query.ok_or(INCOMPLETE_PROVIDER)?;
    let mut attr = DatProviderAttr::zeroed();
    // SAFETY: the handle is the provider's own; the structure is in this frame and is valid during
    // the call.
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
