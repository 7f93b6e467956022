//! The RNIC: short methods that call the other modules of this crate.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rnic::{
    AcceptParams, Arm, BindMw, Completion, ConnectParams, CqToken, ListenAddress, ListenToken,
    MrKeys, NamedAttr, QpAttr, QpToken, RecvWr, RegisterMr, RequestInfo, Resource, Rnic, RnicAttr,
    RnicConfig, RnicError, SendWr, SocketFault, SrqToken, Upcall, Waker,
};

use crate::adapter::Adapter;
use crate::cm;
use crate::cm::armed::IbArmed;
use crate::cm::listen::IbListener;
use crate::cm::request::{Deliver, IbRequest};
use crate::config::Config;
use crate::cq::Cq;
use crate::device::Device;
use crate::memory::{Mr, Pd};
use crate::objects::IbQp;
use crate::qp::{Mw, Qp, QpParts};
use crate::segments::SGE_MAX;
use crate::shared::Shared;
use crate::srq::Srq;
use crate::thread;

/// Maximum number of queues of one waiter that are checked before it sleeps.
const CHECKED_MAX: usize = 16;

/// An RNIC that uses libibverbs.
pub struct IbRnic {
    attr: RnicAttr,
    upcall: Arc<dyn Upcall<Self>>,
    adapter: Arc<Adapter>,
}

rnic::opaque_debug!(IbRnic { adapter });

impl Rnic for IbRnic {
    type Pd = Arc<Pd>;
    type Cq = Arc<Cq>;
    type Srq = Arc<Srq>;
    type Qp = IbQp;
    type Mr = Mr;
    type Mw = Arc<Mw>;
    type Listener = IbListener;
    type ArmedSocket = IbArmed;
    type ConnReq = IbRequest;

    fn open(config: &RnicConfig, upcall: Arc<dyn Upcall<Self>>) -> Result<Self, RnicError> {
        let config = Config::parse(&config.ia_params)?;
        // The child of a fork does not keep the sockets of consumers that this end uses.
        rnic::socket::prepare();
        let adapter = Arc::new(Adapter::open(config, upcall.clone())?);
        let rnic = Self {
            attr: attributes(&adapter.shared.device),
            upcall,
            adapter: adapter.clone(),
        };
        // The thread is started now, because the device may be removed before any object is created
        // on it.
        let engine = &rnic.shared().engine;
        engine.start(move || thread::run(&adapter))?;
        Ok(rnic)
    }

    fn attr(&self) -> &RnicAttr {
        &self.attr
    }

    fn shutdown(&self) {
        self.shared().engine.shutdown();
        self.adapter.cm.shutdown();
    }

    fn create_pd(&self) -> Result<Arc<Pd>, RnicError> {
        Pd::new(self.shared())
    }

    fn create_cq(&self, depth: u32, token: CqToken) -> Result<Arc<Cq>, RnicError> {
        if depth > self.attr.cqe_max {
            return Err(RnicError::InvalidArgument("completion queue depth"));
        }
        Cq::new(self.shared(), &self.adapter.cqs, depth, token)
    }

    fn resize_cq(&self, cq: &Arc<Cq>, depth: u32) -> Result<(), RnicError> {
        if depth > self.attr.cqe_max {
            return Err(RnicError::InvalidArgument("completion queue depth"));
        }
        cq.resize(depth)
    }

    fn poll_cq(&self, cq: &Arc<Cq>, out: &mut [Completion]) -> usize {
        cq.poll(out)
    }

    fn arm_cq(&self, cq: &Arc<Cq>, solicited_only: bool) -> bool {
        cq.arm(solicited_only)
    }

