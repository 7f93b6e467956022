//! Requests that a program builds by `ibv_wr_*`, and posts by `ibv_wr_complete`.
//!
//! `ibv_wr_start` holds the mutex of the header's structure until `ibv_wr_complete` or
//! `ibv_wr_abort`, because the functions between them name the queue pair alone. No allocation once
//! the lists have their size.

use std::ffi::{c_int, c_void};

use verbs_dl::types::*;

use crate::fault;
use crate::ud::{Destination, set_destination};

use super::object::{Built, DataBuf, Functions, QpEx, QpObject, Request};

/// The functions of every queue pair.
pub(super) const FUNCTIONS: Functions = Functions {
    atomic_cmp_swp,
    atomic_fetch_add,
    bind_mw,
    local_inv,
    rdma_read,
    rdma_write,
    rdma_write_imm,
    send,
    send_imm,
    send_inv,
    send_tso: 0,
    set_ud_addr,
    set_xrc_srqn: 0,
    set_inline_data,
    set_inline_data_list,
    set_sge,
    set_sge_list,
    start,
    complete,
    abort,
    atomic_write: 0,
};

/// Returns the requests of a queue pair.
///
/// # Safety
/// The calling thread is between `ibv_wr_start` and the end of the list, so that it holds the
/// mutex. The program guarantees this for every function of this module.
unsafe fn built<'a>(qp: *mut QpEx) -> &'a mut Built {
    // SAFETY: the mutex makes this thread the only one that uses the requests (caller).
    unsafe { &mut *QpObject::own(qp).built.get() }
}

/// Begins a request.
///
/// # Safety
/// As for [`built`].
unsafe fn begin<'a>(qp: *mut QpEx, opcode: ibv_wr_opcode) -> &'a mut ibv_send_wr {
    // SAFETY: as for the caller; the program has written the two members.
    let (built, wr_id, send_flags) = unsafe { (built(qp), (*qp).wr_id, (*qp).wr_flags) };
    if built.count == built.requests.len() {
        built.requests.push(Request {
            wr: ibv_send_wr::default(),
            sgl: Vec::new(),
            data: Vec::new(),
        });
    }
    let request = &mut built.requests[built.count];
    built.count += 1;
    request.sgl.clear();
    request.data.clear();
    request.wr = ibv_send_wr {
        wr_id,
        opcode,
        send_flags: send_flags & !IBV_SEND_INLINE,
        ..ibv_send_wr::default()
    };
    &mut request.wr
}

/// Returns the request that was begun last. A program that has begun none is ignored.
///
/// # Safety
/// As for [`built`].
unsafe fn last<'a>(qp: *mut QpEx) -> Option<&'a mut Request> {
    // SAFETY: as for the caller.
    let built = unsafe { built(qp) };
    let last = built.count.checked_sub(1)?;
    built.requests.get_mut(last)
}

/// Begins a one-sided operation.
///
/// # Safety
/// As for [`built`].
unsafe fn begin_rdma(qp: *mut QpEx, opcode: ibv_wr_opcode, rkey: u32, remote_addr: u64) {
    // SAFETY: as for the caller.
    let wr = unsafe { begin(qp, opcode) };
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
}

/// Begins an operation with immediate data or a key.
///
/// # Safety
/// As for [`built`].
unsafe fn begin_with(qp: *mut QpEx, opcode: ibv_wr_opcode, number: u32) {
    // SAFETY: as for the caller.
    unsafe { begin(qp, opcode) }.__bindgen_anon_1.imm_data = number;
}

unsafe extern "C" fn atomic_cmp_swp(
    qp: *mut QpEx,
    rkey: u32,
    remote_addr: u64,
    compare_add: u64,
    swap: u64,
) {
    // SAFETY: see `built`.
    let wr = unsafe { begin(qp, IBV_WR_ATOMIC_CMP_AND_SWP) };
    wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr,
        compare_add,
        swap,
        rkey,
    };
}

unsafe extern "C" fn atomic_fetch_add(qp: *mut QpEx, rkey: u32, remote_addr: u64, add: u64) {
    // SAFETY: see `built`.
    let wr = unsafe { begin(qp, IBV_WR_ATOMIC_FETCH_AND_ADD) };
    wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 {
        remote_addr,
        compare_add: add,
        swap: 0,
        rkey,
    };
}

unsafe extern "C" fn bind_mw(
    qp: *mut QpEx,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: see `built`; the program passes its structure.
    unsafe {
        let wr = begin(qp, IBV_WR_BIND_MW);
        wr.__bindgen_anon_2.bind_mw = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 {
            mw,
            rkey,
            bind_info: *info,
        };
    }
}

unsafe extern "C" fn local_inv(qp: *mut QpEx, rkey: u32) {
    // SAFETY: see `built`.
    unsafe { begin_with(qp, IBV_WR_LOCAL_INV, rkey) };
}

