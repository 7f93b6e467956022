//! The structure of a queue pair, and the types of queue pairs.

use std::cell::UnsafeCell;
use std::sync::Arc;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::cq::Cq;
use crate::domains::Pd;
use crate::fault::Fault;
use crate::object::Object;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::ud::Ud;
use crate::users::Use;
use crate::windows::Bind;

/// A queue pair and the objects that it uses.
pub(super) struct CreatedQp {
    pub(super) kind: Kind,
    /// The requests that the program builds. The thread that holds the mutex of the structure uses
    /// them.
    pub(super) built: UnsafeCell<Built>,
    pub(super) is_extended: bool,
    pub(super) _pd: Use<Pd>,
    pub(super) _cqs: [Use<Cq>; 2],
    pub(super) _srq: Option<Use<Srq>>,
}

pub(super) type QpObject = Object<QpEx, CreatedQp>;

/// A queue pair by its type.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Connected(Arc<Qp>),
    Datagram(Arc<Ud>),
}

impl Kind {
    pub(super) fn number(&self) -> u32 {
        match self {
            Self::Connected(qp) => qp.number,
            Self::Datagram(ud) => ud.number,
        }
    }

    pub(super) fn modify(
        &self,
        attr: &ibv_qp_attr,
        mask: ibv_qp_attr_mask,
    ) -> Result<ibv_qp_state, Fault> {
        match self {
            Self::Connected(qp) => qp.modify(attr, mask),
            Self::Datagram(ud) => ud.modify(attr, mask),
        }
    }

    /// Returns the attributes, and whether all requests are signalled.
    pub(super) fn query(&self) -> (ibv_qp_attr, bool) {
        match self {
            Self::Connected(qp) => qp.query(),
            Self::Datagram(ud) => ud.query(),
        }
    }

    pub(crate) fn post_send(&self, wr: &ibv_send_wr) -> Result<(), Fault> {
        match self {
            Self::Connected(qp) => qp.post_send(wr),
            Self::Datagram(ud) => ud.post_send(wr),
        }
    }

    pub(crate) fn post_recv(&self, wr: &ibv_recv_wr) -> Result<(), Fault> {
        match self {
            Self::Connected(qp) => qp.post_recv(wr),
            Self::Datagram(ud) => ud.post_recv(wr),
        }
    }

    pub(crate) fn post_bind(
        &self,
        bind: Bind,
        wr_id: u64,
        send_flags: ibv_send_flags,
    ) -> Result<(), Fault> {
        match self {
            Self::Connected(qp) => qp.post_bind(bind, wr_id, send_flags),
            Self::Datagram(_) => Err(Errno::INVAL),
        }
    }
}

/// Returns a queue pair.
///
/// # Safety
/// `qp` is a live queue pair of this library.
pub(crate) unsafe fn kind_of<'a>(qp: *mut ibv_qp) -> &'a Kind {
    // SAFETY: the caller guarantees a live queue pair.
    &unsafe { QpObject::own(qp.cast()) }.kind
}

/// Returns a connected queue pair.
///
/// # Safety
/// As for [`kind_of`].
pub(crate) unsafe fn connected<'a>(qp: *mut ibv_qp) -> Result<&'a Arc<Qp>, Fault> {
    // SAFETY: the contracts are the same.
    match unsafe { kind_of(qp) } {
        Kind::Connected(qp) => Ok(qp),
        Kind::Datagram(_) => Err(Errno::INVAL),
    }
}

/// A function of `struct ibv_qp_ex` that this library does not have.
type Absent = usize;

/// `struct ibv_qp_ex`; the functions are those of `super::builder`.
#[repr(C)]
pub(super) struct QpEx {
    pub(super) base: ibv_qp,
    pub(super) mask: u64,
    pub(super) wr_id: u64,
    pub(super) wr_flags: u32,
    pub(super) functions: Functions,
}

/// The functions of `struct ibv_qp_ex`, in its order.
#[repr(C)]
pub(super) struct Functions {
    pub(super) atomic_cmp_swp: unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64),
    pub(super) atomic_fetch_add: unsafe extern "C" fn(*mut QpEx, u32, u64, u64),
    pub(super) bind_mw: unsafe extern "C" fn(*mut QpEx, *mut ibv_mw, u32, *const ibv_mw_bind_info),
    pub(super) local_inv: unsafe extern "C" fn(*mut QpEx, u32),
    pub(super) rdma_read: unsafe extern "C" fn(*mut QpEx, u32, u64),
    pub(super) rdma_write: unsafe extern "C" fn(*mut QpEx, u32, u64),
    pub(super) rdma_write_imm: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    pub(super) send: unsafe extern "C" fn(*mut QpEx),
    pub(super) send_imm: unsafe extern "C" fn(*mut QpEx, u32),
    pub(super) send_inv: unsafe extern "C" fn(*mut QpEx, u32),
    pub(super) send_tso: Absent,
    pub(super) set_ud_addr: unsafe extern "C" fn(*mut QpEx, *mut libc::c_void, u32, u32),
    pub(super) set_xrc_srqn: Absent,
    pub(super) set_inline_data: unsafe extern "C" fn(*mut QpEx, *const libc::c_void, usize),
    pub(super) set_inline_data_list: unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf),
    pub(super) set_sge: unsafe extern "C" fn(*mut QpEx, u32, u64, u32),
    pub(super) set_sge_list: unsafe extern "C" fn(*mut QpEx, usize, *const ibv_sge),
    pub(super) start: unsafe extern "C" fn(*mut QpEx),
    pub(super) complete: unsafe extern "C" fn(*mut QpEx) -> libc::c_int,
    pub(super) abort: unsafe extern "C" fn(*mut QpEx),
    pub(super) atomic_write: Absent,
}

/// `struct ibv_data_buf`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct DataBuf {
    pub(super) addr: *const libc::c_void,
    pub(super) length: usize,
}

const _: () = {
    assert!(std::mem::offset_of!(QpEx, mask) == size_of::<ibv_qp>());
    assert!(std::mem::offset_of!(QpEx, functions) == size_of::<ibv_qp>() + 24);
    assert!(size_of::<Functions>() == 21 * 8);
};

/// A request that a program builds.
pub(super) struct Request {
    pub(super) wr: ibv_send_wr,
    pub(super) sgl: Vec<ibv_sge>,
    /// Inline payload, which the program may overwrite before the request is posted.
    pub(super) data: Vec<u8>,
}

/// The requests between `ibv_wr_start` and `ibv_wr_complete`. Their memory is used again.
#[derive(Default)]
pub(super) struct Built {
    pub(super) requests: Vec<Request>,
    /// The number of requests that were built since `ibv_wr_start`.
    pub(super) count: usize,
}
