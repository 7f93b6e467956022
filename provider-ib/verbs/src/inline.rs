//! The verbs that the C header defines inline: calls through the operations of a device's context.

use std::io;

use crate::types::{
    ibv_cq, ibv_mw, ibv_mw_bind, ibv_mw_type, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq,
    ibv_wc,
};

/// Converts the return value of a verb: 0 is success, anything else an error number.
fn checked(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        // Drivers return the error number, and some of them negate it.
        code => Err(io::Error::from_raw_os_error(code.abs())),
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::EOPNOTSUPP)
}

/// Polls completions and returns their number, or an error when the queue is broken.
///
/// # Safety
/// `cq` is alive.
#[inline]
pub unsafe fn poll_cq(cq: *mut ibv_cq, out: &mut [ibv_wc]) -> io::Result<usize> {
    // SAFETY: a live queue points to its live context (caller).
    let poll = unsafe { (*(*cq).context).ops.poll_cq }.ok_or_else(missing)?;
    let room = i32::try_from(out.len()).unwrap_or(i32::MAX);
    // SAFETY: the driver writes at most `room` entries.
    let count = unsafe { poll(cq, room, out.as_mut_ptr()) };
    usize::try_from(count).map_err(|_| io::Error::from_raw_os_error(libc::EIO))
}

/// Requests one event on the queue's channel.
///
/// # Safety
/// `cq` is alive.
#[inline]
pub unsafe fn req_notify_cq(cq: *mut ibv_cq, solicited_only: bool) -> io::Result<()> {
    // SAFETY: a live queue points to its live context (caller).
    let notify = unsafe { (*(*cq).context).ops.req_notify_cq }.ok_or_else(missing)?;
    // SAFETY: the caller guarantees the queue.
    checked(unsafe { notify(cq, i32::from(solicited_only)) })
}

/// Posts a list of requests.
///
/// # Safety
/// `qp` is alive, and `wr` is a valid list whose segment lists are valid.
#[inline]
pub unsafe fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr) -> io::Result<()> {
    // SAFETY: a live queue pair points to its live context (caller).
    let post = unsafe { (*(*qp).context).ops.post_send }.ok_or_else(missing)?;
    let mut bad = std::ptr::null_mut();
    // SAFETY: the caller guarantees the queue pair and the list, which is read before the call
    // returns.
    checked(unsafe { post(qp, wr, &raw mut bad) })
}

/// Posts a list of receives.
///
/// # Safety
/// As for [`post_send`].
#[inline]
pub unsafe fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr) -> io::Result<()> {
    // SAFETY: a live queue pair points to its live context (caller).
    let post = unsafe { (*(*qp).context).ops.post_recv }.ok_or_else(missing)?;
    let mut bad = std::ptr::null_mut();
    // SAFETY: the caller guarantees the queue pair and the list, which is read before the call
    // returns.
    checked(unsafe { post(qp, wr, &raw mut bad) })
}

/// Posts a list of receives to a shared receive queue.
///
/// # Safety
/// `srq` is alive, and `wr` is a valid list whose segment lists are valid.
#[inline]
pub unsafe fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr) -> io::Result<()> {
    // SAFETY: a live queue points to its live context (caller).
    let post = unsafe { (*(*srq).context).ops.post_srq_recv }.ok_or_else(missing)?;
    let mut bad = std::ptr::null_mut();
    // SAFETY: the caller guarantees the queue and the list, which is read before the call returns.
    checked(unsafe { post(srq, wr, &raw mut bad) })
}

/// Allocates a memory window.
///
/// # Safety
/// `pd` is alive.
pub unsafe fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> io::Result<*mut ibv_mw> {
    // SAFETY: a live domain points to its live context (caller).
    let alloc = unsafe { (*(*pd).context).ops.alloc_mw }.ok_or_else(missing)?;
    // SAFETY: the caller guarantees the domain.
    let mw = unsafe { alloc(pd, kind) };
    if mw.is_null() {
        return Err(io::Error::last_os_error());
    }
    Ok(mw)
}

/// Deallocates a memory window.
///
/// # Safety
/// `mw` is alive, and is not used after this call.
pub unsafe fn dealloc_mw(mw: *mut ibv_mw) -> io::Result<()> {
    // SAFETY: a live window points to its live context (caller).
    let dealloc = unsafe { (*(*mw).context).ops.dealloc_mw }.ok_or_else(missing)?;
    // SAFETY: the caller guarantees the window, and does not use it after this call.
    checked(unsafe { dealloc(mw) })
}

/// Posts the bind of a window of type 1. Its `rkey` field then holds the new key.
///
/// # Safety
/// `qp` and `mw` are alive, and so is the region in `bind`, if any.
pub unsafe fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: &mut ibv_mw_bind) -> io::Result<()> {
    // SAFETY: a live window points to its live context (caller).
    let post = unsafe { (*(*mw).context).ops.bind_mw }.ok_or_else(missing)?;
    // SAFETY: the caller guarantees the objects; `bind` is read before the call returns.
    checked(unsafe { post(qp, mw, bind) })
}
