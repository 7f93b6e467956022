//! Keeps queues away from an offset that libsiw cannot map.
//!
//! The kernel assigns each queue an offset in the opened device, at the lowest free pages, and the
//! library maps the queue there. libsiw (rdma-core 44 and later) reads offset 0x90000 as "there is
//! no queue". So a queue that would begin there cannot be created. Neither can any later one,
//! because these pages stay the lowest free ones: with queues of usual sizes, the 49th queue pair
//! fails. An unused completion queue across that offset makes all later queues begin elsewhere.

use std::ptr::{self, NonNull};

use verbs_dl::Libraries;
use verbs_dl::types::*;

/// `SIW_INVAL_UOBJ_KEY` in the kernel's header.
const OFFSET: usize = 0x90000;

/// Bytes of an entry of a siw completion queue, and of the control data after the last entry. The
/// number of entries is a power of two.
const ENTRY_LEN: usize = 32;
const CONTROL_LEN: usize = 8;

/// The unused queue across the offset. Its owner must call [`destroy`](Self::destroy) before the
/// device is closed.
#[derive(Debug)]
pub(crate) struct OffsetGuard(NonNull<ibv_cq>);

impl OffsetGuard {
    /// Creates the guard on a device on which nothing has been created. Returns `None` if there is
    /// no memory for it; the device then supports fewer queues.
    ///
    /// # Safety
    /// The device is open.
    pub(crate) unsafe fn create(libraries: &Libraries, context: *mut ibv_context) -> Option<Self> {
        let verbs = &libraries.verbs;
        let new_cq = |len| {
            let none = ptr::null_mut();
            // SAFETY: the device is open (caller); a queue need not have a channel.
            NonNull::new(unsafe { verbs.ibv_create_cq(context, len, none, ptr::null_mut(), 0) })
        };
        let [before, across] = lens(page_len());
        let before = new_cq(before)?;
        let guard = new_cq(across).map(Self);
        // SAFETY: created above, and not used by other code.
        unsafe { verbs.ibv_destroy_cq(before.as_ptr()) };
        if guard.is_none() {
            tracing::warn!("no memory for a queue at the offset that siw cannot map");
        }
        guard
    }

    /// Destroys the guard.
    ///
    /// # Safety
    /// The device is open.
    pub(crate) unsafe fn destroy(self, libraries: &Libraries) {
        // SAFETY: created by `create`, and not used by other code; the device is open (caller).
        unsafe { libraries.verbs.ibv_destroy_cq(self.0.as_ptr()) };
    }
}

/// Returns the entries of a queue that ends before the offset, and of a queue after it that crosses
/// the offset.
fn lens(page_len: usize) -> [i32; 2] {
    let page = OFFSET / page_len;
    let pages = |len: i32| (len as usize * ENTRY_LEN + CONTROL_LEN).div_ceil(page_len);
    let powers = || (0..20).map(|power| 1 << power);
    let before = powers().rev().find(|len| pages(*len) < page).unwrap_or(1);
    let crosses = |len: &i32| pages(before) + pages(*len) > page;
    [before, powers().find(crosses).unwrap_or(1)]
}

fn page_len() -> usize {
    // SAFETY: the call takes no pointers.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(len)
        .ok()
        .filter(|len| *len > 0)
        .unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_begins_before_the_offset_and_ends_after_it() {
        assert_eq!(lens(4096), [16384, 2048]);
        for page_len in [4096, 16384, 65536] {
            let page = OFFSET / page_len;
            let [before, across] = lens(page_len).map(|len| {
                let bytes = usize::try_from(len).unwrap() * ENTRY_LEN + CONTROL_LEN;
                bytes.div_ceil(page_len)
            });
            assert!(before < page && before + across > page, "{page_len}");
        }
    }
}
