//! Creation of queue pairs, and their functions; each does as its manual page says.

use std::cell::UnsafeCell;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter;
use crate::completions::cq_of;
use crate::domains::pd_of;
use crate::fault::{self, Fault};
use crate::qp::{Parts, Qp};
use crate::srq::srq_of;
use crate::ud::Ud;
use crate::users::Use;

use super::builder::FUNCTIONS;
use super::object::{Built, CreatedQp, Kind, QpEx, QpObject, kind_of};

/// Creates a queue pair.
pub(crate) fn create(pd: *mut ibv_pd, init: &mut ibv_qp_init_attr) -> Result<*mut ibv_qp, Fault> {
    create_one(pd, init, false)
}

fn create_one(
    pd: *mut ibv_pd,
    init: &mut ibv_qp_init_attr,
    is_extended: bool,
) -> Result<*mut ibv_qp, Fault> {
    // The types that the device lacks have the error number of a kernel that lacks them.
    if !matches!(init.qp_type, IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_UD) {
        return Err(Errno::OPNOTSUPP);
    }
    if init.send_cq.is_null() || init.recv_cq.is_null() {
        return Err(Errno::INVAL);
    }
    // SAFETY: the program passes live objects of one context.
    let (parts, context) = unsafe {
        let context = (*pd).context;
        let srq = (!init.srq.is_null()).then(|| srq_of(init.srq).clone());
        let parts = Parts {
            adapter: adapter::of(context).clone(),
            pd: pd_of(pd).clone(),
            send_cq: cq_of(init.send_cq).clone(),
            recv_cq: cq_of(init.recv_cq).clone(),
            srq,
        };
        (parts, context)
    };
    let _pd = Use::of(&parts.pd);
    let _cqs = [Use::of(&parts.send_cq), Use::of(&parts.recv_cq)];
    let _srq = parts.srq.as_ref().map(Use::of);
    let kind = match init.qp_type {
        IBV_QPT_UD => Kind::Datagram(Ud::create(parts, init)?),
        _ => Kind::Connected(Qp::create(parts, init)?),
    };
    init.cap = kind.query().0.cap;
    let number = kind.number();
    // SAFETY: zero is a value of the header's mutex and condition, of which `ibv_wr_start` uses the
    // mutex.
    let (mutex, cond) = unsafe { std::mem::zeroed() };
    let base = ibv_qp {
        context,
        qp_context: init.qp_context,
        pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: number,
        qp_num: number,
        state: IBV_QPS_RESET,
        qp_type: init.qp_type,
        mutex,
        cond,
        events_completed: 0,
    };
    let c = QpEx {
        base,
        mask: 0,
        wr_id: 0,
        wr_flags: 0,
        functions: FUNCTIONS,
    };
    let created = CreatedQp {
        kind: kind.clone(),
        built: UnsafeCell::new(Built::default()),
        is_extended,
        _pd,
        _cqs,
        _srq,
    };
    let object = QpObject::create(c, created).cast();
    match kind {
        Kind::Connected(qp) => qp.publish(object),
        Kind::Datagram(ud) => ud.publish(object),
    }
    Ok(object)
}

/// `struct ibv_qp_init_attr_ex`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct QpAttrEx {
    qp_context: *mut libc::c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    qp_type: ibv_qp_type,
    sq_sig_all: libc::c_int,
    pub(crate) mask: u32,
    pub(crate) pd: *mut ibv_pd,
    _xrcd: *mut libc::c_void,
    create_flags: u32,
    _max_tso_header: u16,
    _rwq_ind_tbl: *mut libc::c_void,
    _rx_hash: [u64; 3],
    _source_qpn: u32,
    send_ops: u64,
}

/// The members of [`QpAttrEx`] that may be set.
pub(crate) const HAS_PD: u32 = 1;
const HAS_CREATE_FLAGS: u32 = 1 << 2;
const HAS_SEND_OPS: u32 = 1 << 6;
/// The operations of `ibv_wr_*` that connected queue pairs have: the first ten of the header. The
/// others are segmentation offload and atomic Writes.
const CONNECTED_OPS: u64 = 0x3ff;
/// Read, and both atomics, which unreliable queue pairs do not have.
const ANSWERED_OPS: u64 = 1 << 4 | 1 << 5 | 1 << 6;
/// Send, and Send with immediate data.
const DATAGRAM_OPS: u64 = 1 << 2 | 1 << 3;

