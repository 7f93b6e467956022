//! Posting.
//!
//! A request is recorded before it is posted to the device, because it may complete before the call
//! returns. If the device refuses the request, the record is removed, unless the device has
//! completed the request nevertheless. All steps hold the lock of one direction, so the records
//! have the device's order.

use std::ptr;

use rnic::{BindMw, RecvWr, RemoteRange, Resource, Rnic, RnicError, SendOp, SendWr, WcOpcode};
use verbs_dl::types::*;

use super::{Lifecycle, Qp, Side, lock};
use crate::device::of;
use crate::memory::{Mr, access_flags};
use crate::quirks::Quirks;
use crate::segments::Segments;
use crate::work::{At, Kind, Posted, Ticket};

/// The key of a zero-length write, which accesses no memory. Some adapters refuse the key 0 even
/// for such a write.
const NO_KEY: u32 = 1;

/// The destination of a request, by the state of the queue pair.
enum Way {
    /// The request is posted to the device.
    Device,
    /// The request is recorded in the queue, and flushed with it.
    Wait,
    /// The request completes as flushed at once.
    Flush,
}

/// A work request without its number.
struct Request {
    wr: ibv_send_wr,
    posted: Posted,
}

/// A posted bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    /// The window's key after the bind has completed.
    pub(crate) rkey: u32,
    /// The request's sequence number, if it was posted to the device.
    pub(crate) last: Option<u32>,
}

impl Qp {
    #[inline]
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> Result<(), RnicError> {
        let mut segments = Segments::of(wr.sgl, self.attr.send_sge_max)?;
        let mut request = self.request(wr, &segments)?;
        request.wr.sg_list = segments.as_mut_ptr();
        request.wr.num_sge = segments.count();
        let inline = matches!(request.posted.opcode, WcOpcode::Send | WcOpcode::RdmaWrite)
            && segments.total() <= self.inline_max
            && segments.total() > 0
            && self.shared.regions.cover(segments.as_slice());
        if inline {
            request.wr.send_flags |= IBV_SEND_INLINE;
        }
        self.submit(request, |qp, wr| {
            // SAFETY: the queue pair is alive while its send lock is held; the request and its
            // segments are on the stack of this call.
            unsafe { verbs_dl::post_send(qp, wr) }
        })?;
        Ok(())
    }

    /// Builds the device's request, without the segments.
    fn request(&self, wr: &SendWr<'_>, segments: &Segments<'_>) -> Result<Request, RnicError> {
        let mut out = ibv_send_wr::default();
        let (wr_opcode, opcode, len) = self.set_operation(&mut out, wr.op, segments)?;
        out.opcode = wr_opcode;
        if wr.fence && takes_fence(self.shared.device.quirks(), wr_opcode) {
            out.send_flags |= IBV_SEND_FENCE;
        }
        let posted = Posted {
            wr_id: wr.wr_id,
            len,
            opcode,
            wants_completion: wr.completion,
            signalled: wr.signalled,
            at: At::Device,
        };
        Ok(Request { wr: out, posted })
    }

