//! Handling of an object that a provider refuses to free.

use crate::error::CallError;

/// If `freed` failed, keeps `parent` for the life of the process, because the refused object still
/// refers to it.
///
/// Freeing fails only when a provider breaks its contract or an object was changed through the raw
/// table. A leak is harmless then, but a freed parent would not be.
pub(crate) fn keep_for_ever<P: Clone>(freed: Result<(), CallError>, parent: &P) {
    if let Err(error) = freed {
        tracing::error!(%error, "an object could not be freed; it and its parents are leaked");
        std::mem::forget(parent.clone());
    }
}
