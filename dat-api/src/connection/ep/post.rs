//! Posting work to an endpoint (DAT 2.0 section 6.6.2).

use dat_abi::*;

use super::super::Ep;
use crate::error::{Error, Result, check};
use crate::library::Library;
use crate::lmr::RemoteRegion;
use crate::segment::{Segment, with_iov};

/// Way in which a request completes (`DAT_COMPLETION_FLAGS`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletionFlags(DatCompletionFlags);

impl CompletionFlags {
    /// Completes with an event.
    pub const DEFAULT: Self = Self(DAT_COMPLETION_DEFAULT_FLAG);
    /// Completes without an event on success.
    pub const SUPPRESS: Self = Self(DAT_COMPLETION_SUPPRESS_FLAG);
    /// Wakes a thread of the peer that waits for solicited events only.
    pub const SOLICITED_WAIT: Self = Self(DAT_COMPLETION_SOLICITED_WAIT_FLAG);
    /// Completes with an event that wakes no local waiter.
    pub const UNSIGNALLED: Self = Self(DAT_COMPLETION_UNSIGNALLED_FLAG);
    /// Starts only after the RDMA Reads posted earlier have completed.
    pub const BARRIER_FENCE: Self = Self(DAT_COMPLETION_BARRIER_FENCE_FLAG);
    /// Makes the sender copy the payload, where the provider has a choice. Use this flag for Sends
    /// that the receiver copies out of its buffer, so that each end makes one copy.
    /// [`ProviderAttr::completion_flags_supported`](crate::ProviderAttr) shows whether the provider
    /// accepts the flag.
    pub const INLINE: Self = Self(DAT_RS_COMPLETION_INLINE_FLAG);

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
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES` when the queue is full, `DAT_INVALID_PARAMETER` for more
    /// segments than the endpoint allows, `DAT_INVALID_STATE` when the endpoint takes its receives
    /// from a shared queue.
    #[inline]
    pub fn post_recv(&self, segments: &[Segment<'_>], cookie: u64) -> Result<()> {
        self.post_recv_with(segments, cookie, CompletionFlags::DEFAULT)
    }

    /// Posts a receive with a completion flag: [`UNSIGNALLED`](CompletionFlags::UNSIGNALLED) wakes
    /// no waiter.
    #[inline]
    pub fn post_recv_with(
        &self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let post = self.library().dat_ep_post_recv;
        let cookie = DatContext::from_u64(cookie);
        self.post("dat_ep_post_recv", segments, |ep, count, iov| {
            // SAFETY: `post` guarantees the endpoint, the list and the memory.
            unsafe { post(ep, count, iov, cookie, flags.bits()) }
        })
    }

    /// Sends the segments as one message into the peer's next receive.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` when the endpoint is neither connected nor disconnected (work posted to
    /// a disconnected endpoint is flushed), `DAT_INSUFFICIENT_RESOURCES` when the queue is full,
    /// `DAT_INVALID_PARAMETER` for more segments than the endpoint allows. The other requests fail
    /// for the same reasons, and with `DAT_LENGTH_ERROR` when the segments are longer than the
    /// remote region.
    #[inline]
    pub fn post_send(
        &self,
        segments: &[Segment<'_>],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let post = self.library().dat_ep_post_send;
        let cookie = DatContext::from_u64(cookie);
        self.post("dat_ep_post_send", segments, |ep, count, iov| {
            // SAFETY: `post` guarantees the endpoint, the list and the memory.
            unsafe { post(ep, count, iov, cookie, flags.bits()) }
        })
    }

    /// Sends the segments as one message and invalidates the peer's memory window that has this RMR
    /// context; the completion of the peer's receive reports the invalidation.
    ///
    /// # Errors
    /// Those of [`post_send`](Self::post_send), and [`Error::Missing`] with OFA's registry library,
    /// which does not export this call.
    pub fn post_send_with_invalidate(
        &self,
        segments: &[Segment<'_>],
        rmr_context: u32,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        const CALL: &str = "dat_ep_post_send_with_invalidate";
        let post = self.library().dat_ep_post_send_with_invalidate;
        let post = post.ok_or(Error::Missing { call: CALL })?;
        let cookie = DatContext::from_u64(cookie);
        self.post(CALL, segments, |ep, count, iov| {
            // SAFETY: `post` guarantees the endpoint, the list and the memory.
            unsafe { post(ep, count, iov, cookie, flags.bits(), DAT_TRUE, rmr_context) }
        })
    }

    /// Writes the segments into the peer's memory. The peer's program is not notified.
    #[inline]
    pub fn post_rdma_write(
        &self,
        segments: &[Segment<'_>],
        remote: RemoteRegion,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let post = self.library().dat_ep_post_rdma_write;
        let (remote, cookie) = (remote.to_raw(), DatContext::from_u64(cookie));
        self.post("dat_ep_post_rdma_write", segments, |ep, count, iov| {
            // SAFETY: `post` guarantees the endpoint, the list and the memory; the remote triplet
            // is readable for the call.
            unsafe { post(ep, count, iov, cookie, &remote, flags.bits()) }
        })
    }

    /// Reads the peer's memory into the segments. The peer's program is not notified.
    #[inline]
    pub fn post_rdma_read(
        &self,
        segments: &[Segment<'_>],
        remote: RemoteRegion,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let post = self.library().dat_ep_post_rdma_read;
        let (remote, cookie) = (remote.to_raw(), DatContext::from_u64(cookie));
        self.post("dat_ep_post_rdma_read", segments, |ep, count, iov| {
            // SAFETY: as in `post_rdma_write`.
            unsafe { post(ep, count, iov, cookie, &remote, flags.bits()) }
        })
    }

    /// Writes the segments into the peer's memory and then completes one receive of the peer with
    /// `immediate` (IB extension; [`DtoCompletion::immediate`](crate::DtoCompletion::immediate)).
    pub fn post_rdma_write_immediate(
        &self,
        segments: &[Segment<'_>],
        remote: RemoteRegion,
        immediate: u32,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let (post, remote) = (self.library().dat_extension_op, remote.to_raw());
        self.post(
            "dat_ib_post_rdma_write_immed",
            segments,
            |ep, count, iov| {
                // SAFETY: `post` guarantees the endpoint, the list and the memory; the variadic
                // arguments are those of the operation: int count, list, 8-byte cookie, readable
                // triplet, u32 immediate, u32 flags.
                unsafe {
                    let op = DAT_IB_RDMA_WRITE_IMMED_OP;
                    let remote = &raw const remote;
                    post(ep, op, count, iov, cookie, remote, immediate, flags.bits())
                }
            },
        )
    }

    /// Adds to eight bytes of the peer, at an address that is a multiple of eight and registered
    /// with [`REMOTE_ATOMIC`](crate::Privileges::REMOTE_ATOMIC). The value before the addition is
    /// stored in `result` (IB extension).
    pub fn post_fetch_add(
        &self,
        result: Segment<'_>,
        remote: RemoteRegion,
        add: u64,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let (post, remote) = (self.library().dat_extension_op, remote.to_raw());
        self.post("dat_ib_post_fetch_and_add", &[result], |ep, _, local| {
            // SAFETY: `post` guarantees the endpoint and the memory; the variadic arguments are
            // those of the operation: u64, triplet, 8-byte cookie, readable triplet, u32 flags.
            unsafe {
                let op = DAT_IB_FETCH_AND_ADD_OP;
                post(ep, op, add, local, cookie, &raw const remote, flags.bits())
            }
        })
    }

    /// Replaces eight bytes of the peer by `swap` if they equal `compare`. The value before is
    /// stored in `result` (IB extension). See [`post_fetch_add`](Self::post_fetch_add).
    pub fn post_compare_swap(
        &self,
        result: Segment<'_>,
        remote: RemoteRegion,
        (compare, swap): (u64, u64),
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let (post, remote) = (self.library().dat_extension_op, remote.to_raw());
        self.post("dat_ib_post_cmp_and_swap", &[result], |ep, _, local| {
            // SAFETY: as in `post_fetch_add`, with one u64 more.
            unsafe {
                let (op, remote) = (DAT_IB_CMP_AND_SWAP_OP, &raw const remote);
                post(ep, op, compare, swap, local, cookie, remote, flags.bits())
            }
        })
    }

    /// The common part of all posts. `post` receives a live endpoint and a readable list of
    /// segments. This endpoint keeps the memory of the segments alive, or the contract of
    /// `Lmr::register` covers it.
    #[inline]
    fn post(
        &self,
        call: &'static str,
        segments: &[Segment<'_>],
        post: impl FnOnce(DatEpHandle, DatCount, *mut DatLmrTriplet) -> DatReturn,
    ) -> Result<()> {
        self.inner.posted_regions.keep(segments);
        let code = with_iov(segments, |count, iov| post(self.as_raw(), count, iov))?;
        Ok(check(call, code)?)
    }

    #[inline]
    pub(super) fn library(&self) -> &'static Library {
        self.inner.pz.ia().library()
    }
}