    /// Fills in the operation. Returns the device's opcode, the opcode of the completion, and the
    /// length.
    #[inline]
    fn set_operation(
        &self,
        out: &mut ibv_send_wr,
        op: SendOp,
        segments: &Segments<'_>,
    ) -> Result<(ibv_wr_opcode, WcOpcode, u32), RnicError> {
        Ok(match op {
            SendOp::Send {
                solicited,
                invalidate,
            } => {
                if solicited {
                    out.send_flags |= IBV_SEND_SOLICITED;
                }
                let opcode = self.send_opcode(out, invalidate);
                (opcode, WcOpcode::Send, segments.total())
            }
            SendOp::SendImmediate { value, solicited } => {
                self.needs_infiniband("immediate data on this device")?;
                out.__bindgen_anon_1.imm_data = value;
                if solicited {
                    out.send_flags |= IBV_SEND_SOLICITED;
                }
                (IBV_WR_SEND_WITH_IMM, WcOpcode::Send, segments.total())
            }
            SendOp::LocalInvalidate(key) => {
                out.__bindgen_anon_1.invalidate_rkey = key;
                (IBV_WR_LOCAL_INV, WcOpcode::LocalInvalidate, 0)
            }
            SendOp::Write(to) => {
                set_remote(out, to.addr, to.rkey);
                (IBV_WR_RDMA_WRITE, WcOpcode::RdmaWrite, to.len)
            }
            SendOp::WriteImmediate {
                to,
                value,
                solicited,
            } => {
                self.needs_infiniband("immediate data on this device")?;
                set_write_immediate(out, to, value, solicited);
                (out.opcode, WcOpcode::RdmaWriteImmediate, to.len)
            }
            SendOp::Read(from)
                if segments.total() == 0 && !self.shared.device.quirks().answers_empty_reads =>
            {
                set_remote(out, 0, NO_KEY);
                (IBV_WR_RDMA_WRITE, WcOpcode::RdmaRead, from.len)
            }
            SendOp::Read(from) => {
                set_remote(out, from.addr, from.rkey);
                (IBV_WR_RDMA_READ, WcOpcode::RdmaRead, from.len)
            }
            SendOp::ReadToWindow { .. } => {
                return Err(RnicError::NotSupported("RDMA Read into a window"));
            }
            SendOp::FetchAdd(on, add) => {
                self.needs_infiniband("atomics on this device")?;
                set_atomic(out, on.addr, on.rkey, add, 0);
                (IBV_WR_ATOMIC_FETCH_AND_ADD, WcOpcode::FetchAdd, on.len)
            }
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => {
                self.needs_infiniband("atomics on this device")?;
                set_atomic(out, remote.addr, remote.rkey, compare, swap);
                (IBV_WR_ATOMIC_CMP_AND_SWP, WcOpcode::CompareSwap, remote.len)
            }
        })
    }

    fn send_opcode(&self, out: &mut ibv_send_wr, invalidate: Option<u32>) -> ibv_wr_opcode {
        let Some(rkey) = invalidate else {
            return IBV_WR_SEND;
        };
        out.__bindgen_anon_1.invalidate_rkey = rkey;
        if !self.shared.device.quirks().invalidates_by_its_field {
            out.wr.rdma.rkey = rkey;
        }
        IBV_WR_SEND_WITH_INV
    }

    fn needs_infiniband(&self, what: &'static str) -> Result<(), RnicError> {
        let has = self.shared.device.has_immediate_and_atomics();
        has.then_some(()).ok_or(RnicError::NotSupported(what))
    }

