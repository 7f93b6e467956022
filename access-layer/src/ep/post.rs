//! The data path: from a posted data transfer to the RNIC.
//!
//! A post takes no lock of this layer, allocates nothing and copies no segment list. It reads the
//! state by one atomic load. A work request that races with a change of state counts as posted
//! before or after the change. If the connection has ended, the RNIC completes the request as
//! flushed.

use std::sync::atomic::Ordering;

use dat_abi::*;

use super::connect::NOT_READY;
use super::{Ep, QueuePair};
use crate::error::{DatError, DatResult};
use crate::handle::{self, AnyPin, Handle};
use crate::rnic::{BindMw, Completion, RecvWr, RemoteRange, Rnic, SendOp, SendWr, Sge};

/// All completion flags of DAT 2.0.
const FLAGS: DatCompletionFlags = DAT_COMPLETION_SUPPRESS_FLAG
    | DAT_COMPLETION_SOLICITED_WAIT_FLAG
    | DAT_COMPLETION_UNSIGNALLED_FLAG
    | DAT_COMPLETION_BARRIER_FENCE_FLAG
    | DAT_COMPLETION_EVD_THRESHOLD_FLAG
    | DAT_COMPLETION_LMR_INVALIDATE_FENCE_FLAG;

impl<R: Rnic> Ep<R> {
    /// Implements `dat_ep_post_send`.
    #[inline]
    pub fn post_send(&self, sgl: &[Sge], cookie: u64, flags: DatCompletionFlags) -> DatResult {
        self.post_send_with_invalidate(sgl, cookie, flags, None)
    }

    /// Implements `dat_ep_post_send_with_invalidate`; `invalidate` is the peer's RMR context to
    /// invalidate.
    #[inline]
    pub fn post_send_with_invalidate(
        &self,
        sgl: &[Sge],
        cookie: u64,
        flags: DatCompletionFlags,
        invalidate: Option<DatRmrContext>,
    ) -> DatResult {
        let queue_pair = self.for_requests()?;
        check_segments(sgl, queue_pair.segments.send)?;
        check_flags(flags & !DAT_RS_COMPLETION_INLINE_FLAG, 5)?;
        let solicited = flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG != 0;
        let op = SendOp::Send {
            solicited,
            invalidate,
        };
        self.post(queue_pair, op, sgl, cookie, flags)
    }

    /// Implements `dat_ep_post_rdma_write`.
    #[inline]
    pub fn post_rdma_write(
        &self,
        sgl: &[Sge],
        cookie: u64,
        remote: &DatRmrTriplet,
        flags: DatCompletionFlags,
    ) -> DatResult {
        let queue_pair = self.for_requests()?;
        check_segments(sgl, queue_pair.segments.write)?;
        check_flags(flags, 6)?;
        let op = SendOp::Write(range(sgl, remote)?);
        self.post(queue_pair, op, sgl, cookie, flags)
    }

    /// Implements `dat_ep_post_rdma_read`.
    #[inline]
    pub fn post_rdma_read(
        &self,
        sgl: &[Sge],
        cookie: u64,
        remote: &DatRmrTriplet,
        flags: DatCompletionFlags,
    ) -> DatResult {
        let queue_pair = self.for_requests()?;
        check_segments(sgl, queue_pair.segments.read)?;
        check_flags(flags, 6)?;
        let op = SendOp::Read(range(sgl, remote)?);
        self.post(queue_pair, op, sgl, cookie, flags)
    }

    /// Implements `dat_ep_post_rdma_read_to_rmr`: the context of a window names the sink.
    pub fn post_rdma_read_to_rmr(
        &self,
        local: &DatRmrTriplet,
        cookie: u64,
        remote: &DatRmrTriplet,
        flags: DatCompletionFlags,
    ) -> DatResult {
        let queue_pair = self.for_requests()?;
        check_flags(flags, 5)?;
        if local.segment_length > remote.segment_length {
            return Err(DatError::of(DAT_LENGTH_ERROR));
        }
        let len = local.segment_length;
        let op = SendOp::ReadToWindow {
            local: remote_range(local, len),
            remote: remote_range(remote, len),
        };
        self.post(queue_pair, op, &[], cookie, flags)
    }

