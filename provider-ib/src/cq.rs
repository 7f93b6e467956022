//! Completion queues.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use access_layer::rnic::{CqToken, Resource, RnicError};
use verbs_dl::types::*;

use crate::memory::refused;
use crate::rnic::Shared;

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    hw: NonNull<ibv_cq>,
    shared: Arc<Shared>,
}

// SAFETY: verbs objects may be used by any thread (ibv_create_cq(3)).
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        depth: u32,
        _token: CqToken,
    ) -> Result<Arc<Self>, RnicError> {
        let device = &shared.device;
        let depth = i32::try_from(depth).unwrap_or(i32::MAX);
        let (none, context) = (ptr::null_mut(), device.context());
        // SAFETY: the device is open.
        let hw = unsafe {
            device
                .libraries
                .verbs
                .ibv_create_cq(context, depth, none, none.cast(), 0)
        };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::CompletionQueue))?;
        Ok(Arc::new(Self {
            hw,
            shared: shared.clone(),
        }))
    }

    pub(crate) fn hw(&self) -> *mut ibv_cq {
        self.hw.as_ptr()
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made by us; queue pairs hold their queues, so nothing completes into it.
        unsafe { self.shared.device.libraries.verbs.ibv_destroy_cq(self.hw()) };
    }
}
