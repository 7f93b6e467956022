//! Wrong calls: calls that the Rust API makes only correctly, for the cases that make them
//! incorrectly.

use std::net::SocketAddr;
use std::ptr;

use anyhow::Result;
use dat_api::abi::*;
use dat_api::{CallError, Ep, Error, Library, RemoteRegion};

use crate::kit::Kit;

fn library() -> Result<&'static Library> {
    Ok(Library::get()?)
}

fn outcome(call: &'static str, code: DatReturn) -> dat_api::Result<()> {
    if code.is_success() {
        return Ok(());
    }
    Err(CallError { call, code }.into())
}

fn check(call: &'static str, code: DatReturn) -> Result<()> {
    Ok(outcome(call, code)?)
}

/// Closes an adapter. After a success its handle, and after an abrupt one those of all its objects,
/// must not be used.
pub(crate) fn ia_close(ia: DatIaHandle, flags: DatCloseFlags) -> Result<()> {
    // SAFETY: the registry checks an adapter's handle whatever it is.
    check("dat_ia_close", unsafe {
        (library()?.dat_ia_close)(ia, flags)
    })
}

/// Declares calls that free an object, which must be refused. The handle is in use or gone, and is
/// not used if it is freed.
macro_rules! frees {
    ($($free:ident($handle:ty) = $call:ident;)+) => {$(
        pub(crate) fn $free(handle: $handle) -> Result<()> {
            // SAFETY: the provider checks the handle, which was one of a live object.
            check(stringify!($call), unsafe { (library()?.$call)(handle) })
        }
    )+};
}

frees! {
    evd_free(DatEvdHandle) = dat_evd_free;
    cno_free(DatCnoHandle) = dat_cno_free;
    pz_free(DatPzHandle) = dat_pz_free;
    lmr_free(DatLmrHandle) = dat_lmr_free;
    ep_free(DatEpHandle) = dat_ep_free;
    srq_free(DatSrqHandle) = dat_srq_free;
}

/// Kind of a live handle.
pub(crate) fn handle_type(handle: DatHandle) -> Result<DatHandleType> {
    let mut ty = DatHandleType::MAX;
    // SAFETY: callers give live handles; the out-pointer is writable.
    let code = unsafe { (library()?.dat_get_handle_type)(handle, &mut ty) };
    check("dat_get_handle_type", code)?;
    Ok(ty)
}

/// A live object's context, as a number.
pub(crate) fn context(handle: DatHandle) -> Result<u64> {
    let mut context = DatContext::from_u64(u64::MAX);
    // SAFETY: callers give live handles; the out-pointer is writable.
    let code = unsafe { (library()?.dat_get_consumer_context)(handle, &mut context) };
    check("dat_get_consumer_context", code)?;
    Ok(context.to_u64())
}

pub(crate) fn set_context(handle: DatHandle, context: u64) -> Result<()> {
    // SAFETY: callers give live handles.
    let code =
        unsafe { (library()?.dat_set_consumer_context)(handle, DatContext::from_u64(context)) };
    check("dat_set_consumer_context", code)
}

/// Creates an EVD with arguments that must be refused.
pub(crate) fn evd_create(ia: DatIaHandle, min_qlen: DatCount, flags: DatEvdFlags) -> Result<()> {
    let mut evd = DAT_HANDLE_NULL;
    // SAFETY: callers give a live adapter; the out-pointer is writable.
    let code =
        unsafe { (library()?.dat_evd_create)(ia, min_qlen, DAT_HANDLE_NULL, flags, &mut evd) };
    check("dat_evd_create", code)
}

/// Waits on a live EVD without a buffer for the event.
pub(crate) fn evd_wait_nowhere(evd: DatEvdHandle) -> Result<()> {
    let mut nmore = 0;
    // SAFETY: callers give a live handle; a null event must be refused.
    let code = unsafe { (library()?.dat_evd_wait)(evd, 0, 1, ptr::null_mut(), &mut nmore) };
    check("dat_evd_wait", code)
}

/// The attributes of a region.
pub(crate) fn lmr_query(lmr: DatLmrHandle) -> Result<DatLmrParam> {
    let mut param = DatLmrParam::zeroed();
    // SAFETY: the provider checks whether the handle is live; the out-pointer is writable.
    let code = unsafe { (library()?.dat_lmr_query)(lmr, DAT_LMR_FIELD_ALL, &mut param) };
    check("dat_lmr_query", code)?;
    Ok(param)
}

