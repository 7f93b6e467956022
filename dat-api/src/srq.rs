//! Shared receive queues (DAT 2.0 section 6.8).

use std::fmt;
use std::sync::Arc;

use dat_abi::*;

use crate::ep::with_iov;
use crate::error::{Error, Result, check};
use crate::handle::Handle;
use crate::keep::Keeper;
use crate::leak::keep_for_ever;
use crate::lmr::Segment;
use crate::pz::Pz;

/// A queue of receives that several endpoints share. Clones share it; the last one, endpoints
/// included, frees it. Not every provider has them.
#[derive(Clone)]
pub struct Srq {
    inner: Arc<SrqInner>,
}

struct SrqInner {
    handle: Handle,
    pz: Pz,
    keeper: Keeper,
}

impl Srq {
    /// Creates a queue for `max_recv_dtos` receives of up to `max_recv_iov` segments.
    pub fn create(pz: &Pz, max_recv_dtos: u32, max_recv_iov: u32) -> Result<Self> {
        let count = |value: u32| {
            DatCount::try_from(value).map_err(|_| Error::Unrepresentable {
                what: "a queue size",
            })
        };
        let mut attr = DatSrqAttr {
            max_recv_dtos: count(max_recv_dtos)?,
            max_recv_iov: count(max_recv_iov)?,
            low_watermark: DAT_SRQ_LW_DEFAULT,
        };
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: IA and zone are live; attributes and out-pointer are writable for the call.
        let code = unsafe {
            let create = pz.ia().library().dat_srq_create;
            create(pz.ia().as_raw(), pz.as_raw(), &mut attr, &mut handle)
        };
        check("dat_srq_create", code)?;
        let inner = SrqInner {
            handle: Handle(handle),
            pz: pz.clone(),
            keeper: Keeper::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Posts memory for one message to whichever endpoint gets it.
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<()> {
        self.inner.keeper.keep(segments);
        let code = with_iov(segments, |count, iov| {
            // SAFETY: the handle is live, the list readable; its memory is kept by this queue or
            // covered by the contract of `Lmr::register`.
            unsafe {
                let post = self.inner.pz.ia().library().dat_srq_post_recv;
                post(self.as_raw(), count, iov, DatContext::from_u64(cookie))
            }
        })?;
        Ok(check("dat_srq_post_recv", code)?)
    }

    /// The handle, for calls through [`Library`](crate::Library). Valid while `self` or a clone
    /// lives.
    #[must_use]
    pub fn as_raw(&self) -> DatSrqHandle {
        self.inner.handle.0
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: endpoints that use it hold it, so none is left.
        let code = unsafe { (self.pz.ia().library().dat_srq_free)(self.handle.0) };
        let freed = check("dat_srq_free", code);
        if freed.is_err() {
            self.keeper.leak();
        }
        keep_for_ever(freed, &self.pz);
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Srq").finish_non_exhaustive()
    }
}
