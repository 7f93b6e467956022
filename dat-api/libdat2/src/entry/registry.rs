//! The registry calls.

use super::guard::guard;
use crate::handle::ProviderRef;
use crate::key::Key;
use crate::log;
use crate::registry::{NOT_REGISTERED, dynamic, static_};
use dat_abi::*;

/// `dat_registry_list_providers` of DAT 2.0: the entries of the registry file, in file order. With
/// `max` 0 the call reports only the number of entries, and returns an error for the first
/// argument.
///
/// # Safety
/// `returned` is null or valid for writes; `list` is null or an array of `max` pointers, each null
/// or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_list_providers(
    max: DatCount,
    returned: *mut DatCount,
    list: *const *mut DatProviderInfo,
) -> DatReturn {
    log::init();
    guard("dat_registry_list_providers", || {
        if returned.is_null() {
            return Err(invalid_argument(DAT_INVALID_ARG2));
        }
        let keys = static_::global().keys();
        let Some(max) = usize::try_from(max).ok().filter(|&max| max > 0) else {
            // SAFETY: the pointer is not null, so the caller guarantees that it is valid for
            // writes.
            unsafe { returned.write(DatCount::try_from(keys.len()).unwrap_or(DatCount::MAX)) };
            return Err(invalid_argument(DAT_INVALID_ARG1));
        };
        if list.is_null() {
            return Err(invalid_argument(DAT_INVALID_ARG3));
        }
        let count = keys.len().min(max);
        // SAFETY: the pointer is not null, so the caller guarantees an array of at least `count`
        // pointers.
        let places = unsafe { std::slice::from_raw_parts(list, count) };
        if places.iter().any(|place| place.is_null()) {
            return Err(invalid_argument(DAT_INVALID_ARG3));
        }
        for (key, place) in keys.iter().zip(places) {
            // SAFETY: the pointer is not null, so the caller guarantees that it is valid for
            // writes.
            unsafe { place.write(key.to_info()) };
        }
        // SAFETY: as for `returned` above.
        unsafe { returned.write(DatCount::try_from(count).unwrap_or(DatCount::MAX)) };
        Ok(DatReturn::SUCCESS)
    })
}

/// `dat_registry_add_provider` of DAT 2.0: called by the init function of a provider, or by a
/// program that contains a provider.
///
/// # Safety
/// `provider` and `info` are null or point at complete structures; the provider's table stays valid
/// and unchanged until the provider is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_add_provider(
    provider: *const DatProvider,
    info: *const DatProviderInfo,
) -> DatReturn {
    log::init();
    guard("dat_registry_add_provider", || {
        // SAFETY: the caller guarantees the contract of `checked`, which is the same.
        let (provider, key) = unsafe { checked(provider, info) }?;
        tracing::debug!(ia = %key, "provider registers");
        dynamic::global()
            .add(key, provider)
            .map(|()| DatReturn::SUCCESS)
    })
}

/// `dat_registry_remove_provider` of DAT 2.0: removes a provider that was added.
///
/// # Safety
/// `provider` and `info` are null or point at complete structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_remove_provider(
    provider: *const DatProvider,
    info: *const DatProviderInfo,
) -> DatReturn {
    guard("dat_registry_remove_provider", || {
        // SAFETY: the caller guarantees the contract of `checked`.
        let (provider, key) = unsafe { checked(provider, info) }?;
        tracing::debug!(ia = %key, "provider unregisters");
        dynamic::global()
            .remove(&key, provider)
            .map(|()| DatReturn::SUCCESS)
    })
}

/// `dat_registry_providers_related` of DAT 2.0: reports whether one provider can replace another.
/// Only open IAs have this information, so the answer for two registered names is `DAT_HA_UNKNOWN`.
///
/// # Safety
/// The names are null or C strings; `answer` is null or valid for writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_providers_related(
    name: DatNamePtr,
    other: DatNamePtr,
    answer: *mut DatHaRelationship,
) -> DatReturn {
    log::init();
    guard("dat_registry_providers_related", || {
        let listed = static_::global().keys();
        for (name, argument) in [(name, DAT_INVALID_ARG1), (other, DAT_INVALID_ARG2)] {
            if name.is_null() {
                return Err(invalid_argument(argument));
            }
            // SAFETY: the pointer is not null, so the caller guarantees a C string.
            let key = unsafe { Key::from_c(name, DAT_VERSION_MAJOR, DAT_VERSION_MINOR, DAT_FALSE) }
                .ok_or(invalid_argument(argument))?;
            if !listed.iter().any(|entry| entry.name() == key.name())
                && !dynamic::global().contains(&key)
            {
                return Err(NOT_REGISTERED);
            }
        }
        if answer.is_null() {
            return Err(invalid_argument(DAT_INVALID_ARG3));
        }
        // SAFETY: the pointer is not null, so the caller guarantees that it is valid for writes.
        unsafe { answer.write(DAT_HA_UNKNOWN) };
        Ok(DatReturn::SUCCESS)
    })
}

/// # Safety
/// As for [`dat_registry_add_provider`].
unsafe fn checked(
    provider: *const DatProvider,
    info: *const DatProviderInfo,
) -> Result<(ProviderRef, Key), DatReturn> {
    let provider = ProviderRef::new(provider).ok_or(invalid_argument(DAT_INVALID_ARG1))?;
    // SAFETY: the caller guarantees that the pointer is null or points at a complete structure.
    let info = unsafe { info.as_ref() }.ok_or(invalid_argument(DAT_INVALID_ARG2))?;
    Ok((provider, Key::from_info(info)))
}

fn invalid_argument(argument: DatReturnSubtype) -> DatReturn {
    DatReturn::error(DAT_INVALID_PARAMETER, argument)
}