    /// Posts an RDMA Write followed by immediate data (IB extension).
    pub(crate) fn post_rdma_write_immediate(
        &self,
        sgl: &[Sge],
        cookie: u64,
        remote: &DatRmrTriplet,
        immediate: u32,
        flags: DatCompletionFlags,
    ) -> DatResult {
        let queue_pair = self.for_requests()?;
        check_segments(sgl, queue_pair.segments.write)?;
        let op = SendOp::WriteImmediate {
            to: range(sgl, remote)?,
            value: immediate,
            solicited: flags & DAT_COMPLETION_SOLICITED_WAIT_FLAG != 0,
        };
        self.post(queue_pair, op, sgl, cookie, flags)
    }

    /// Posts an atomic operation on eight bytes of the peer (IB extension); `op` creates the
    /// operation for their range.
    pub(crate) fn post_atomic(
        &self,
        op: impl FnOnce(RemoteRange) -> SendOp,
        local: &Sge,
        cookie: u64,
        remote: &DatRmrTriplet,
        flags: DatCompletionFlags,
    ) -> DatResult {
        const LEN: u32 = size_of::<u64>() as u32;
        let queue_pair = self.for_requests()?;
        if local.len < LEN || !fits(LEN, remote) {
            return Err(DatError::of(DAT_LENGTH_ERROR));
        }
        let sgl = [Sge { len: LEN, ..*local }];
        self.post(
            queue_pair,
            op(remote_range(remote, LEN)),
            &sgl,
            cookie,
            flags,
        )
    }

