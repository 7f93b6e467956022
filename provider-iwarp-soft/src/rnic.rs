//! The interface of the RNIC: short methods that call the other modules.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use rnic::{
    AcceptParams, Access, Arm, AsyncEvent, BindMw, Completion, ConnectParams, CqToken,
    ListenAddress, ListenToken, MrKeys, NamedAttr, QpAttr, QpToken, ReceiveWaits, RecvWr,
    RegisterMr, Resource, Rnic, RnicAttr, RnicConfig, RnicError, SendWr, Sge, SocketFault,
    SrqToken, Traffic, Upcall, Waker,
};

use crate::adapter::{Shared, SoftRnic};
use crate::carrier::tcp::crc;
use crate::cm::armed::SoftArmed;
use crate::cm::listen::Listener;
use crate::cm::request::SoftRequest;
use crate::config::Config;
use crate::cq::{CQE_MAX, Cq};
use crate::memory::REGION_MAX;
use crate::objects::{SoftCq, SoftListener, SoftMr, SoftMw, SoftPd, SoftQp, SoftSrq};
use crate::qp::{Qp, QpParts};
use crate::srq::Srq;
use crate::work::{BindTask, RecvSlot, SegmentList, SendSlot};
use rnic::socket;

const QP_MAX: u32 = 65536;
const WR_MAX: u32 = 16384;
const SGE_MAX: u32 = 32;
const READ_DEPTH_MAX: u32 = 128;

impl SoftRnic {
    /// Appends the bytes of registered segments to `out`. Returns false if a segment may not be
    /// read.
    pub fn read_local(&self, pd: &SoftPd, sgl: &[Sge], out: &mut Vec<u8>) -> bool {
        let memory = self.shared.memory.access();
        sgl.iter().all(|sge| {
            let Some(bytes) = memory.local(pd.id, sge, false) else {
                return false;
            };
            let start = out.len();
            out.resize(start + bytes.len(), 0);
            bytes.read_into(&mut out[start..])
        })
    }

    /// Copies the parts, in order, to registered segments, which are at least as long. Returns
    /// false if a segment may not be written.
    pub fn write_local(&self, pd: &SoftPd, sgl: &[Sge], parts: &[&[u8]]) -> bool {
        let memory = self.shared.memory.access();
        let mut parts = parts.iter().copied().filter(|part| !part.is_empty());
        let mut part = parts.next().unwrap_or_default();
        for sge in sgl {
            let Some(place) = memory.local(pd.id, sge, true) else {
                return false;
            };
            let mut skip = 0;
            while skip < place.len() && !part.is_empty() {
                let count = part.len().min(place.len() - skip);
                if !place.part(skip, count).write(&part[..count]) {
                    return false;
                }
                skip += count;
                part = &part[count..];
                if part.is_empty() {
                    part = parts.next().unwrap_or_default();
                }
            }
        }
        part.is_empty()
    }

    /// Takes the oldest receive of a shared receive queue for a message that the client has
    /// received itself. Returns its identifier and its segments. *May call up.*
    pub fn take_srq_recv(&self, srq: &SoftSrq) -> Option<(u64, Vec<Sge>)> {
        let slot = srq.srq.take()?;
        if srq.srq.take_limit_event() {
            let event = AsyncEvent::SrqLimit(srq.srq.token);
            self.shared.upcall.async_event(event);
        }
        Some((slot.wr_id, slot.sgl.as_slice().to_vec()))
    }
}

fn check_access(request: &RegisterMr) -> Result<(), RnicError> {
    let access = request.access;
    if (access.remote_write || access.remote_atomic) && !access.local_write {
        return Err(RnicError::InvalidArgument(
            "remote write without local write",
        ));
    }
    Ok(())
}

impl Rnic for SoftRnic {
    type Pd = SoftPd;
    type Cq = SoftCq;
    type Srq = SoftSrq;
    type Qp = SoftQp;
    type Mr = SoftMr;
    type Mw = SoftMw;
    type Listener = SoftListener;
    type ArmedSocket = SoftArmed;
    type ConnReq = SoftRequest;