unsafe extern "C" fn rdma_read(qp: *mut QpEx, rkey: u32, remote_addr: u64) {
    // SAFETY: see `built`.
    unsafe { begin_rdma(qp, IBV_WR_RDMA_READ, rkey, remote_addr) };
}

unsafe extern "C" fn rdma_write(qp: *mut QpEx, rkey: u32, remote_addr: u64) {
    // SAFETY: see `built`.
    unsafe { begin_rdma(qp, IBV_WR_RDMA_WRITE, rkey, remote_addr) };
}

unsafe extern "C" fn rdma_write_imm(qp: *mut QpEx, rkey: u32, remote_addr: u64, data: u32) {
    // SAFETY: see `built`.
    let wr = unsafe { begin(qp, IBV_WR_RDMA_WRITE_WITH_IMM) };
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
    wr.__bindgen_anon_1.imm_data = data;
}

unsafe extern "C" fn send(qp: *mut QpEx) {
    // SAFETY: see `built`.
    unsafe { begin(qp, IBV_WR_SEND) };
}

unsafe extern "C" fn send_imm(qp: *mut QpEx, data: u32) {
    // SAFETY: see `built`.
    unsafe { begin_with(qp, IBV_WR_SEND_WITH_IMM, data) };
}

unsafe extern "C" fn send_inv(qp: *mut QpEx, rkey: u32) {
    // SAFETY: see `built`.
    unsafe { begin_with(qp, IBV_WR_SEND_WITH_INV, rkey) };
}

unsafe extern "C" fn set_ud_addr(qp: *mut QpEx, ah: *mut c_void, number: u32, key: u32) {
    // SAFETY: see `built`.
    if let Some(request) = unsafe { last(qp) } {
        set_destination(&mut request.wr, Destination { ah, number, key });
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut QpEx, addr: *const c_void, length: usize) {
    // SAFETY: see `built`; the structure is of this frame.
    unsafe { set_inline_data_list(qp, 1, &DataBuf { addr, length }) };
}

unsafe extern "C" fn set_inline_data_list(qp: *mut QpEx, count: usize, list: *const DataBuf) {
    // SAFETY: see `built`.
    let Some(request) = (unsafe { last(qp) }) else {
        return;
    };
    request.wr.send_flags |= IBV_SEND_INLINE;
    for index in 0..count {
        // SAFETY: the program passes a list of this length, of readable memory.
        unsafe {
            let part = &*list.add(index);
            if part.length > 0 {
                let bytes = std::slice::from_raw_parts(part.addr.cast::<u8>(), part.length);
                request.data.extend_from_slice(bytes);
            }
        }
    }
}

unsafe extern "C" fn set_sge(qp: *mut QpEx, lkey: u32, addr: u64, length: u32) {
    // SAFETY: see `built`.
    if let Some(request) = unsafe { last(qp) } {
        request.sgl.push(ibv_sge { addr, length, lkey });
    }
}

unsafe extern "C" fn set_sge_list(qp: *mut QpEx, count: usize, list: *const ibv_sge) {
    // SAFETY: see `built`; the program passes a list of this length.
    unsafe {
        if let Some(request) = last(qp).filter(|_| count > 0) {
            let list = std::slice::from_raw_parts(list, count);
            request.sgl.extend_from_slice(list);
        }
    }
}

unsafe extern "C" fn start(qp: *mut QpEx) {
    // SAFETY: the program passes a live queue pair, whose mutex only this module uses.
    unsafe {
        libc::pthread_mutex_lock(&raw mut (*qp).base.mutex);
        built(qp).count = 0;
    }
}

/// Posts the requests in order. Those after one that is refused are not posted.
unsafe extern "C" fn complete(qp: *mut QpEx) -> c_int {
    // SAFETY: see `built`.
    let (own, built) = unsafe { (QpObject::own(qp), built(qp)) };
    let count = std::mem::take(&mut built.count);
    let mut requests = built.requests[..count].iter_mut();
    let posted = requests.try_for_each(|request| {
        let Request { wr, sgl, data } = request;
        if wr.send_flags & IBV_SEND_INLINE != 0 {
            sgl.clear();
            sgl.push(ibv_sge {
                addr: data.as_ptr().expose_provenance() as u64,
                length: data.len() as u32,
                lkey: 0,
            });
        }
        wr.sg_list = sgl.as_mut_ptr();
        wr.num_sge = sgl.len() as c_int;
        own.kind.post_send(wr)
    });
    // SAFETY: `start` has locked the mutex.
    unsafe { libc::pthread_mutex_unlock(&raw mut (*qp).base.mutex) };
    fault::code(posted)
}

unsafe extern "C" fn abort(qp: *mut QpEx) {
    // SAFETY: see `built`; `start` has locked the mutex.
    unsafe {
        built(qp).count = 0;
        libc::pthread_mutex_unlock(&raw mut (*qp).base.mutex);
    }
}