    /// Binds a free window of type 2.
    pub(crate) fn post_bind_own<R: Rnic>(
        &self,
        mw: *mut ibv_mw,
        mr: &Mr,
        bind: &BindMw<'_, R>,
    ) -> Result<Bound, RnicError> {
        // SAFETY: the window is alive, because its owner holds it during the call.
        let old = unsafe { (*mw).rkey };
        // The provider chooses the low byte of the key; the rest identifies the window.
        let rkey = old & !0xff | old.wrapping_add(1) & 0xff;
        let mut request = bind_request(bind);
        request.wr.opcode = IBV_WR_BIND_MW;
        request.wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw,
            rkey,
            bind_info: bind_info(mr.hw(), bind),
        };
        let last = self.submit(request, |qp, wr| {
            // SAFETY: queue pair, window and region are alive; the request is on the stack of this
            // call.
            unsafe { verbs_dl::post_send(qp, wr) }
        })?;
        // SAFETY: the window is alive, because its owner holds it; no other thread reads it,
        // because the window's lock is held.
        unsafe { (*mw).rkey = rkey };
        Ok(Bound { rkey, last })
    }

    /// Binds or unbinds a window of type 1.
    pub(crate) fn post_bind_shared<R: Rnic>(
        &self,
        mw: *mut ibv_mw,
        region: *mut ibv_mr,
        bind: &BindMw<'_, R>,
    ) -> Result<Bound, RnicError> {
        let info = bind_info(region, bind);
        let last = self.submit(bind_request(bind), |qp, wr| {
            // SAFETY: the pointer is to the request that `submit` holds on its stack.
            let (wr_id, send_flags) = unsafe { ((*wr).wr_id, (*wr).send_flags) };
            let mut mw_bind = ibv_mw_bind {
                wr_id,
                send_flags,
                bind_info: info,
            };
            // SAFETY: queue pair, window and region are alive.
            unsafe { verbs_dl::bind_mw(qp, mw, &mut mw_bind) }
        })?;
        // SAFETY: the window is alive, because its owner holds it, and the window's lock is held.
        let rkey = unsafe { (*mw).rkey };
        Ok(Bound { rkey, last })
    }

    /// Posts a zero-length write in place of a bind: it completes as the bind, in order with the
    /// other requests, and binds nothing.
    pub(crate) fn post_bind_nothing<R: Rnic>(&self, bind: &BindMw<'_, R>) -> Result<(), RnicError> {
        let mut request = bind_request(bind);
        request.wr.opcode = IBV_WR_RDMA_WRITE;
        set_remote(&mut request.wr, 0, NO_KEY);
        self.submit(request, |qp, wr| {
            // SAFETY: the queue pair is alive; the request is on the stack of this call.
            unsafe { verbs_dl::post_send(qp, wr) }
        })?;
        Ok(())
    }

    /// Drops `window` after the device has processed request `sequence`, which names the window. A
    /// bind that finds no window breaks the connection.
    pub(crate) fn drop_after(&self, sequence: u32, window: Box<dyn Send>) {
        let is_kept = self.parts.send_cq.keep(self.send_place, sequence, window);
        // The device may not report the success of that request, so a marker follows it.
        if is_kept {
            let mut side = lock(&self.send);
            if self.lifecycle() == Lifecycle::Connected {
                self.post_marker(&mut side);
            }
        }
    }

    /// True if the device has completed the bind of this number, as far as it has reported.
    pub(crate) fn has_bound(&self, sequence: u32) -> bool {
        self.work.has_bound(sequence)
    }

    /// Records a request and posts it to the device, or handles it as the state requires ([`Way`]).
    /// Returns the sequence number, if the request was posted to the device.
    #[inline]
    fn submit(
        &self,
        mut request: Request,
        post: impl FnOnce(*mut ibv_qp, *mut ibv_send_wr) -> std::io::Result<()>,
    ) -> Result<Option<u32>, RnicError> {
        let mut side = lock(&self.send);
        let mut posted = request.posted;
        match self.way_of_sends()? {
            Way::Device => {}
            Way::Wait => return record(&self.work.sends, &posted, At::NotPosted).map(|_| None),
            Way::Flush => {
                drop(side);
                self.parts.send_cq.push(self.work.flushed(&posted));
                return Ok(None);
            }
        }
        // The device frees its slots by completions, so at least one request in `silent_max` is
        // signalled.
        let may_be_silent = !posted.wants_completion && side.silent + 1 < self.silent_max;
        posted.at = completed_by(self.shared.device.quirks(), posted.opcode, may_be_silent);
        let silent = posted.at == At::DeviceSilently;
        let sequence = record(&self.work.sends, &posted, posted.at)?;
        request.wr.wr_id = self.ticket(Kind::Send, sequence);
        if !silent {
            request.wr.send_flags |= IBV_SEND_SIGNALED;
        }
        if let Err(why) = post(side.hw, &raw mut request.wr)
            && self.parts.send_cq.unpush(&self.work.sends)
        {
            return Err(of(why, Resource::WorkRequest));
        }
        side.silent = if silent { side.silent + 1 } else { 0 };
        Ok(Some(sequence))
    }

    /// Posts one receive, in any state.
    #[inline]
    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        let needs_one = !self.shared.device.quirks().receives_without_segments;
        let mut segments = Segments::of_receive(wr.sgl, self.attr.recv_sge_max, needs_one)?;
        let posted = Posted::receive(wr.wr_id, segments.total(), wr.signalled);
        let side = lock(&self.recv);
        match self.lifecycle() {
            Lifecycle::Idle | Lifecycle::Connecting | Lifecycle::Connected => {}
            Lifecycle::Ending => {
                return record(&self.work.recvs, &posted, At::NotPosted).map(drop);
            }
            Lifecycle::Disconnected => {
                drop(side);
                self.parts.recv_cq.push(self.work.flushed(&posted));
                return Ok(());
            }
        }
        let sequence = record(&self.work.recvs, &posted, At::Device)?;
        let mut request = ibv_recv_wr {
            wr_id: self.ticket(Kind::Recv, sequence),
            next: ptr::null_mut(),
            sg_list: segments.as_mut_ptr(),
            num_sge: segments.count(),
        };
        // SAFETY: the queue pair is alive while its receive lock is held; the request and its
        // segments are on the stack of this call.
        match unsafe { verbs_dl::post_recv(side.hw, &raw mut request) } {
            Err(why) if self.parts.recv_cq.unpush(&self.work.recvs) => {
                Err(of(why, Resource::WorkRequest))
            }
            _ => Ok(()),
        }
    }

    fn way_of_sends(&self) -> Result<Way, RnicError> {
        match self.lifecycle() {
            Lifecycle::Connected => Ok(Way::Device),
            Lifecycle::Ending => Ok(Way::Wait),
            Lifecycle::Disconnected => Ok(Way::Flush),
            Lifecycle::Idle | Lifecycle::Connecting => {
                Err(RnicError::InvalidState("not connected"))
            }
        }
    }

    fn ticket(&self, kind: Kind, sequence: u32) -> u64 {
        let place = match kind {
            Kind::Send => self.send_place,
            Kind::Recv | Kind::SharedRecv => self.recv_place,
        };
        Ticket {
            kind,
            epoch: self.work.epoch(),
            place,
            sequence,
        }
        .encode()
    }

    /// Posts a marker, a zero-length write, if the last request is a silent one. The marker's
    /// completion shows that the device has completed all requests before it.
    pub(super) fn post_marker(&self, side: &mut Side) {
        if !self.work.sends.ends_silently() {
            return;
        }
        let Some(sequence) = self.work.sends.push_marker() else {
            return;
        };
        let mut wr = ibv_send_wr {
            wr_id: self.ticket(Kind::Send, sequence),
            opcode: IBV_WR_RDMA_WRITE,
            send_flags: IBV_SEND_SIGNALED,
            ..Default::default()
        };
        set_remote(&mut wr, 0, NO_KEY);
        // SAFETY: the queue pair is alive while its send lock is held; the request is on the stack
        // of this call.
        if unsafe { verbs_dl::post_send(side.hw, &raw mut wr) }.is_err() {
            self.parts.send_cq.unpush(&self.work.sends);
        }
        side.silent = 0;
    }
}