    fn open(config: &RnicConfig, upcall: Arc<dyn Upcall<Self>>) -> Result<Self, RnicError> {
        let config = Config::parse(&config.ia_params)?;
        let attr = attributes(&config);
        // Precedes the start of the engine's thread, which computes CRCs.
        crc::prepare();
        socket::prepare();
        let shared = Arc::new(Shared::open(config, upcall)?);
        Ok(Self { attr, shared })
    }

    fn attr(&self) -> &RnicAttr {
        &self.attr
    }

    fn shutdown(&self) {
        self.shared.engine.shutdown();
    }

    fn create_pd(&self) -> Result<SoftPd, RnicError> {
        Ok(SoftPd {
            id: self.shared.next_pd(),
        })
    }

    fn create_cq(&self, depth: u32, token: CqToken) -> Result<SoftCq, RnicError> {
        if depth > CQE_MAX {
            return Err(RnicError::InvalidArgument("completion queue depth"));
        }
        let cq = Cq::new(depth, token).ok_or(RnicError::NoResources(Resource::Memory))?;
        Ok(SoftCq { cq: Arc::new(cq) })
    }

    fn resize_cq(&self, cq: &SoftCq, depth: u32) -> Result<(), RnicError> {
        if depth > CQE_MAX {
            return Err(RnicError::InvalidArgument("completion queue depth"));
        }
        cq.cq.resize(depth)
    }

    fn poll_cq(&self, cq: &SoftCq, out: &mut [Completion]) -> usize {
        let count = cq.cq.poll(out);
        if count > 0 {
            self.shared.progress.note_poll();
        }
        count
    }

    fn may_have_completions(&self, cq: &SoftCq) -> bool {
        !cq.cq.is_empty()
    }

