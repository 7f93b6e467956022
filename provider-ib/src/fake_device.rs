//! A device for tests, without libraries. It accepts all work and completes none.

use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rnic::{CqToken, EventUpcall, QpAttr, QpToken, RecvWr};
use verbs_dl::Libraries;
use verbs_dl::cm::RdmaCm;
use verbs_dl::types::*;
use verbs_dl::verbs::IbVerbs;

use crate::channel::Channel;
use crate::config::Config;
use crate::cq::Cq;
use crate::device::Device;
use crate::engine::Engine;
use crate::memory::Pd;
use crate::qp::{Qp, QpParts};
use crate::quirks::Transport;
use crate::regions::Regions;
use crate::shared::Shared;

/// Creates an object of the library, which is never freed.
fn object<T: Default>() -> &'static mut T {
    Box::leak(Box::default())
}

unsafe extern "C" fn create_channel(_: *mut ibv_context) -> *mut ibv_comp_channel {
    let channel = object::<ibv_comp_channel>();
    channel.fd = UnixStream::pair().unwrap().0.into_raw_fd();
    channel
}

unsafe extern "C" fn alloc_pd(_: *mut ibv_context) -> *mut ibv_pd {
    object::<ibv_pd>()
}

unsafe extern "C" fn create_cq(
    context: *mut ibv_context,
    cqe: i32,
    _: *mut libc::c_void,
    _: *mut ibv_comp_channel,
    _: i32,
) -> *mut ibv_cq {
    let cq = object::<ibv_cq>();
    (cq.context, cq.cqe) = (context, cqe);
    cq
}

unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let qp = object::<ibv_qp>();
    // SAFETY: the caller passes valid attributes with a live queue.
    (qp.pd, qp.context) = (pd, unsafe { (*(*init).send_cq).context });
    qp
}

unsafe extern "C" fn modify_qp(_: *mut ibv_qp, _: *mut ibv_qp_attr, _: i32) -> i32 {
    0
}

unsafe extern "C" fn query_qp(
    _: *mut ibv_qp,
    _: *mut ibv_qp_attr,
    _: i32,
    _: *mut ibv_qp_init_attr,
) -> i32 {
    0
}

unsafe extern "C" fn poll_cq(_: *mut ibv_cq, _: i32, _: *mut ibv_wc) -> i32 {
    0
}

unsafe extern "C" fn post_recv(
    _: *mut ibv_qp,
    _: *mut ibv_recv_wr,
    _: *mut *mut ibv_recv_wr,
) -> i32 {
    0
}

/// Opens the device. It stays open, because its objects cannot be destroyed.
pub(crate) fn open(upcall: Arc<dyn EventUpcall>, transport: Transport) -> Arc<Shared> {
    let mut verbs = IbVerbs::stub();
    verbs.ibv_create_comp_channel = create_channel;
    verbs.ibv_alloc_pd = alloc_pd;
    verbs.ibv_create_cq = create_cq;
    verbs.ibv_create_qp = create_qp;
    verbs.ibv_modify_qp = modify_qp;
    verbs.ibv_query_qp = query_qp;
    let context = object::<ibv_context>();
    context.ops.poll_cq = Some(poll_cq);
    context.ops.post_recv = Some(post_recv);
    let cm = RdmaCm::stub();
    let libraries = Arc::new(Libraries { verbs, cm });
    let device = Device::fake(libraries, NonNull::from(context), transport);
    let shared = Arc::new(Shared {
        channel: Channel::new(&device).unwrap(),
        device,
        config: Config::parse("fake").unwrap(),
        upcall,
        engine: Engine::new().unwrap(),
        regions: Regions::default(),
        is_device_removed: AtomicBool::new(false),
    });
    std::mem::forget(shared.clone());
    shared
}

/// Creates a queue pair in an attempt to connect with one posted receive, which the device keeps.
pub(crate) fn connecting(shared: &Arc<Shared>, token: QpToken) -> Arc<Qp> {
    let cq = Cq::new(shared, &Arc::default(), 8, CqToken(1)).unwrap();
    let parts = QpParts {
        pd: Pd::new(shared).unwrap(),
        send_cq: cq.clone(),
        recv_cq: cq,
        srq: None,
    };
    let attr = QpAttr {
        recv_wr_max: 4,
        send_wr_max: 4,
        recv_sge_max: 1,
        send_sge_max: 1,
        ird: 1,
        ord: 1,
        read_depth_is_consumers: false,
        acknowledged: false,
    };
    let qp = Qp::new(shared, &Arc::default(), parts, attr, token).unwrap();
    std::mem::forget(qp.clone());
    let receive = RecvWr {
        wr_id: 1,
        sgl: &[],
        signalled: true,
    };
    qp.post_recv(&receive).unwrap();
    qp.begin_attempt().unwrap();
    qp
}
