//! The completion channel of an adapter: one descriptor for the events of all its queues.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rnic::{Resource, RnicError};
use verbs_dl::Libraries;
use verbs_dl::types::*;

use crate::device::{Device, refused, renumber, set_nonblocking};

#[derive(Debug)]
pub(crate) struct Channel {
    hw: NonNull<ibv_comp_channel>,
    libraries: Arc<Libraries>,
}

// SAFETY: verbs objects may be used by any thread (ibv_get_cq_event(3)).
unsafe impl Send for Channel {}
// SAFETY: verbs objects may be used by any thread (ibv_get_cq_event(3)).
unsafe impl Sync for Channel {}

impl Channel {
    /// Creates the channel of a device, which must stay open as long as the channel exists.
    pub(crate) fn new(device: &Device) -> Result<Self, RnicError> {
        let libraries = device.libraries.clone();
        // SAFETY: the device is open.
        let hw = unsafe { libraries.verbs.ibv_create_comp_channel(device.context()) };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::CompletionQueue))?;
        // SAFETY: the channel was just created. libibverbs reads the number from it at each use.
        unsafe { renumber(&mut (*hw.as_ptr()).fd) };
        let channel = Self { hw, libraries };
        set_nonblocking(channel.as_fd().as_raw_fd())?;
        Ok(channel)
    }

    pub(crate) fn hw(&self) -> *mut ibv_comp_channel {
        self.hw.as_ptr()
    }

    /// Takes one event. Returns the queue, which may be about to be destroyed, and the number that
    /// was given to it as its context. The caller acknowledges the event.
    pub(crate) fn next(&self) -> Option<(*mut ibv_cq, u32)> {
        let (mut hw, mut context) = (ptr::null_mut(), ptr::null_mut());
        let (verbs, channel) = (&self.libraries.verbs, self.hw());
        // SAFETY: the channel is alive and does not block; the out-pointers are of this frame.
        let code = unsafe { verbs.ibv_get_cq_event(channel, &raw mut hw, &raw mut context) };
        (code == 0).then(|| (hw, context.addr() as u32))
    }

    /// Acknowledges one event of a queue.
    ///
    /// # Safety
    /// The event was taken by [`next`](Self::next) and is not acknowledged yet.
    pub(crate) unsafe fn acknowledge(&self, cq: *mut ibv_cq) {
        // SAFETY: the destruction of the queue waits for this acknowledgement.
        unsafe { self.libraries.verbs.ibv_ack_cq_events(cq, 1) };
    }
}

/// The descriptor that is readable when a queue has an event.
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive as long as `self`. Its descriptor is open for the same time
        // and does not change.
        unsafe { BorrowedFd::borrow_raw(self.hw.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: created by `new`, and its queues are destroyed: they keep the channel alive.
        unsafe { self.libraries.verbs.ibv_destroy_comp_channel(self.hw()) };
    }
}
