//! Protection zones: the memory that an endpoint may access (DAT 2.0 section 6.8).

use std::sync::Arc;

use dat_abi::*;

use crate::error::{Result, check};
use crate::handle::Handle;
use crate::ia::Ia;
use crate::leak::keep_for_ever;

/// A protection zone. Clones share the zone; dropping the last clone frees it.
#[derive(Clone)]
pub struct Pz {
    pub(crate) inner: Arc<PzInner>,
}

pub(crate) struct PzInner {
    pub(crate) handle: Handle,
    pub(crate) ia: Ia,
}

impl Pz {
    /// Creates a protection zone.
    pub fn create(ia: &Ia) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open and the out-pointer writable.
        check("dat_pz_create", unsafe {
            (ia.library().dat_pz_create)(ia.as_raw(), &mut handle)
        })?;
        Ok(Self {
            inner: Arc::new(PzInner {
                handle: Handle(handle),
                ia: ia.clone(),
            }),
        })
    }

    /// The interface adapter of the zone.
    #[must_use]
    pub fn ia(&self) -> &Ia {
        &self.inner.ia
    }

    /// The handle, for calls through [`Library`](crate::Library). Valid while `self` or a clone
    /// lives.
    #[must_use]
    pub fn as_raw(&self) -> DatPzHandle {
        self.inner.handle.0
    }
}

impl Drop for PzInner {
    fn drop(&mut self) {
        // SAFETY: regions, windows and endpoints of this zone hold it, so none of them exists any
        // more.
        let code = unsafe { (self.ia.library().dat_pz_free)(self.handle.0) };
        keep_for_ever(check("dat_pz_free", code), &self.ia);
    }
}

opaque_debug!(Pz, |it| [ia: it.inner.ia.name()]);
