//! Payload that is copied when a send is posted (`IBV_SEND_INLINE`).
//!
//! The header permits payload without a registration, which the program may overwrite as soon as
//! the call has returned. The RNIC reads payload from registered memory, so each queue pair has a
//! registered ring of as many places as it has sends.

use std::cell::UnsafeCell;
use std::sync::Arc;

use provider_iwarp_soft::{SoftMr, SoftRnic};
use rnic::{Access, RegisterMr, Rnic as _, RnicError, Sge};

use crate::domains::Pd;

/// The ring of a queue pair. Declared in the order of destruction: the region before its memory.
pub(super) struct InlineRing {
    mr: Option<SoftMr>,
    rnic: Arc<SoftRnic>,
    memory: Box<[UnsafeCell<u8>]>,
    place_len: usize,
    /// The number of payloads that were copied.
    copied: usize,
}

// SAFETY: a place is written by `copy`, which has `&mut self`, and by no other code. The RNIC reads
// a place only until its send has completed, and `copy` reuses it only afterwards.
unsafe impl Send for InlineRing {}

rnic::opaque_debug!(InlineRing { place_len, copied });

impl InlineRing {
    /// Creates a ring for `count` payloads of up to `place_len` bytes. A queue pair without inline
    /// payload has no ring.
    pub(super) fn new(pd: &Pd, count: u32, place_len: u32) -> Result<Self, RnicError> {
        let place_len = place_len as usize;
        let memory: Box<[UnsafeCell<u8>]> = std::iter::repeat_with(|| UnsafeCell::new(0))
            .take(count as usize * place_len)
            .collect();
        let request = RegisterMr {
            addr: memory.as_ptr().addr() as u64,
            len: memory.len() as u64,
            access: Access {
                local_read: true,
                ..Access::default()
            },
            iova: None,
        };
        let mr = match memory.is_empty() {
            true => None,
            false => Some(pd.rnic.register_mr(&pd.hw, &request)?),
        };
        let rnic = pd.rnic.clone();
        Ok(Self {
            mr,
            rnic,
            memory,
            place_len,
            copied: 0,
        })
    }

    /// Copies a payload to the next place and returns the segment that names it. `None` if the
    /// payload is too long.
    ///
    /// # Safety
    /// The segments are readable memory, and fewer sends than the ring has places are unfinished,
    /// which complete in the order of their posts.
    pub(super) unsafe fn copy(&mut self, sgl: &[Sge]) -> Option<Sge> {
        let len: usize = sgl.iter().map(|sge| sge.len as usize).sum();
        if len > self.place_len {
            return None;
        }
        let Some(mr) = self.mr.as_ref().filter(|_| len > 0) else {
            return Some(Sge::default());
        };
        let start = self.copied * self.place_len % self.memory.len();
        let place = &self.memory[start..start + len];
        let mut to = place.as_ptr().cast::<u8>().cast_mut();
        for sge in sgl {
            let from = std::ptr::with_exposed_provenance::<u8>(sge.addr as usize);
            // SAFETY: the segments are readable (caller), and their sum fits into the place, which
            // the RNIC no longer reads: the send that used it has completed (caller).
            unsafe {
                std::ptr::copy_nonoverlapping(from, to, sge.len as usize);
                to = to.add(sge.len as usize);
            }
        }
        self.copied += 1;
        Some(Sge {
            addr: place.as_ptr().addr() as u64,
            len: len as u32,
            lkey: self.rnic.mr_keys(mr).lkey,
        })
    }
}