    fn drive(&self) {
        self.shared.progress.drive();
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.progress.descriptor())
    }

    fn arm(&self, _waker: &Arc<Waker>) -> Arm {
        self.shared.progress.arm()
    }

    fn arm_cq(&self, cq: &SoftCq, solicited_only: bool) -> bool {
        cq.cq.arm(solicited_only)
    }

    fn create_qp(
        &self,
        pd: &SoftPd,
        send_cq: Option<&SoftCq>,
        recv_cq: Option<&SoftCq>,
        srq: Option<&SoftSrq>,
        attr: &QpAttr,
        token: QpToken,
    ) -> Result<SoftQp, RnicError> {
        let too_much = attr.send_wr_max > WR_MAX
            || attr.recv_wr_max > WR_MAX
            || attr.send_sge_max > SGE_MAX
            || attr.recv_sge_max > SGE_MAX
            || attr.ird > READ_DEPTH_MAX
            || attr.ord > READ_DEPTH_MAX;
        if too_much {
            return Err(RnicError::InvalidArgument("queue pair attributes"));
        }
        if srq.is_some_and(|srq| srq.srq.pd != pd.id) {
            return Err(RnicError::InvalidArgument(
                "shared receive queue of another domain",
            ));
        }
        if self.shared.count_qp() >= QP_MAX {
            self.shared.remove_qp();
            return Err(RnicError::NoResources(Resource::QueuePair));
        }
        let parts = QpParts {
            pd: pd.id,
            send_cq: send_cq.map(|cq| cq.cq.clone()),
            recv_cq: recv_cq.map(|cq| cq.cq.clone()),
            srq: srq.map(|srq| srq.srq.clone()),
        };
        Ok(SoftQp {
            qp: Qp::new(self.shared.clone(), parts, *attr, token),
        })
    }

    fn reset_qp(&self, qp: &SoftQp) -> Result<(), RnicError> {
        qp.qp.reset()
    }

    fn flush_idle(&self, qp: &SoftQp) -> Result<(), RnicError> {
        qp.qp.flush_idle();
        Ok(())
    }

    fn post_send(&self, qp: &SoftQp, wr: &SendWr<'_>) -> Result<(), RnicError> {
        qp.qp.post_send(wr)
    }

    fn post_recv(&self, qp: &SoftQp, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        qp.qp.post_recv(wr)
    }

    fn set_receive_waits(&self, qp: &SoftQp, waits: ReceiveWaits) -> Result<(), RnicError> {
        qp.qp.set_waits(waits);
        Ok(())
    }

    fn set_remote_access(&self, qp: &SoftQp, granted: Access) -> Result<(), RnicError> {
        qp.qp.set_remote_access(granted);
        Ok(())
    }

    fn on_taken(&self, qp: &SoftQp, completion: &Completion) {
        qp.qp.on_taken(completion.opcode.is_receive());
    }

    fn pending(&self, qp: &SoftQp) -> (u32, u32) {
        qp.qp.pending()
    }

    fn traffic(&self, qp: &SoftQp) -> Option<Traffic> {
        Some(qp.qp.traffic())
    }

    fn register_mr(&self, pd: &SoftPd, request: &RegisterMr) -> Result<SoftMr, RnicError> {
        check_access(request)?;
        let stag = self.shared.memory.register(pd.id, request)?;
        Ok(SoftMr {
            shared: self.shared.clone(),
            stag,
        })
    }

    fn reregister_mr(
        &self,
        mr: &SoftMr,
        pd: &SoftPd,
        request: &RegisterMr,
    ) -> Result<(), RnicError> {
        check_access(request)?;
        self.shared.memory.replace(mr.stag, pd.id, request)
    }

    fn mr_keys(&self, mr: &SoftMr) -> MrKeys {
        MrKeys {
            lkey: mr.stag.0,
            rkey: mr.stag.0,
        }
    }

    fn listen(
        &self,
        address: &ListenAddress,
        token: ListenToken,
    ) -> Result<(SoftListener, u16), RnicError> {
        let (listener, port) = Listener::open(&self.shared, address.port, token)?;
        Ok((SoftListener::new(listener), port))
    }

    fn connect(&self, qp: &SoftQp, params: &ConnectParams<'_>) -> Result<(), RnicError> {
        qp.qp.connect(params)
    }

    fn connect_socket(
        &self,
        qp: &SoftQp,
        socket: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        qp.qp.connect_socket(socket, params)
    }

    fn arm_socket(
        &self,
        socket: RawFd,
        final_message: &[u8],
        token: ListenToken,
    ) -> Result<SoftArmed, SocketFault> {
        SoftArmed::arm(&self.shared, socket, final_message, token)
    }

    fn disarm_socket(&self, armed: SoftArmed) -> bool {
        armed.disarm()
    }

    fn accept(
        &self,
        request: SoftRequest,
        qp: &SoftQp,
        params: &AcceptParams<'_>,
    ) -> Result<(), RnicError> {
        request.accept(&qp.qp, params)
    }

    fn reject(&self, request: SoftRequest, private_data: &[u8]) -> Result<(), RnicError> {
        request.reject(private_data)
    }

    fn hand_off(
        &self,
        request: &mut SoftRequest,
        port: u16,
        private_data: &[u8],
    ) -> Result<(), RnicError> {
        request.hand_off(port, private_data)
    }

    fn disconnect(&self, qp: &SoftQp, abrupt: bool) {
        qp.qp.disconnect(abrupt);
    }

    fn create_mw(&self, pd: &SoftPd) -> Result<SoftMw, RnicError> {
        let window = self.shared.memory.create_window(pd.id)?;
        Ok(SoftMw::new(self.shared.clone(), window))
    }

    fn mw_key(&self, mw: &SoftMw) -> Result<u32, RnicError> {
        Ok(mw.key()?.0)
    }

    fn bind_mw(&self, qp: &SoftQp, mw: &SoftMw, bind: &BindMw<'_, Self>) -> Result<u32, RnicError> {
        let window = match bind.key {
            Some(key) => mw.chosen_window(key),
            None => mw.next_window(),
        }?;
        let region = bind.mr.filter(|_| bind.range.len > 0).map(|mr| mr.stag);
        let task = BindTask {
            window,
            region,
            range: bind.range,
            access: bind.access,
            zero_based: bind.zero_based,
            is_first: bind.is_first,
            only: bind.qp_only.then_some(qp.qp.token),
        };
        qp.qp
            .post_bind(SendSlot {
                completion: bind.completion,
                signalled: bind.signalled,
                fence: bind.fence,
                ..SendSlot::bind(bind.wr_id, task)
            })
            .inspect_err(|_| mw.cancel_bind(window))?;
        Ok(window.stag.0)
    }

    fn create_srq(
        &self,
        pd: &SoftPd,
        depth: u32,
        sge_max: u32,
        token: SrqToken,
    ) -> Result<SoftSrq, RnicError> {
        if depth > WR_MAX || sge_max > SGE_MAX {
            return Err(RnicError::InvalidArgument(
                "shared receive queue attributes",
            ));
        }
        Ok(SoftSrq {
            srq: Arc::new(Srq::new(pd.id, depth, sge_max, token)),
        })
    }

    fn post_srq_recv(&self, srq: &SoftSrq, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        if wr.sgl.len() > srq.srq.sge_max as usize {
            return Err(RnicError::Length("more segments than the queue allows"));
        }
        let total = SegmentList::total(wr.sgl)
            .ok_or(RnicError::Length("the segments exceed the longest message"))?;
        let wakes = srq.srq.post(RecvSlot::new(wr, total))?;
        wakes.iter().for_each(|key| self.shared.engine.expire(*key));
        Ok(())
    }

    fn resize_srq(&self, srq: &SoftSrq, depth: u32) -> Result<(), RnicError> {
        if depth > WR_MAX {
            return Err(RnicError::InvalidArgument("shared receive queue depth"));
        }
        match srq.srq.resize(depth) {
            true => Ok(()),
            false => Err(RnicError::InvalidState("more receives than the new depth")),
        }
    }

    fn arm_srq(&self, srq: &SoftSrq, limit: u32) -> Result<(), RnicError> {
        srq.srq.arm(limit);
        Ok(())
    }

    fn srq_available(&self, srq: &SoftSrq) -> Option<u32> {
        u32::try_from(srq.srq.len()).ok()
    }

    fn set_recv_watermarks(
        &self,
        qp: &SoftQp,
        soft: Option<u32>,
        hard: Option<u32>,
    ) -> Result<(), RnicError> {
        qp.qp.set_watermarks(soft, hard);
        Ok(())
    }
}

