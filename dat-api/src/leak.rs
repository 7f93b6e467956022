//! What happens when a provider refuses to free an object.

use crate::error::CallError;

/// If `freed` failed, keeps `parent` for ever, because the refused object still refers to it.
///
/// Freeing fails only when a provider breaks its contract or an object was changed through the raw
/// table; then a leak is harmless and a freed parent is not.
pub(crate) fn keep_for_ever<P: Clone>(freed: Result<(), CallError>, parent: &P) {
    if let Err(error) = freed {
        tracing::error!(%error, "an object could not be freed; it and its parents are leaked");
        std::mem::forget(parent.clone());
    }
}