/// `ibv_create_qp_ex(3)`, called by the header.
///
/// # Safety
/// As the manual page says.
pub(crate) unsafe extern "C" fn create_qp_ex(
    _context: *mut ibv_context,
    attr: *mut QpAttrEx,
) -> *mut ibv_qp {
    // SAFETY: the program passes its structure.
    let attr = unsafe { &mut *attr };
    let has = |bit| attr.mask & bit != 0;
    let create_flags = if has(HAS_CREATE_FLAGS) {
        attr.create_flags
    } else {
        0
    };
    let send_ops = if has(HAS_SEND_OPS) { attr.send_ops } else { 0 };
    let known_ops = match attr.qp_type {
        IBV_QPT_UD => DATAGRAM_OPS,
        IBV_QPT_UC => CONNECTED_OPS & !ANSWERED_OPS,
        _ => CONNECTED_OPS,
    };
    let is_known = attr.mask & !(HAS_PD | HAS_CREATE_FLAGS | HAS_SEND_OPS) == 0
        && create_flags == 0
        && send_ops & !known_ops == 0;
    if !is_known {
        return fault::pointer(Err(Errno::OPNOTSUPP));
    }
    if !has(HAS_PD) || attr.pd.is_null() {
        return fault::pointer(Err(Errno::INVAL));
    }
    let mut init = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    let created = create_one(attr.pd, &mut init, has(HAS_SEND_OPS));
    attr.cap = init.cap;
    fault::pointer(created)
}

/// `ibv_create_qp(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: the program passes live structures.
    fault::pointer(create(pd, unsafe { &mut *init }))
}

/// `ibv_qp_to_qp_ex(3)`: null for a queue pair that was created without `send_ops_flags`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut libc::c_void {
    // SAFETY: the program passes a live queue pair.
    match unsafe { QpObject::own(qp.cast()) }.is_extended {
        true => qp.cast(),
        false => std::ptr::null_mut(),
    }
}

/// `ibv_modify_qp(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    mask: libc::c_int,
) -> libc::c_int {
    // SAFETY: the program passes a live queue pair and structure.
    let (own, attr) = unsafe { (kind_of(qp), &*attr) };
    let modified = own.modify(attr, mask.cast_unsigned());
    if let Ok(state) = modified {
        // SAFETY: the queue pair is alive, and the program does not modify it on two threads.
        unsafe { (*qp).state = state };
    }
    fault::code(modified.map(drop))
}

/// `ibv_query_qp(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: libc::c_int,
    init: *mut ibv_qp_init_attr,
) -> libc::c_int {
    // SAFETY: the program passes a live queue pair.
    let (own, c) = unsafe { (kind_of(qp), *qp) };
    let (found, signals_all) = own.query();
    let created = ibv_qp_init_attr {
        qp_context: c.qp_context,
        send_cq: c.send_cq,
        recv_cq: c.recv_cq,
        srq: c.srq,
        cap: found.cap,
        qp_type: c.qp_type,
        sq_sig_all: signals_all.into(),
    };
    // SAFETY: the program passes pointers to its structures.
    unsafe {
        attr.write(found);
        init.write(created);
        (*qp).state = found.qp_state;
    }
    0
}

/// `ibv_destroy_qp(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> libc::c_int {
    // SAFETY: the contracts are the same.
    unsafe { destroy(qp) };
    0
}

/// Destroys a queue pair.
///
/// # Safety
/// `qp` is a live queue pair of this library, and is not used after this call.
pub(crate) unsafe fn destroy(qp: *mut ibv_qp) {
    // SAFETY: the caller guarantees a live queue pair.
    match unsafe { kind_of(qp) }.clone() {
        Kind::Connected(own) => own.destroy(qp),
        Kind::Datagram(own) => own.destroy(qp),
    }
    // SAFETY: the caller does not use the queue pair after this call.
    unsafe { QpObject::destroy(qp.cast()) };
}
