//! Posting work to an endpoint (DAT 2.0 section 6.6.2).

use dat_abi::*;

use super::Ep;
use crate::error::{Error, Result, check};
use crate::lmr::{RemoteRegion, Segment};

/// How a request completes (`DAT_COMPLETION_FLAGS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletionFlags(DatCompletionFlags);

impl CompletionFlags {
    /// With an event.
    pub const DEFAULT: Self = Self(DAT_COMPLETION_DEFAULT_FLAG);
    /// Without an event on success.
    pub const SUPPRESS: Self = Self(DAT_COMPLETION_SUPPRESS_FLAG);
    /// Wakes a waiter at the peer that sleeps until something solicited comes.
    pub const SOLICITED_WAIT: Self = Self(DAT_COMPLETION_SOLICITED_WAIT_FLAG);
    /// With an event that wakes nobody here.
    pub const UNSIGNALLED: Self = Self(DAT_COMPLETION_UNSIGNALLED_FLAG);
    /// Not before the RDMA Reads posted earlier have completed.
    pub const BARRIER_FENCE: Self = Self(DAT_COMPLETION_BARRIER_FENCE_FLAG);

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }
}

impl std::ops::BitOr for CompletionFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Ep {
    /// Posts memory for one message of the peer. Allowed in every state.
    #[inline]
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<()> {
        self.inner.keeper.keep(segments);
        let code = with_iov(segments, |count, iov| {
            // SAFETY: the handle is live, the list readable; its memory is kept by this endpoint or
            // covered by the contract of `Lmr::register`. So in the posts below.
            unsafe {
                (self.inner.pz.ia().library().dat_ep_post_recv)(
                    self.as_raw(),
                    count,
                    iov,
                    DatContext::from_u64(cookie),
                    DAT_COMPLETION_DEFAULT_FLAG,
                )
            }
        })?;
        Ok(check("dat_ep_post_recv", code)?)
    }

    /// Sends the segments as one message into the peer's next receive.
    #[inline]
    pub fn post_send(
        &self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.inner.keeper.keep(segments);
        let code = with_iov(segments, |count, iov| {
            // SAFETY: as in `post_recv`.
            unsafe {
                (self.inner.pz.ia().library().dat_ep_post_send)(
                    self.as_raw(),
                    count,
                    iov,
                    DatContext::from_u64(cookie),
                    flags.bits(),
                )
            }
        })?;
        Ok(check("dat_ep_post_send", code)?)
    }

    /// Writes the segments into the peer's memory. The peer's program is not told.
    #[inline]
    pub fn post_rdma_write(
        &self,
        segments: &[Segment<'_>],
        remote: RemoteRegion,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.inner.keeper.keep(segments);
        let remote = remote.to_raw();
        let code = with_iov(segments, |count, iov| {
            // SAFETY: as in `post_recv`; the remote triplet is readable for the call.
            unsafe {
                (self.inner.pz.ia().library().dat_ep_post_rdma_write)(
                    self.as_raw(),
                    count,
                    iov,
                    DatContext::from_u64(cookie),
                    &remote,
                    flags.bits(),
                )
            }
        })?;
        Ok(check("dat_ep_post_rdma_write", code)?)
    }

    /// Reads the peer's memory into the segments. The peer's program is not told.
    #[inline]
    pub fn post_rdma_read(
        &self,
        segments: &[Segment<'_>],
        remote: RemoteRegion,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        self.inner.keeper.keep(segments);
        let remote = remote.to_raw();
        let code = with_iov(segments, |count, iov| {
            // SAFETY: as in `post_rdma_write`.
            unsafe {
                (self.inner.pz.ia().library().dat_ep_post_rdma_read)(
                    self.as_raw(),
                    count,
                    iov,
                    DatContext::from_u64(cookie),
                    &remote,
                    flags.bits(),
                )
            }
        })?;
        Ok(check("dat_ep_post_rdma_read", code)?)
    }
}

/// Segments that are passed without allocating.
const INLINE_SEGMENTS: usize = 8;

/// Calls `post` with the segments as a C list, which need not outlive the call: providers copy it
/// (`DAT_IOV_CONSUMER`).
#[inline]
pub(crate) fn with_iov(
    segments: &[Segment<'_>],
    post: impl FnOnce(DatCount, *mut DatLmrTriplet) -> DatReturn,
) -> Result<DatReturn> {
    let count = DatCount::try_from(segments.len()).map_err(|_| Error::Unrepresentable {
        what: "a number of segments",
    })?;
    if segments.len() <= INLINE_SEGMENTS {
        let mut list = [DatLmrTriplet::zeroed(); INLINE_SEGMENTS];
        for (slot, segment) in list.iter_mut().zip(segments) {
            *slot = segment.triplet;
        }
        Ok(post(count, list.as_mut_ptr()))
    } else {
        let mut list: Vec<_> = segments.iter().map(|segment| segment.triplet).collect();
        Ok(post(count, list.as_mut_ptr()))
    }
}