/// Returns the attributes that a benchmark reports with its figures and by which consumers choose a
/// mechanism: in this provider the processor does the work of an adapter.
fn named_attributes(config: &Config) -> Vec<NamedAttr> {
    let named = |name, value: &str| NamedAttr {
        name,
        value: value.to_owned(),
    };
    vec![
        named("DAT_RS_CONGESTION_CONTROL", &config.congestion_in_force()),
        named("DAT_RS_MPA_CRC", if config.crc { "on" } else { "off" }),
        named("DAT_RS_DATA_PATH", "processor"),
        named(
            "DAT_RS_SOCKETS",
            if config.any_socket { "any" } else { "own" },
        ),
    ]
}

fn attributes(config: &Config) -> RnicAttr {
    RnicAttr {
        adapter_name: config.adapter.clone(),
        vendor_name: "dat-rs".to_owned(),
        address: config.socket_address(0),
        private_data_len_max: config.private_data_max,
        qp_max: QP_MAX,
        wr_max: WR_MAX,
        sge_max: SGE_MAX,
        read_sge_max: SGE_MAX,
        cq_max: QP_MAX,
        cqe_max: CQE_MAX,
        mr_max: REGION_MAX,
        mr_len_max: u64::MAX,
        mw_max: REGION_MAX,
        pd_max: QP_MAX,
        srq_max: QP_MAX,
        srq_wr_max: WR_MAX,
        ird_max: READ_DEPTH_MAX,
        ord_max: READ_DEPTH_MAX,
        message_len_max: u32::MAX,
        immediate_and_atomics: true,
        zero_based_regions: true,
        recv_watermarks: true,
        named: named_attributes(config),
    }
}