    fn has_unannounced(&self, cqs: &[&Arc<Cq>]) -> bool {
        // If the check of a queue finds completions, an upcall wakes the caller. Queues beyond
        // `CHECKED_MAX` wake the caller by an event in the completion channel.
        cqs.iter().take(CHECKED_MAX).for_each(|cq| cq.check());
        false
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared().channel.as_fd())
    }

    fn arm(&self, waker: &Arc<Waker>) -> Arm {
        self.adapter.reader.arm(waker)
    }

    fn end_sleep(&self, waker: &Arc<Waker>, is_ready: bool) {
        self.adapter.reader.end_sleep(waker, is_ready);
    }

    fn create_qp(
        &self,
        pd: &Arc<Pd>,
        send_cq: Option<&Arc<Cq>>,
        recv_cq: Option<&Arc<Cq>>,
        srq: Option<&Arc<Srq>>,
        attr: &QpAttr,
        token: QpToken,
    ) -> Result<IbQp, RnicError> {
        self.check_limits(attr)?;
        if srq.is_some_and(|srq| !Arc::ptr_eq(&srq.pd, pd)) {
            return Err(RnicError::InvalidArgument(
                "shared receive queue of another domain",
            ));
        }
        let spare = || Cq::new(self.shared(), &self.adapter.cqs, 1, CqToken(0));
        let or_spare = |cq: Option<&Arc<Cq>>| cq.map_or_else(spare, |cq| Ok(cq.clone()));
        let parts = QpParts {
            pd: pd.clone(),
            send_cq: or_spare(send_cq.or(recv_cq))?,
            recv_cq: or_spare(recv_cq.or(send_cq))?,
            srq: srq.cloned(),
        };
        let qp = Qp::new(self.shared(), &self.adapter.qps, parts, *attr, token)?;
        let cm = self.adapter.cm.clone();
        Ok(IbQp { qp, cm })
    }

    fn reset_qp(&self, qp: &IbQp) -> Result<(), RnicError> {
        qp.qp.reset()
    }

    fn post_send(&self, qp: &IbQp, wr: &SendWr<'_>) -> Result<(), RnicError> {
        qp.qp.post_send(wr)
    }

    fn post_recv(&self, qp: &IbQp, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        qp.qp.post_recv(wr)
    }

    fn pending(&self, qp: &IbQp) -> (u32, u32) {
        qp.qp.pending()
    }

    fn register_mr(&self, pd: &Arc<Pd>, request: &RegisterMr) -> Result<Mr, RnicError> {
        Mr::register(pd, request)
    }

    fn mr_keys(&self, mr: &Mr) -> MrKeys {
        mr.keys()
    }

    fn listen(
        &self,
        address: &ListenAddress,
        token: ListenToken,
    ) -> Result<(IbListener, u16), RnicError> {
        IbRequest::listen(&self.adapter.cm, address, self.deliver(token))
    }

    fn connect(&self, qp: &IbQp, params: &ConnectParams<'_>) -> Result<(), RnicError> {
        qp.cm.connect(&qp.qp, params)
    }

    fn connect_socket(
        &self,
        qp: &IbQp,
        socket: RawFd,
        params: &ConnectParams<'_>,
    ) -> Result<(), SocketFault> {
        qp.cm.connect_socket(&qp.qp, socket, params)
    }

    fn arm_socket(
        &self,
        socket: RawFd,
        final_message: &[u8],
        token: ListenToken,
    ) -> Result<IbArmed, SocketFault> {
        let deliver = self.deliver(token);
        IbArmed::arm(&self.adapter.cm, socket, final_message, token, deliver)
    }

    fn disarm_socket(&self, armed: IbArmed) -> bool {
        armed.disarm()
    }

    fn accept(
        &self,
        request: IbRequest,
        qp: &IbQp,
        params: &AcceptParams<'_>,
    ) -> Result<(), RnicError> {
        request.accept(&qp.qp, params)
    }

    fn reject(&self, request: IbRequest, private_data: &[u8]) -> Result<(), RnicError> {
        request.reject(private_data)
    }

    fn disconnect(&self, qp: &IbQp, abrupt: bool) {
        qp.cm.disconnect(qp.qp.token, abrupt);
    }

    fn create_mw(&self, pd: &Arc<Pd>) -> Result<Arc<Mw>, RnicError> {
        Mw::new(&self.adapter.qps, pd)
    }

    fn bind_mw(&self, qp: &IbQp, mw: &Arc<Mw>, bind: &BindMw<'_, Self>) -> Result<u32, RnicError> {
        if bind.key.is_some() {
            return Err(RnicError::NotSupported("keys chosen by the client"));
        }
        mw.bind(&qp.qp, bind.mr, bind)
    }

    fn create_srq(
        &self,
        pd: &Arc<Pd>,
        depth: u32,
        sge_max: u32,
        token: SrqToken,
    ) -> Result<Arc<Srq>, RnicError> {
        if depth > self.attr.srq_wr_max || sge_max > self.attr.sge_max {
            return Err(RnicError::InvalidArgument(
                "shared receive queue attributes",
            ));
        }
        Srq::new(pd, depth, sge_max, token)
    }

    fn post_srq_recv(&self, srq: &Arc<Srq>, wr: &RecvWr<'_>) -> Result<(), RnicError> {
        srq.post(wr)
    }

    fn resize_srq(&self, srq: &Arc<Srq>, depth: u32) -> Result<(), RnicError> {
        if depth > self.attr.srq_wr_max {
            return Err(RnicError::InvalidArgument("shared receive queue depth"));
        }
        srq.resize(depth)
    }

    fn arm_srq(&self, srq: &Arc<Srq>, limit: u32) -> Result<(), RnicError> {
        srq.arm(limit)
    }

    fn srq_available(&self, srq: &Arc<Srq>) -> Option<u32> {
        Some(srq.available())
    }
}

