//! Endpoint.

use std::ffi::c_void;

use dat_abi::*;

use super::guard::{Out, pin, pin_ia, private_data, read, segments, share_or_null, socket_address};
use crate::ep::{ConnectArgs, Ep, EpParts};
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::Pinned;
use crate::pz::Pz;
use crate::rnic::Rnic;
use crate::srq::Srq;

#[inline]
fn pin_ep<R: Rnic>(ep: DatEpHandle) -> DatResult<Pinned<Ep<R>>> {
    pin(ep, DAT_INVALID_HANDLE_EP)
}

pub(crate) unsafe fn ep_create<R: Rnic>(
    ia: DatIaHandle,
    pz: DatPzHandle,
    recv_evd: DatEvdHandle,
    request_evd: DatEvdHandle,
    connect_evd: DatEvdHandle,
    attr: *const DatEpAttr,
    ep: *mut DatEpHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let parts = parts(pz, recv_evd, request_evd, connect_evd)?;
    let out = Out::required(ep, 7)?;
    // SAFETY: by the contract of all thunks.
    let attr = unsafe { read_attr(attr, 6) }?;
    out.write(Ep::create(&ia.to_arc(), parts, attr.as_ref())?.as_dat());
    Ok(())
}

pub(crate) unsafe fn ep_create_with_srq<R: Rnic>(
    ia: DatIaHandle,
    pz: DatPzHandle,
    recv_evd: DatEvdHandle,
    request_evd: DatEvdHandle,
    connect_evd: DatEvdHandle,
    srq: DatSrqHandle,
    attr: *const DatEpAttr,
    ep: *mut DatEpHandle,
) -> DatResult {
    let ia = pin_ia::<R>(ia)?;
    let mut parts = parts(pz, recv_evd, request_evd, connect_evd)?;
    let out = Out::required(ep, 8)?;
    // SAFETY: by the contract of all thunks.
    let attr = unsafe { read_attr(attr, 7) }?;
    parts.srq = Some(pin::<Srq<R>>(srq, DAT_INVALID_HANDLE_SRQ)?.to_arc());
    out.write(Ep::create(&ia.to_arc(), parts, attr.as_ref())?.as_dat());
    Ok(())
}

fn parts<R: Rnic>(
    pz: DatPzHandle,
    recv_evd: DatEvdHandle,
    request_evd: DatEvdHandle,
    connect_evd: DatEvdHandle,
) -> DatResult<EpParts<R>> {
    // Checked in the order of OFA's providers.
    let pz = share_or_null::<Pz<R>>(pz, DAT_INVALID_HANDLE_PZ)?;
    let connect_evd = share_or_null::<Evd<R>>(connect_evd, DAT_INVALID_HANDLE_EVD_CONN)?;
    let recv_evd = share_or_null::<Evd<R>>(recv_evd, DAT_INVALID_HANDLE_EVD_RECV)?;
    let request_evd = share_or_null::<Evd<R>>(request_evd, DAT_INVALID_HANDLE_EVD_REQUEST)?;
    Ok(EpParts {
        pz,
        recv_evd,
        request_evd,
        connect_evd,
        srq: None,
    })
}

/// Reads attributes, argument `n`; null selects the defaults.
///
/// # Safety
/// By the contract of all thunks: null, or points at attributes.
unsafe fn read_attr(attr: *const DatEpAttr, n: u32) -> DatResult<Option<DatEpAttr>> {
    if attr.is_null() {
        return Ok(None);
    }
    if !attr.is_aligned() {
        return Err(DatError::invalid_arg(n));
    }
    // SAFETY: by the contract of this function.
    unsafe { read(attr, n) }.map(Some)
}

pub(crate) unsafe fn ep_query<R: Rnic>(
    ep: DatEpHandle,
    _mask: DatEpParamMask,
    param: *mut DatEpParam,
) -> DatResult {
    let ep = pin_ep::<R>(ep)?;
    Out::required(param, 3)?.write(ep.query());
    Ok(())
}