/// Returns the way in which the device completes a request.
#[inline]
fn completed_by(quirks: Quirks, opcode: WcOpcode, may_be_silent: bool) -> At {
    match opcode {
        // The completion of a later request would not show that the Read is done.
        WcOpcode::RdmaRead if !quirks.completes_in_order => At::DeviceLate,
        _ if may_be_silent => At::DeviceSilently,
        _ => At::Device,
    }
}

/// True if the fence flag is passed to the device, which then holds the request until the Reads
/// before it are done.
fn takes_fence(quirks: Quirks, opcode: ibv_wr_opcode) -> bool {
    opcode != IBV_WR_RDMA_READ || quirks.fences_reads
}

fn record(ring: &crate::work::Ring, posted: &Posted, at: At) -> Result<u32, RnicError> {
    let full = RnicError::NoResources(Resource::WorkRequest);
    ring.push(&Posted { at, ..*posted }).ok_or(full)
}

/// The bind information of a request, in the device's format.
fn bind_info<R: Rnic>(region: *mut ibv_mr, bind: &BindMw<'_, R>) -> ibv_mw_bind_info {
    let mut flags = access_flags(bind.access) & !IBV_ACCESS_LOCAL_WRITE;
    if bind.zero_based {
        flags |= IBV_ACCESS_ZERO_BASED;
    }
    let empty = bind.range.len == 0;
    ibv_mw_bind_info {
        mr: region,
        addr: if empty { 0 } else { bind.range.addr },
        length: u64::from(bind.range.len),
        mw_access_flags: if empty { 0 } else { flags },
    }
}

