//! Shared receive queues (DAT 2.0 section 6.7).

use std::sync::Arc;

use dat_abi::*;

use crate::error::{Result, check, to_count};
use crate::handle::{Handle, SrqId};
use crate::leak::keep_for_ever;
use crate::library::Library;
use crate::posted_regions::PostedRegions;
use crate::pz::Pz;
use crate::segment::{Segment, with_iov};

/// A queue of receives that several endpoints share. Clones share the queue, and its endpoints hold
/// clones; dropping the last clone frees the queue. Not every provider supports these queues.
#[derive(Clone)]
pub struct Srq {
    inner: Arc<SrqInner>,
}

/// Result of `dat_srq_query`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqInfo {
    /// Maximum number of receives.
    pub max_recv_dtos: u32,
    /// The low watermark that was set last ([`Srq::set_low_watermark`]).
    pub low_watermark: u32,
    /// Number of receives that no message has consumed, where the provider counts them.
    pub available: Option<u32>,
    /// Number of receives that messages have consumed and that have not completed, where the
    /// provider counts them.
    pub outstanding: Option<u32>,
}

/// The name of a number of receives in errors.
const SIZE: &str = "a queue size";

struct SrqInner {
    handle: Handle,
    pz: Pz,
    posted_regions: PostedRegions,
}

impl Srq {
    /// Creates a queue for `max_recv_dtos` receives of up to `max_recv_iov` segments.
    pub fn create(pz: &Pz, max_recv_dtos: u32, max_recv_iov: u32) -> Result<Self> {
        let mut attr = DatSrqAttr {
            max_recv_dtos: to_count(max_recv_dtos, SIZE)?,
            max_recv_iov: to_count(max_recv_iov, SIZE)?,
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
            posted_regions: PostedRegions::new(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Posts memory for one message, which any endpoint of the queue may receive.
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<()> {
        self.inner.posted_regions.keep(segments);
        let code = with_iov(segments, |count, iov| {
            // SAFETY: the handle is live and the list readable; this queue keeps its memory alive,
            // or the contract of `Lmr::register` covers it.
            unsafe {
                let post = self.inner.pz.ia().library().dat_srq_post_recv;
                post(self.as_raw(), count, iov, DatContext::from_u64(cookie))
            }
        })?;
        Ok(check("dat_srq_post_recv", code)?)
    }

    /// Changes the maximum number of receives; receives in the queue are kept.
    pub fn resize(&self, max_recv_dtos: u32) -> Result<()> {
        let max_recv_dtos = to_count(max_recv_dtos, SIZE)?;
        // SAFETY: the handle is live.
        let code = unsafe { (self.library().dat_srq_resize)(self.as_raw(), max_recv_dtos) };
        Ok(check("dat_srq_resize", code)?)
    }

    /// Requests one asynchronous event when fewer than `low_watermark` receives remain; 0 cancels
    /// the request. The event is [`AsyncKind::EpBroken`](crate::AsyncKind::EpBroken) with the queue
    /// as its object and `DAT_SRQ_LOW_WATERMARK_EVENT` as its reason. For another event the
    /// watermark must be set again.
    pub fn set_low_watermark(&self, low_watermark: u32) -> Result<()> {
        let low_watermark = to_count(low_watermark, SIZE)?;
        // SAFETY: the handle is live.
        let code = unsafe { (self.library().dat_srq_set_lw)(self.as_raw(), low_watermark) };
        Ok(check("dat_srq_set_lw", code)?)
    }

    /// Returns the depth, the low watermark and the counts (`dat_srq_query`).
    pub fn query(&self) -> Result<SrqInfo> {
        let mut param = DatSrqParam::zeroed();
        // SAFETY: the handle is live and the out-pointer writable.
        let code =
            unsafe { (self.library().dat_srq_query)(self.as_raw(), DAT_SRQ_FIELD_ALL, &mut param) };
        check("dat_srq_query", code)?;
        // A number that the provider does not count is negative.
        let known = |value: DatCount| u32::try_from(value).ok();
        Ok(SrqInfo {
            max_recv_dtos: known(param.max_recv_dtos).unwrap_or(0),
            low_watermark: known(param.low_watermark).unwrap_or(0),
            available: known(param.available_dto_count),
            outstanding: known(param.outstanding_dto_count),
        })
    }

    /// The identity in [`AsyncError::object`](crate::AsyncError::object).
    #[must_use]
    pub fn id(&self) -> SrqId {
        SrqId::of(self.as_raw())
    }

    fn library(&self) -> &'static Library {
        self.inner.pz.ia().library()
    }

    /// The handle, for calls through [`Library`]. Valid while `self` or a clone lives.
    #[must_use]
    pub fn as_raw(&self) -> DatSrqHandle {
        self.inner.handle.0
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // SAFETY: endpoints that use the queue hold a clone, so none of them exists any more.
        let code = unsafe { (self.pz.ia().library().dat_srq_free)(self.handle.0) };
        let freed = check("dat_srq_free", code);
        if freed.is_err() {
            self.posted_regions.leak();
        }
        keep_for_ever(freed, &self.pz);
    }
}

opaque_debug!(Srq, |_| []);
