//! The extended interface of completion queues (`ibv_start_poll`).
//!
//! Every completion queue has the structure of the extended interface, so that one type of object
//! serves both interfaces. `ibv_start_poll` holds the mutex of the header's structure until
//! `ibv_end_poll`, because the functions that read a completion take no other argument.

use std::ffi::c_int;
use std::sync::Arc;

use rnic::CqToken;
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter::Adapter;
use crate::cq::Cq;
use crate::object::Object;
use crate::users::Use;

/// A completion queue and the data for its destruction.
pub(crate) struct Created {
    pub(crate) cq: Arc<Cq>,
    pub(crate) token: CqToken,
    pub(crate) adapter: Use<Adapter>,
}

pub(crate) type CqObject = Object<CqEx, Created>;

/// `struct ibv_cq_ex`, followed by the completion that the program reads.
#[repr(C)]
pub(crate) struct CqEx {
    pub(crate) base: ibv_cq,
    mask: u32,
    status: ibv_wc_status,
    wr_id: u64,
    start_poll: unsafe extern "C" fn(*mut Self, *const u32) -> c_int,
    next_poll: unsafe extern "C" fn(*mut Self) -> c_int,
    end_poll: unsafe extern "C" fn(*mut Self),
    read_opcode: unsafe extern "C" fn(*mut Self) -> ibv_wc_opcode,
    read_vendor_err: unsafe extern "C" fn(*mut Self) -> u32,
    read_byte_len: unsafe extern "C" fn(*mut Self) -> u32,
    read_imm_data: unsafe extern "C" fn(*mut Self) -> u32,
    read_qp_num: unsafe extern "C" fn(*mut Self) -> u32,
    read_src_qp: unsafe extern "C" fn(*mut Self) -> u32,
    read_wc_flags: unsafe extern "C" fn(*mut Self) -> u32,
    read_slid: unsafe extern "C" fn(*mut Self) -> u32,
    read_sl: unsafe extern "C" fn(*mut Self) -> u8,
    read_dlid_path_bits: unsafe extern "C" fn(*mut Self) -> u8,
    /// Time stamps, VLANs, flow tags and tag matching, which no queue is created with.
    others: [usize; 5],
    current: ibv_wc,
}

const _: () = {
    assert!(std::mem::offset_of!(CqEx, mask) == size_of::<ibv_cq>());
    assert!(std::mem::offset_of!(CqEx, start_poll) == size_of::<ibv_cq>() + 16);
    assert!(std::mem::offset_of!(CqEx, current) == size_of::<ibv_cq>() + 16 + 18 * 8);
};

/// `IBV_WC_STANDARD_FLAGS`: the members that a program may read.
pub(crate) const STANDARD_MEMBERS: u64 = 0x7f;

impl CqEx {
    pub(crate) fn of(base: ibv_cq) -> Self {
        Self {
            base,
            mask: 0,
            status: IBV_WC_SUCCESS,
            wr_id: 0,
            start_poll,
            next_poll,
            end_poll,
            read_opcode,
            read_vendor_err,
            read_byte_len,
            read_imm_data,
            read_qp_num,
            read_src_qp,
            read_wc_flags,
            read_slid,
            read_sl,
            read_dlid_path_bits,
            others: [0; 5],
            current: ibv_wc::default(),
        }
    }
}

/// Polls one completion into the structure.
///
/// # Safety
/// `cq` is a live queue of this library, whose mutex the calling thread holds.
unsafe fn take(cq: *mut CqEx) -> c_int {
    let mut out = [ibv_wc::default()];
    // SAFETY: the caller guarantees a live queue.
    if unsafe { CqObject::own(cq) }.cq.poll(&mut out) == 0 {
        return Errno::NOENT.raw_os_error();
    }
    let [wc] = out;
    // SAFETY: the mutex makes this thread the only one that accesses these members.
    unsafe {
        (*cq).status = wc.status;
        (*cq).wr_id = wc.wr_id;
        (*cq).current = wc;
    }
    0
}

/// `ibv_start_poll`: `ENOENT` if there is no completion, `EINVAL` for unknown attributes.
unsafe extern "C" fn start_poll(cq: *mut CqEx, attr: *const u32) -> c_int {
    // SAFETY: the program passes null or its structure, whose only member is the mask.
    if unsafe { attr.as_ref() }.is_some_and(|mask| *mask != 0) {
        return Errno::INVAL.raw_os_error();
    }
    // SAFETY: the program passes a live queue, whose mutex only these functions use.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*cq).base.mutex);
        let code = take(cq);
        if code != 0 {
            libc::pthread_mutex_unlock(&raw mut (*cq).base.mutex);
        }
        code
    }
}

unsafe extern "C" fn next_poll(cq: *mut CqEx) -> c_int {
    // SAFETY: the program has called `ibv_start_poll` with success, which holds the mutex.
    unsafe { take(cq) }
}

unsafe extern "C" fn end_poll(cq: *mut CqEx) {
    // SAFETY: as for `next_poll`.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*cq).base.mutex) };
}

/// Declares the functions that read a member of the current completion.
macro_rules! readers {
    ($($name:ident: $type:ty = |$wc:ident| $value:expr;)+) => { $(
        unsafe extern "C" fn $name(cq: *mut CqEx) -> $type {
            // SAFETY: the program reads between `ibv_start_poll` and `ibv_end_poll`.
            let $wc = unsafe { &(*cq).current };
            $value
        }
    )+ };
}

readers! {
    read_opcode: ibv_wc_opcode = |wc| wc.opcode;
    read_vendor_err: u32 = |wc| wc.vendor_err;
    read_byte_len: u32 = |wc| wc.byte_len;
    // SAFETY: both members of the union are integers; the header uses this one for both.
    read_imm_data: u32 = |wc| unsafe { wc.__bindgen_anon_1.imm_data };
    read_qp_num: u32 = |wc| wc.qp_num;
    read_src_qp: u32 = |wc| wc.src_qp;
    read_wc_flags: u32 = |wc| wc.wc_flags;
    read_slid: u32 = |wc| wc.slid.into();
    read_sl: u8 = |wc| wc.sl;
    read_dlid_path_bits: u8 = |wc| wc.dlid_path_bits;
}