fn bind_request<R: Rnic>(bind: &BindMw<'_, R>) -> Request {
    let mut wr = ibv_send_wr::default();
    if bind.fence {
        wr.send_flags |= IBV_SEND_FENCE;
    }
    let posted = Posted {
        wr_id: bind.wr_id,
        len: bind.range.len,
        opcode: WcOpcode::BindMw,
        wants_completion: bind.completion,
        signalled: bind.signalled,
        at: At::Device,
    };
    Request { wr, posted }
}

fn set_remote(wr: &mut ibv_send_wr, remote_addr: u64, rkey: u32) {
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
}

fn set_write_immediate(wr: &mut ibv_send_wr, to: RemoteRange, value: u32, solicited: bool) {
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    set_remote(wr, to.addr, to.rkey);
    wr.__bindgen_anon_1.imm_data = value;
    if solicited {
        wr.send_flags |= IBV_SEND_SOLICITED;
    }
}

fn set_atomic(wr: &mut ibv_send_wr, remote_addr: u64, rkey: u32, compare_add: u64, swap: u64) {
    wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr,
        compare_add,
        swap,
        rkey,
    };
}

#[cfg(test)]
mod tests {
    use rnic::{Access, Sge};

    use super::*;
    use crate::quirks::{SIW_VENDOR, Transport};
    use crate::rnic::IbRnic;

    #[test]
    fn reads_that_are_overtaken_are_late_and_never_silent() {
        let siw = Quirks::of(Transport::Iwarp, SIW_VENDOR);
        let rxe = Quirks::of(Transport::InfiniBand, 0);
        for silent in [false, true] {
            let usual = if silent {
                At::DeviceSilently
            } else {
                At::Device
            };
            let on = |quirks, opcode| completed_by(quirks, opcode, silent);
            assert_eq!(on(siw, WcOpcode::RdmaRead), At::DeviceLate);
            assert_eq!(on(rxe, WcOpcode::RdmaRead), usual);
            for opcode in [WcOpcode::Send, WcOpcode::RdmaWrite] {
                assert_eq!(on(siw, opcode), usual, "{opcode:?}");
                assert_eq!(on(rxe, opcode), usual, "{opcode:?}");
            }
        }
    }

    #[test]
    fn a_bind_that_waits_for_reads_is_fenced() {
        for fence in [false, true] {
            let request = bind_request(&BindMw::<IbRnic> {
                wr_id: 1,
                mr: None,
                range: Sge::default(),
                access: Access::default(),
                zero_based: false,
                key: None,
                is_first: false,
                qp_only: false,
                completion: true,
                signalled: true,
                fence,
            });
            assert_eq!(request.wr.send_flags & IBV_SEND_FENCE != 0, fence);
        }
    }

    #[test]
    fn a_write_with_immediate_data_is_solicited_when_that_is_asked_for() {
        for solicited in [false, true] {
            let mut wr = ibv_send_wr::default();
            let to = RemoteRange {
                addr: 1,
                len: 2,
                rkey: 3,
            };
            set_write_immediate(&mut wr, to, 4, solicited);
            assert_eq!(wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
            assert_eq!(wr.send_flags & IBV_SEND_SOLICITED != 0, solicited);
        }
    }

    #[test]
    fn a_read_is_not_fenced_where_that_would_stop_the_queue() {
        let siw = Quirks::of(Transport::Iwarp, SIW_VENDOR);
        let rxe = Quirks::of(Transport::InfiniBand, 0);
        assert!(!takes_fence(siw, IBV_WR_RDMA_READ));
        assert!(takes_fence(rxe, IBV_WR_RDMA_READ));
        assert!(takes_fence(siw, IBV_WR_SEND) && takes_fence(siw, IBV_WR_RDMA_WRITE));
    }
}
