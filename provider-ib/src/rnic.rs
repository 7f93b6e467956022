//! The RNIC: short methods that hand over to the files beside this one.

use std::sync::Arc;
use std::time::Duration;

use access_layer::rnic::{
    AcceptParams, AsyncEvent, Completion, ConnectParams, CqToken, ListenAddress, ListenToken,
    MrKeys, QpAttr, QpToken, RecvWr, RegisterMr, Rnic, RnicAttr, RnicConfig, RnicError, SendWr,
    Upcall, Waker,
};
use verbs_dl::types::*;

use crate::cm::{self, Cm};
use crate::config::Config;
use crate::cq::Cq;
use crate::device::{Device, Transport};
use crate::engine::Engine;
use crate::memory::{Mr, Pd};
use crate::objects::{IbCq, IbListener, IbMr, IbMw, IbPd, IbQp, IbSrq};
use crate::qp::{Qp, QpParts};
use crate::{cm::listen::Listener, cm::request::IbRequest};

/// An RNIC behind libibverbs.
#[derive(Debug)]
pub struct IbRnic {
    attr: RnicAttr,
    shared: Arc<Shared>,
}

/// What every object of an RNIC can reach.
pub(crate) struct Shared {
    pub(crate) device: Device,
    pub(crate) config: Config,
    pub(crate) upcall: Arc<dyn Upcall<IbRnic>>,
    pub(crate) engine: Engine,
    pub(crate) cm: Cm,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Engine: the device has asynchronous events.
    pub(crate) fn on_device_event(self: &Arc<Self>) {
        self.cm.on_device_gone(self);
        self.upcall.async_event(AsyncEvent::DeviceFatal);
    }

    /// Engine: a completion channel has events.
    pub(crate) fn on_cq_event(&self, _number: u32) {}
}

impl Rnic for IbRnic {
    type Pd = IbPd;
    type Cq = IbCq;
    type Srq = IbSrq;
    type Qp = IbQp;
    type Mr = IbMr;
    type Mw = IbMw;
    type Listener = IbListener;
    type ArmedSocket = std::convert::Infallible;
    type ConnReq = IbRequest;

    fn open(config: &RnicConfig, upcall: Arc<dyn Upcall<Self>>) -> Result<Self, RnicError> {
        let config = Config::parse(&config.ia_params)?;
        let device = Device::open(&config)?;
        Ok(Self {
            attr: attributes(&device),
            shared: Arc::new(Shared {
                device,
                config,
                upcall,
                engine: Engine::new()?,
                cm: Cm::new(),
            }),
        })
    }

    fn attr(&self) -> &RnicAttr {
        &self.attr
    }

    fn shutdown(&self) {
        self.shared.engine.shutdown();
    }

    fn create_pd(&self) -> Result<IbPd, RnicError> {
        Pd::new(&self.shared).map(|pd| IbPd { pd })
    }

    fn create_cq(&self, depth: u32, token: CqToken) -> Result<IbCq, RnicError> {
        Cq::new(&self.shared, depth, token).map(|cq| IbCq { cq })
    }

    fn resize_cq(&self, _cq: &IbCq, _depth: u32) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("resizing a completion queue"))
    }

    fn poll_cq(&self, _cq: &IbCq, _out: &mut [Completion]) -> usize {
        0
    }

    fn progress(&self, _cq: &IbCq) -> bool {
        true
    }

    fn arm_cq(&self, _cq: &IbCq, _solicited_only: bool) -> bool {
        false
    }

    fn wait(&self, _cqs: &[&IbCq], waker: &Waker, timeout: Option<Duration>) {
        waker.sleep(timeout);
    }

    fn create_qp(
        &self,
        pd: &IbPd,
        send_cq: Option<&IbCq>,
        recv_cq: Option<&IbCq>,
        srq: Option<&IbSrq>,
        attr: &QpAttr,
        token: QpToken,
    ) -> Result<IbQp, RnicError> {
        let spare = || Cq::new(&self.shared, 1, CqToken(0));
        let some = |cq: Option<&IbCq>| cq.map_or_else(spare, |cq| Ok(cq.cq.clone()));
        let parts = QpParts {
            pd: pd.pd.clone(),
            send_cq: some(send_cq.or(recv_cq))?,
            recv_cq: some(recv_cq.or(send_cq))?,
            srq: srq.map(|srq| srq.srq.clone()),
        };
        Qp::new(&self.shared, parts, *attr, token).map(|qp| IbQp { qp })
    }

    fn reset_qp(&self, qp: &IbQp) -> Result<(), RnicError> {
        qp.qp.reset()
    }

    fn post_send(&self, _qp: &IbQp, _wr: &SendWr<'_>) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("posting"))
    }

    fn post_recv(&self, _qp: &IbQp, _wr: &RecvWr<'_>) -> Result<(), RnicError> {
        Err(RnicError::NotSupported("posting"))
    }

    fn pending(&self, _qp: &IbQp) -> (u32, u32) {
        (0, 0)
    }

    fn register_mr(&self, pd: &IbPd, request: &RegisterMr) -> Result<IbMr, RnicError> {
        Mr::register(&pd.pd, request).map(|mr| IbMr { mr })
    }

    fn mr_keys(&self, mr: &IbMr) -> MrKeys {
        mr.mr.keys()
    }

    fn listen(
        &self,
        address: &ListenAddress,
        token: ListenToken,
    ) -> Result<(IbListener, u16), RnicError> {
        let (listener, port) = Listener::open(&self.shared, address, token)?;
        Ok((IbListener { listener }, port))
    }

    fn connect(&self, qp: &IbQp, params: &ConnectParams<'_>) -> Result<(), RnicError> {
        cm::connect(&qp.qp, params)
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
        cm::disconnect(&qp.qp, abrupt);
    }
}

impl Drop for IbRnic {
    fn drop(&mut self) {
        // A second shutdown finds nothing to do.
        self.shared.engine.shutdown();
    }
}

fn attributes(device: &Device) -> RnicAttr {
    let attr = &device.attr;
    let many = |count: i32| u32::try_from(count).unwrap_or(0);
    let atomics = attr.atomic_cap != IBV_ATOMIC_NONE && device.transport == Transport::InfiniBand;
    RnicAttr {
        adapter_name: device.name.clone(),
        vendor_name: format!("{:#x}", attr.vendor_id),
        address: device.address,
        private_data_len_max: cm::private_data_max(device),
        qp_max: many(attr.max_qp),
        wr_max: many(attr.max_qp_wr),
        sge_max: many(attr.max_sge),
        read_sge_max: many(attr.max_sge_rd),
        cq_max: many(attr.max_cq),
        cqe_max: many(attr.max_cqe),
        mr_max: many(attr.max_mr),
        mr_len_max: attr.max_mr_size,
        mw_max: 0,
        pd_max: many(attr.max_pd),
        srq_max: 0,
        srq_wr_max: 0,
        ird_max: many(attr.max_qp_rd_atom),
        ord_max: many(attr.max_qp_init_rd_atom),
        message_len_max: device.port_attr.max_msg_sz,
        socket_service_points: false,
        immediate_and_atomics: atomics,
        named: Vec::new(),
    }
}
