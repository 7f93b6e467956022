//! The registry calls.

use super::guard::guard;
use crate::handle::ProviderRef;
use crate::log;
use crate::registry::{Key, NOT_REGISTERED, dynamic, static_};
use dat_abi::*;

/// `dat_registry_list_providers` of DAT 2.0: the entries of the registry file, in file order. With
/// `max` 0 only their number is told, together with an error about the first argument.
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
            // SAFETY: not null, so valid for writes by the caller's promise.
            unsafe { returned.write(DatCount::try_from(keys.len()).unwrap_or(DatCount::MAX)) };
            return Err(invalid_argument(DAT_INVALID_ARG1));
        };
        if list.is_null() {
            return Err(invalid_argument(DAT_INVALID_ARG3));
        }
        let count = keys.len().min(max);
        // SAFETY: not null, so an array of at least `count` pointers by the caller's promise.
        let places = unsafe { std::slice::from_raw_parts(list, count) };
        if places.iter().any(|place| place.is_null()) {
            return Err(invalid_argument(DAT_INVALID_ARG3));
        }
        for (key, place) in keys.iter().zip(places) {
            // SAFETY: not null, so valid for writes by the caller's promise.
            unsafe { place.write(key.to_info()) };
        }
        // SAFETY: as above.
        unsafe { returned.write(DatCount::try_from(count).unwrap_or(DatCount::MAX)) };
        Ok(DatReturn::SUCCESS)
    })
}

/// `dat_registry_add_provider` of DAT 2.0: called by providers from their init function, or by any
/// program that brings a provider of its own.
///
/// # Safety
/// `provider` and `info` are null or point at complete structures; the provider's table stays valid
/// and unchanged until it is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_add_provider(
    provider: *const DatProvider,
    info: *const DatProviderInfo,
) -> DatReturn {
    log::init();
    guard("dat_registry_add_provider", || {
        // SAFETY: the caller's promise is passed on.
        let (provider, key) = unsafe { checked(provider, info) }?;
        tracing::debug!(ia = %key, "provider registers");
        dynamic::global()
            .add(key, provider)
            .map(|()| DatReturn::SUCCESS)
    })
}

/// `dat_registry_remove_provider` of DAT 2.0: the opposite.
///
/// # Safety
/// `provider` and `info` are null or point at complete structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_remove_provider(
    provider: *const DatProvider,
    info: *const DatProviderInfo,
) -> DatReturn {
    guard("dat_registry_remove_provider", || {
        // SAFETY: the caller's promise is passed on.
        let (_, key) = unsafe { checked(provider, info) }?;
        tracing::debug!(ia = %key, "provider leaves");
        dynamic::global().remove(&key).map(|()| DatReturn::SUCCESS)
    })
}

/// `dat_registry_providers_related` of DAT 2.0: whether one provider can stand in for another.
/// Providers tell that only about open IAs, so the answer for two registered names is that nobody
/// knows.
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
            // SAFETY: not null, so a C string by the caller's promise.
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
        // SAFETY: not null, so valid for writes by the caller's promise.
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
    // SAFETY: null or a complete structure, by the caller's promise.
    let info = unsafe { info.as_ref() }.ok_or(invalid_argument(DAT_INVALID_ARG2))?;
    Ok((provider, Key::from_info(info)))
}

fn invalid_argument(argument: DatReturnSubtype) -> DatReturn {
    DatReturn::error(DAT_INVALID_PARAMETER, argument)
}