    /// Implements `dat_ep_post_recv`, in any state.
    #[inline]
    pub fn post_recv(&self, sgl: &[Sge], cookie: u64, flags: DatCompletionFlags) -> DatResult {
        let queue_pair = self.queue_pair.get().ok_or(NOT_READY)?;
        if queue_pair.shares_receives {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_SRQ_IN_USE));
        }
        check_segments(sgl, queue_pair.segments.recv)?;
        check_flags(flags, 5)?;
        let signalled = flags & DAT_COMPLETION_UNSIGNALLED_FLAG == 0;
        let wr = RecvWr {
            wr_id: cookie,
            sgl,
            signalled,
        };
        self.ia.rnic().post_recv(&queue_pair.qp, &wr)?;
        self.counters.transfer(DCNT_EP_POST_RECV, len_of(sgl));
        Ok(())
    }

    /// Called when the consumer takes the event of a completion. The consumer may then post another
    /// request or receive in the place of the completed one.
    pub(super) fn on_taken(completion: &Completion) -> Option<AnyPin> {
        let ep = handle::pin_handle::<Self>(Handle::from_token(completion.qp.0)?)?;
        if let Some(queue_pair) = ep.queue_pair.get() {
            ep.ia.rnic().on_taken(&queue_pair.qp, completion);
        }
        Some(ep.erase())
    }

    /// Posts the bind of a memory window; returns the key that the window will have.
    pub fn bind_mw(&self, mw: &R::Mw, bind: &BindMw<'_, R>) -> DatResult<u32> {
        if self.state_code.load(Ordering::Acquire) != DAT_EP_STATE_CONNECTED {
            return Err(super::WrongState(self.lock().machine.state()).into());
        }
        let queue_pair = self.queue_pair.get().ok_or(NOT_READY)?;
        Ok(self.ia.rnic().bind_mw(&queue_pair.qp, mw, bind)?)
    }

    #[inline]
    fn count(&self, wr: &SendWr<'_>) {
        let (index, bytes) = match wr.op {
            SendOp::Send { .. } | SendOp::SendImmediate { .. } => {
                (DCNT_EP_POST_SEND, len_of(wr.sgl))
            }
            // Not posted by this crate.
            SendOp::LocalInvalidate(_) => (DCNT_EP_POST_SEND, 0),
            SendOp::Write(to) => (DCNT_EP_POST_WRITE, u64::from(to.len)),
            SendOp::WriteImmediate { to, .. } => (DCNT_EP_POST_WRITE_IMM, u64::from(to.len)),
            SendOp::Read(from) | SendOp::ReadToWindow { remote: from, .. } => {
                (DCNT_EP_POST_READ, u64::from(from.len))
            }
            SendOp::FetchAdd(..) => return self.counters.bump(DCNT_EP_POST_FETCH_ADD),
            SendOp::CompareSwap { .. } => return self.counters.bump(DCNT_EP_POST_CMP_SWAP),
        };
        self.counters.transfer(index, bytes);
    }

    /// Returns the queue pair if the state allows requests: connected, or disconnected. In the
    /// latter state requests complete as flushed.
    #[inline]
    fn for_requests(&self) -> DatResult<&QueuePair<R>> {
        match self.state_code.load(Ordering::Acquire) {
            DAT_EP_STATE_CONNECTED | DAT_EP_STATE_DISCONNECTED => {
                self.queue_pair.get().ok_or(NOT_READY)
            }
            // OFA's providers return this subtype for every other state.
            _ => Err(DatError::invalid_state(DAT_INVALID_STATE_EP_UNCONNECTED)),
        }
    }

    #[inline]
    fn post(
        &self,
        queue_pair: &QueuePair<R>,
        op: SendOp,
        sgl: &[Sge],
        cookie: u64,
        flags: DatCompletionFlags,
    ) -> DatResult {
        let wr = SendWr {
            wr_id: cookie,
            op,
            sgl,
            completion: flags & DAT_COMPLETION_SUPPRESS_FLAG == 0,
            signalled: flags & DAT_COMPLETION_UNSIGNALLED_FLAG == 0,
            fence: flags & DAT_COMPLETION_BARRIER_FENCE_FLAG != 0,
            inline: flags & DAT_RS_COMPLETION_INLINE_FLAG != 0,
        };
        self.ia.rnic().post_send(&queue_pair.qp, &wr)?;
        self.count(&wr);
        Ok(())
    }
}

#[inline]
fn len_of(sgl: &[Sge]) -> u64 {
    sgl.iter().map(|segment| u64::from(segment.len)).sum()
}

#[inline]
fn check_segments(sgl: &[Sge], limit: u32) -> DatResult {
    if sgl.len() > limit as usize {
        return Err(DatError::invalid_arg(2));
    }
    Ok(())
}

/// Refuses completion flags that DAT does not define.
#[inline]
pub(crate) fn check_flags(flags: DatCompletionFlags, argument: u32) -> DatResult {
    if flags & !FLAGS != 0 {
        return Err(DatError::invalid_arg(argument));
    }
    Ok(())
}

/// Returns the part of the peer's memory that the local segments cover; the segments must not be
/// longer than `remote`, if its length is given.
#[inline]
fn range(sgl: &[Sge], remote: &DatRmrTriplet) -> DatResult<RemoteRange> {
    match u32::try_from(len_of(sgl)) {
        Ok(len) if fits(len, remote) => Ok(remote_range(remote, len)),
        _ => Err(DatError::of(DAT_LENGTH_ERROR)),
    }
}

/// Returns true if a transfer of `len` bytes fits the peer's triplet. OFA's providers never read
/// its length, and consumers written for them leave it 0; the peer checks the range in any case.
#[inline]
fn fits(len: u32, remote: &DatRmrTriplet) -> bool {
    len <= remote.segment_length || remote.segment_length == 0
}

#[inline]
fn remote_range(remote: &DatRmrTriplet, len: u32) -> RemoteRange {
    RemoteRange {
        addr: remote.virtual_address,
        len,
        rkey: remote.rmr_context,
    }
}