impl IbRnic {
    /// The function that delivers the requests of the service with this token.
    fn deliver(&self, token: ListenToken) -> Deliver {
        let upcall = self.upcall.clone();
        Box::new(move |request, info: &RequestInfo<'_>| {
            upcall.connection_request(token, request, info);
        })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.adapter.shared
    }

    fn check_limits(&self, wanted: &QpAttr) -> Result<(), RnicError> {
        let max = &self.attr;
        let too_much = wanted.send_wr_max > max.wr_max
            || wanted.recv_wr_max > max.wr_max
            || wanted.send_sge_max > max.sge_max
            || wanted.recv_sge_max > max.sge_max
            || wanted.ird > max.ird_max
            || wanted.ord > max.ord_max;
        if too_much {
            return Err(RnicError::InvalidArgument("queue pair attributes"));
        }
        if self.adapter.qps.len() >= max.qp_max as usize {
            return Err(RnicError::NoResources(Resource::QueuePair));
        }
        Ok(())
    }
}

impl Drop for IbRnic {
    fn drop(&mut self) {
        // A second shutdown has no effect.
        self.shutdown();
    }
}

fn attributes(device: &Device) -> RnicAttr {
    let attr = &device.attr;
    let limit = |count: i32| u32::try_from(count).unwrap_or(0);
    let sge_max = limit(attr.max_sge).min(SGE_MAX as u32);
    RnicAttr {
        adapter_name: device.name.clone(),
        vendor_name: format!("{:#08x}", attr.vendor_id),
        address: device.address,
        private_data_len_max: cm::private_data_max(device),
        qp_max: limit(attr.max_qp),
        // One request of a send queue is reserved for a marker.
        wr_max: limit(attr.max_qp_wr).saturating_sub(1),
        sge_max,
        read_sge_max: match limit(attr.max_sge_rd) {
            0 => sge_max,
            max => max.min(sge_max),
        },
        cq_max: limit(attr.max_cq),
        cqe_max: limit(attr.max_cqe),
        mr_max: limit(attr.max_mr),
        mr_len_max: attr.max_mr_size,
        mw_max: limit(attr.max_mw),
        pd_max: limit(attr.max_pd),
        srq_max: limit(attr.max_srq),
        srq_wr_max: limit(attr.max_srq_wr),
        ird_max: limit(attr.max_qp_rd_atom),
        ord_max: limit(attr.max_qp_init_rd_atom),
        message_len_max: device.port_attr.max_msg_sz,
        immediate_and_atomics: device.has_immediate_and_atomics(),
        zero_based_regions: device.quirks().zero_based_regions,
        // Verbs do not count the receives of a shared receive queue that one queue pair holds.
        recv_watermarks: false,
        named: named_attributes(device),
    }
}

/// Returns the named attributes that consumers of OFA's providers query.
fn named_attributes(device: &Device) -> Vec<NamedAttr> {
    let named = |name, value: String| NamedAttr { name, value };
    let mut all = cm::named(device);
    all.extend([
        named("DAT_IB_PROVIDER_NAME", "CMA".to_owned()),
        named("DAT_IB_DEVICE_NAME", device.name.clone()),
        named("DAT_IB_CONNECTIVITY_MODE", "DIRECT".to_owned()),
        named("DAT_IB_PORT_NUMBER", device.port.to_string()),
        named("DAT_IB_TRANSPORT_MTU", device.mtu().to_string()),
        named("DAT_IB_PORT_STATUS", device.port_status().to_owned()),
    ]);
    all
}
