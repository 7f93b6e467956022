//! Resolves a handle, which may be any value, to its provider.
//!
//! Consumers get small integers for IAs. Every other handle is a pointer of the provider to an
//! object whose first word is the address of the provider's table. A consumer may pass any value:
//! null, an IA handle in place of an EVD, a handle that was freed long ago. Each step relies only
//! on checks of earlier steps:
//!
//! 1. Null, addresses in the first page and misaligned addresses are invalid.
//! 2. The page is in the table of readable pages (`pages`), or the kernel reads the word (`probe`).
//! 3. The first word is compared with the addresses of the registered providers (`providers`), and
//!    is dereferenced only if it is one of them.
//!
//! A hit costs two table look-ups. The provider checks that the object is alive and of the right
//! kind. The providers of this project never unmap pages that held handles. Providers of others
//! may, so the table of readable pages is cleared whenever an IA is closed or a provider is
//! removed.

mod pages;
mod probe;
mod providers;

use crate::ia_table;
use dat_abi::*;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use providers::{ProviderRef, add_provider, remove_provider};

/// Smallest address that can be a handle; smaller values are null or an IA handle passed by
/// mistake.
const LOWEST_ADDRESS: usize = 4096;

/// A handle in the provider's own form together with the provider.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The handle in the provider's form.
    pub handle: DatHandle,
    /// The provider's table.
    pub provider: ProviderRef,
}

/// Resolves an IA handle: only the small integers returned by `dat_ia_openv` are valid.
///
/// # Errors
/// `DAT_INVALID_HANDLE` with `DAT_INVALID_HANDLE_IA`.
pub fn resolve_ia(ia: DatIaHandle) -> Result<Target, DatReturn> {
    ia_table::global()
        .get(ia)
        .and_then(resolve_pointer)
        .ok_or(DatReturn::error(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_IA))
}

/// Resolves the handle of any object but an IA; `subtype` names the kind in the error.
///
/// # Errors
/// `DAT_INVALID_HANDLE` with the subtype.
#[inline]
pub fn resolve_object(handle: DatHandle, subtype: DatReturnSubtype) -> Result<Target, DatReturn> {
    resolve_pointer(handle).ok_or(DatReturn::error(DAT_INVALID_HANDLE, subtype))
}

/// Resolves a handle that may be an IA's or any other object's.
///
/// # Errors
/// `DAT_INVALID_HANDLE` with `DAT_INVALID_HANDLE1`.
pub fn resolve_any(handle: DatHandle) -> Result<Target, DatReturn> {
    let pointer = ia_table::global().get(handle).unwrap_or(handle);
    resolve_object(pointer, DAT_INVALID_HANDLE1)
}

/// Returns true if a handle can be a provider's pointer rather than a small integer.
#[must_use]
pub fn may_be_pointer(handle: DatHandle) -> bool {
    handle.addr() >= LOWEST_ADDRESS
}

/// Clears the table of readable pages; called when memory of a provider may have been unmapped.
pub fn forget_pages() {
    pages::clear();
}

#[inline]
fn resolve_pointer(handle: DatHandle) -> Option<Target> {
    let address = handle.addr();
    if address < LOWEST_ADDRESS || !address.is_multiple_of(align_of::<usize>()) {
        return None;
    }
    let provider = if pages::contains(address) {
        // SAFETY: the address is aligned, and the kernel has found its page readable. Providers
        // keep such pages mapped while an IA is open, and closing an IA clears the table. The load
        // is atomic because the provider may write the word at the same time.
        let word = unsafe { AtomicUsize::from_ptr(handle.cast()) }.load(Ordering::Relaxed);
        providers::find(word)?
    } else {
        let provider = providers::find(probe::read_word(address)?)?;
        pages::insert(address);
        provider
    };
    Some(Target { handle, provider })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    fn invalid(handle: DatHandle) -> bool {
        matches!(resolve_object(handle, DAT_INVALID_HANDLE_EVD_REQUEST),
            Err(code) if code.0 == 0x8005_0015)
    }

    #[test]
    fn values_that_cannot_be_handles_are_refused() {
        for value in [
            0,
            1,
            2,
            7,
            64,
            4095,
            4097,
            usize::MAX,
            usize::MAX - 7,
            1 << 63,
            8 << 44,
        ] {
            assert!(invalid(ptr::without_provenance_mut(value)), "{value:#x}");
        }
    }

    #[test]
    fn readable_memory_without_a_provider_is_refused() {
        let mut words = [0usize, 0x1000, usize::MAX, 0xdead_beef_0000];
        for word in &mut words {
            assert!(invalid(ptr::from_mut(word).cast()));
        }
    }

    #[test]
    fn an_object_is_found_while_its_provider_is_registered_and_not_after() {
        let table = Box::new(DatProvider::zeroed());
        let provider = ProviderRef::new(&raw const *table).expect("a box is not null");
        let object = AtomicUsize::new(provider.address());
        let handle: DatHandle = object.as_ptr().cast();

        assert!(invalid(handle));
        add_provider(provider);
        let target = resolve_object(handle, DAT_INVALID_HANDLE_EVD_REQUEST).expect("registered");
        assert_eq!(target.provider, provider);
        assert_eq!(target.handle, handle);
        // The second look-up finds the page in the table.
        assert!(resolve_object(handle, DAT_INVALID_HANDLE_EVD_REQUEST).is_ok());
        object.store(0x7777_7770, Ordering::Relaxed);
        assert!(invalid(handle));
        object.store(provider.address(), Ordering::Relaxed);
        remove_provider(provider);
        assert!(invalid(handle));
    }

    #[test]
    fn an_unmapped_page_is_refused() {
        let len = 4096;
        // SAFETY: a new anonymous mapping that only this test uses.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        assert!(invalid(page));
        // SAFETY: the mapping created above; nothing refers to it.
        unsafe { libc::munmap(page, len) };
        assert!(invalid(page));
    }
}