pub(crate) unsafe fn ep_modify<R: Rnic>(
    ep: DatEpHandle,
    mask: DatEpParamMask,
    param: *const DatEpParam,
) -> DatResult {
    let ep = pin_ep::<R>(ep)?;
    // SAFETY: by the contract of all thunks.
    let param = unsafe { read(param, 3) }?;
    ep.modify(mask, &param)?;
    Ep::destroy_replaced(&ep);
    Ok(())
}

pub(crate) unsafe fn ep_connect<R: Rnic>(
    ep: DatEpHandle,
    remote_address: DatIaAddressPtr,
    conn_qual: DatConnQual,
    timeout_us: DatTimeout,
    private_data_size: DatCount,
    private_data_ptr: *const c_void,
    qos: DatQos,
    flags: DatConnectFlags,
) -> DatResult {
    // SAFETY: by the contract of all thunks. The address is checked before the handle, as in
    // OFA's providers.
    let remote = unsafe { socket_address(remote_address, 2) }?;
    let ep = pin_ep::<R>(ep)?;
    // SAFETY: by the contract of all thunks; the bytes are not used after the call.
    let private_data = unsafe { private_data(private_data_size, private_data_ptr, 5) }?;
    ep.connect(&ConnectArgs {
        remote,
        conn_qual,
        timeout_us,
        private_data,
        qos,
        flags,
    })
}

pub(crate) unsafe fn ep_dup_connect<R: Rnic>(
    ep: DatEpHandle,
    dup: DatEpHandle,
    timeout_us: DatTimeout,
    private_data_size: DatCount,
    private_data_ptr: *const c_void,
    qos: DatQos,
) -> DatResult {
    let ep = pin_ep::<R>(ep)?;
    let dup = pin_ep::<R>(dup)?;
    // SAFETY: by the contract of all thunks; the bytes are not used after the call.
    let private_data = unsafe { private_data(private_data_size, private_data_ptr, 4) }?;
    ep.dup_connect(&dup, timeout_us, private_data, qos)
}

pub(crate) unsafe fn ep_common_connect<R: Rnic>(
    ep: DatEpHandle,
    remote_address: DatIaAddressPtr,
    timeout_us: DatTimeout,
    private_data_size: DatCount,
    private_data_ptr: *const c_void,
) -> DatResult {
    let ep = pin_ep::<R>(ep)?;
    // SAFETY: by the contract of all thunks.
    let remote = unsafe { socket_address(remote_address, 2) }?;
    // SAFETY: by the contract of all thunks; the bytes are not used after the call.
    let private_data = unsafe { private_data(private_data_size, private_data_ptr, 4) }?;
    ep.common_connect(remote, timeout_us, private_data)
}

pub(crate) unsafe fn ep_disconnect<R: Rnic>(ep: DatEpHandle, flags: DatCloseFlags) -> DatResult {
    pin_ep::<R>(ep)?.disconnect(flags)
}

/// Posts of a message: the segments that it is sent from or received into.
macro_rules! post_message {
    ($thunk:ident, $post:ident) => {
        pub(crate) unsafe fn $thunk<R: Rnic>(
            ep: DatEpHandle,
            num_segments: DatCount,
            local_iov: *mut DatLmrTriplet,
            cookie: DatDtoCookie,
            flags: DatCompletionFlags,
        ) -> DatResult {
            let ep = pin_ep::<R>(ep)?;
            // SAFETY: by the contract of all thunks; the list is not used after the call.
            let sgl = unsafe { segments(num_segments, local_iov) }?;
            ep.$post(&sgl, cookie.to_u64(), flags)
        }
    };
}

post_message!(ep_post_send, post_send);
post_message!(ep_post_recv, post_recv);