/// Synchronises a part of registered memory, both ways.
pub(crate) fn lmr_sync(ia: DatIaHandle, segment: &DatLmrTriplet) -> Result<()> {
    let library = library()?;
    for (call, sync) in [
        ("dat_lmr_sync_rdma_read", library.dat_lmr_sync_rdma_read),
        ("dat_lmr_sync_rdma_write", library.dat_lmr_sync_rdma_write),
    ] {
        // SAFETY: callers give a live adapter and a segment of registered memory; the list of one
        // segment is readable.
        check(call, unsafe { sync(ia, segment, 1) })?;
    }
    Ok(())
}

/// Registers memory that must be refused; the address is null if the length is 0.
pub(crate) fn lmr_create(kit: &Kit, ty: DatMemType, len: DatVlen) -> Result<()> {
    let mut memory = [0_u8; 64];
    let mut lmr = DAT_HANDLE_NULL;
    let (mut context, mut remote, mut granted, mut at) = (0, 0, 0, 0);
    let region = DatRegionDescription {
        for_va: match len {
            0 => ptr::null_mut(),
            _ => memory.as_mut_ptr().cast(),
        },
    };
    let rights = DAT_MEM_PRIV_ALL_FLAG;
    // SAFETY: adapter and zone are live, the out-pointers writable, and no work is posted.
    let code = unsafe {
        (library()?.dat_lmr_create)(
            kit.ia.as_raw(),
            ty,
            region,
            len,
            kit.pz.as_raw(),
            rights,
            DAT_VA_TYPE_VA,
            &mut lmr,
            &mut context,
            &mut remote,
            &mut granted,
            &mut at,
        )
    };
    check("dat_lmr_create", code)
}

/// Creates an endpoint with this zone and EVD of connection events, which the Rust API does not
/// permit.
pub(crate) fn ep_create(kit: &Kit, pz: DatPzHandle, connect: DatEvdHandle) -> Result<DatEpHandle> {
    let mut ep = DAT_HANDLE_NULL;
    // SAFETY: the adapter is live and the out-pointer writable; the provider checks the other
    // handles.
    let code = unsafe {
        (library()?.dat_ep_create)(
            kit.ia.as_raw(),
            pz,
            kit.recv.as_raw(),
            kit.request.as_raw(),
            connect,
            ptr::null(),
            &mut ep,
        )
    };
    check("dat_ep_create", code)?;
    Ok(ep)
}

/// Connects an endpoint that has no zone.
pub(crate) fn connect_without_zone(kit: &Kit, address: SocketAddr) -> Result<()> {
    let ep = ep_create(kit, DAT_HANDLE_NULL, kit.connect.as_raw())?;
    let SocketAddr::V4(address) = address else {
        anyhow::bail!("the adapter has no IPv4 address");
    };
    let mut place = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: 0,
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    };
    // SAFETY: the endpoint is live and the address readable for the call.
    let code = unsafe {
        let place = (&raw mut place).cast();
        let (qos, flags) = (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG);
        (library()?.dat_ep_connect)(ep, place, 1, 1_000_000, 0, ptr::null(), qos, flags)
    };
    let connected = check("dat_ep_connect", code);
    ep_free(ep)?;
    connected
}

/// Posts a Send with a segment that the Rust API would not make.
pub(crate) fn post_send(ep: &Ep, mut segment: DatLmrTriplet, cookie: u64) -> dat_api::Result<()> {
    let cookie = DatContext::from_u64(cookie);
    let library = Library::get()?;
    let (post, flags) = (library.dat_ep_post_send, DAT_COMPLETION_DEFAULT_FLAG);
    // SAFETY: the endpoint is live and the list of one segment readable; the provider checks that
    // the endpoint may access the segment.
    let code = unsafe { post(ep.as_raw(), 1, &mut segment, cookie, flags) };
    outcome("dat_ep_post_send", code)
}

/// Posts an RDMA Read into memory through a window, which the Rust API does not support.
pub(crate) fn post_read_to_window(
    ep: &Ep,
    sink: RemoteRegion,
    source: RemoteRegion,
    cookie: u64,
) -> dat_api::Result<()> {
    let call = "dat_ep_post_rdma_read_to_rmr";
    let post = Library::get()?.dat_ep_post_rdma_read_to_rmr;
    let post = post.ok_or(Error::Missing { call })?;
    let (sink, source) = (sink.to_raw(), source.to_raw());
    let (cookie, flags) = (DatContext::from_u64(cookie), DAT_COMPLETION_DEFAULT_FLAG);
    // SAFETY: the endpoint is live and both triplets readable; the case keeps the window's memory.
    outcome(call, unsafe {
        post(ep.as_raw(), &sink, cookie, &source, flags)
    })
}