pub(crate) unsafe fn ep_post_send_with_invalidate<R: Rnic>(
    ep: DatEpHandle,
    num_segments: DatCount,
    local_iov: *mut DatLmrTriplet,
    cookie: DatDtoCookie,
    flags: DatCompletionFlags,
    invalidate: DatBoolean,
    rmr_context: DatRmrContext,
) -> DatResult {
    let ep = pin_ep::<R>(ep)?;
    // SAFETY: by the contract of all thunks; the list is not used after the call.
    let sgl = unsafe { segments(num_segments, local_iov) }?;
    let invalidate = (invalidate != DAT_FALSE).then_some(rmr_context);
    ep.post_send_with_invalidate(&sgl, cookie.to_u64(), flags, invalidate)
}

/// Posts of a transfer between segments and the memory of the peer.
macro_rules! post_rdma {
    ($thunk:ident, $post:ident) => {
        pub(crate) unsafe fn $thunk<R: Rnic>(
            ep: DatEpHandle,
            num_segments: DatCount,
            local_iov: *mut DatLmrTriplet,
            cookie: DatDtoCookie,
            remote: *const DatRmrTriplet,
            flags: DatCompletionFlags,
        ) -> DatResult {
            let ep = pin_ep::<R>(ep)?;
            // SAFETY: by the contract of all thunks; the list is not used after the call.
            let sgl = unsafe { segments(num_segments, local_iov) }?;
            // SAFETY: by the contract of all thunks.
            let remote = unsafe { read(remote, 5) }?;
            ep.$post(&sgl, cookie.to_u64(), &remote, flags)
        }
    };
}

post_rdma!(ep_post_rdma_read, post_rdma_read);
post_rdma!(ep_post_rdma_write, post_rdma_write);

pub(crate) unsafe fn ep_post_rdma_read_to_rmr<R: Rnic>(
    ep: DatEpHandle,
    local: *const DatRmrTriplet,
    cookie: DatDtoCookie,
    remote: *const DatRmrTriplet,
    flags: DatCompletionFlags,
) -> DatResult {
    let ep = pin_ep::<R>(ep)?;
    // SAFETY: by the contract of all thunks.
    let (local, remote) = unsafe { (read(local, 2)?, read(remote, 4)?) };
    ep.post_rdma_read_to_rmr(&local, cookie.to_u64(), &remote, flags)
}

pub(crate) unsafe fn ep_get_status<R: Rnic>(
    ep: DatEpHandle,
    state: *mut DatEpState,
    recv_idle: *mut DatBoolean,
    request_idle: *mut DatBoolean,
) -> DatResult {
    let status = pin_ep::<R>(ep)?.status();
    Out::optional(state).write(status.state);
    Out::optional(recv_idle).write(DatBoolean::from(status.recv_idle));
    Out::optional(request_idle).write(DatBoolean::from(status.request_idle));
    Ok(())
}

pub(crate) unsafe fn ep_reset<R: Rnic>(ep: DatEpHandle) -> DatResult {
    pin_ep::<R>(ep)?.reset()
}

pub(crate) unsafe fn ep_recv_query<R: Rnic>(
    ep: DatEpHandle,
    nbufs_allocated: *mut DatCount,
    bufs_alloc_span: *mut DatCount,
) -> DatResult {
    let (allocated, span) = pin_ep::<R>(ep)?.recv_query()?;
    Out::optional(nbufs_allocated).write(allocated);
    Out::optional(bufs_alloc_span).write(span);
    Ok(())
}

pub(crate) unsafe fn ep_set_watermark<R: Rnic>(
    ep: DatEpHandle,
    soft_high_watermark: DatCount,
    hard_high_watermark: DatCount,
) -> DatResult {
    pin_ep::<R>(ep)?.set_watermark(soft_high_watermark, hard_high_watermark)
}

pub(crate) unsafe fn ep_free<R: Rnic>(ep: DatEpHandle) -> DatResult {
    Ep::free(&pin_ep::<R>(ep)?)
}
