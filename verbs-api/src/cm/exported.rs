//! The functions of identifiers; each does as its manual page says.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::fault::{self, Fault};
use crate::pairs::connected;
use crate::qp::Qp;

use super::events::{channel_of, rdma_create_event_channel, rdma_destroy_event_channel};
use super::id::{Id, IdObject};
use super::route;
use super::synchronous;

/// Returns the private data of a connection's parameters.
///
/// # Safety
/// `param` is null or a structure whose private data is as long as it says.
unsafe fn private_data<'a>(param: *const rdma_conn_param) -> &'a [u8] {
    // SAFETY: the caller guarantees null or a structure.
    let param = unsafe { param.as_ref() };
    match param {
        Some(param) if !param.private_data.is_null() => {
            let len = param.private_data_len.into();
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts(param.private_data.cast(), len) }
        }
        _ => &[],
    }
}

/// Returns the queue pair of an identifier.
///
/// # Safety
/// `id` is a live identifier of this library.
unsafe fn queue_pair<'a>(id: *mut rdma_cm_id) -> Result<&'a Arc<Qp>, Fault> {
    // SAFETY: the caller guarantees the identifier, and its queue pair is alive if it has one.
    unsafe {
        let qp = (*id).qp;
        if qp.is_null() {
            Err(Errno::INVAL)
        } else {
            connected(qp)
        }
    }
}

/// `rdma_create_id(3)`. The calls of an identifier without channel wait for their events.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    out: *mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: rdma_port_space,
) -> c_int {
    if ps != RDMA_PS_TCP {
        return fault::minus_one(Err(Errno::OPNOTSUPP));
    }
    let is_synchronous = channel.is_null();
    let channel = match is_synchronous {
        true => rdma_create_event_channel(),
        false => channel,
    };
    if channel.is_null() {
        return -1;
    }
    // SAFETY: the program passes a live channel, or the function has created one, and a pointer to
    // its variable.
    unsafe {
        let own = Id::idle(channel_of(channel).clone());
        own.is_synchronous.store(is_synchronous, Ordering::Relaxed);
        let id = IdObject::of(channel, own);
        (*id).context = context;
        (*id).ps = ps;
        out.write(id);
    }
    0
}

/// `rdma_destroy_id(3)`. Waits until the program has acknowledged the events that it received.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program passes a live identifier and does not use it after this call.
    unsafe {
        let own = IdObject::own(id).clone();
        synchronous::forget_event(id);
        own.destroy();
        if own.is_synchronous.load(Ordering::Relaxed) {
            rdma_destroy_event_channel((*id).channel);
        }
        IdObject::destroy(id);
    }
    0
}

/// `rdma_bind_addr(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_bind_addr(
    id: *mut rdma_cm_id,
    address: *mut sockaddr,
) -> c_int {
    let bind = || {
        // SAFETY: the program passes a live identifier and an address.
        unsafe {
            let local = route::read(address)?.ok_or(Errno::INVAL)?;
            if let Some(context) = IdObject::own(id).bind(local)? {
                (*id).verbs = context;
                (*id).pd = route::domain_of(context);
                (*id).port_num = 1;
            }
            route::store(&mut (*id).route.addr, Some(local), None);
        }
        Ok(())
    };
    fault::minus_one(bind())
}

/// The backlog of a listener that asks for none, and the longest one.
const BACKLOG_DEFAULT: usize = 128;
const BACKLOG_MAX: usize = 1024;

/// `rdma_listen(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let backlog = match usize::try_from(backlog) {
        Ok(backlog @ 1..) => backlog.min(BACKLOG_MAX),
        _ => BACKLOG_DEFAULT,
    };
    let listen = || {
        // SAFETY: the program passes a live identifier, which has the address that it was bound to.
        unsafe {
            let port = IdObject::own(id).listen(backlog)?;
            let bound = route::read((&raw const (*id).route.addr).cast())?;
            let local = bound.map(|mut local| {
                local.set_port(port);
                local
            });
            route::store(&mut (*id).route.addr, local, None);
        }
        Ok(())
    };
    fault::minus_one(listen())
}

/// `rdma_resolve_addr(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    source: *mut sockaddr,
    remote: *mut sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    let resolve = || {
        // SAFETY: the program passes a live identifier and addresses, of which the first may be
        // null.
        unsafe {
            let own = IdObject::own(id);
            let remote = route::read(remote)?.ok_or(Errno::INVAL)?;
            let (context, local) = own.resolve(route::read(source)?, remote)?;
            (*id).verbs = context;
            (*id).pd = route::domain_of(context);
            (*id).port_num = 1;
            route::store(&mut (*id).route.addr, Some(local), Some(remote));
            own.report_own(RDMA_CM_EVENT_ADDR_RESOLVED);
        }
        Ok(())
    };
    // SAFETY: the identifier is alive.
    unsafe { synchronous::finish(id, resolve()) }
}

/// `rdma_resolve_route(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_resolve_route(
    id: *mut rdma_cm_id,
    _timeout_ms: c_int,
) -> c_int {
    // SAFETY: the program passes a live identifier.
    let own = unsafe { IdObject::own(id) };
    if !own.is_resolved() {
        return fault::minus_one(Err(Errno::INVAL));
    }
    own.report_own(RDMA_CM_EVENT_ROUTE_RESOLVED);
    // SAFETY: the identifier is alive.
    unsafe { synchronous::finish(id, Ok(())) }
}

/// `rdma_connect(3)`, for an identifier with a queue pair.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_connect(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the program passes a live identifier and parameters.
    let connect = || unsafe {
        let qp = queue_pair(id)?;
        IdObject::own(id).connect(qp, private_data(param))?;
        (*(*id).qp).state = IBV_QPS_RTS;
        Ok(())
    };
    // SAFETY: the identifier is alive.
    unsafe { synchronous::finish(id, connect()) }
}

/// `rdma_accept(3)`, for an identifier with a queue pair.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_accept(
    id: *mut rdma_cm_id,
    param: *mut rdma_conn_param,
) -> c_int {
    // SAFETY: the program passes a live identifier and parameters.
    let accept = || unsafe {
        let qp = queue_pair(id)?;
        IdObject::own(id).accept(qp, private_data(param))?;
        (*(*id).qp).state = IBV_QPS_RTS;
        Ok(())
    };
    // SAFETY: the identifier is alive.
    unsafe { synchronous::finish(id, accept()) }
}

/// `rdma_reject(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    data: *const c_void,
    len: u8,
) -> c_int {
    let data = match data.is_null() {
        true => &[],
        // SAFETY: the program passes private data of this length.
        false => unsafe { std::slice::from_raw_parts(data.cast(), len.into()) },
    };
    // SAFETY: the program passes a live identifier.
    fault::minus_one(unsafe { IdObject::own(id) }.reject(data))
}

/// `rdma_disconnect(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program passes a live identifier.
    unsafe { synchronous::finish(id, IdObject::own(id).disconnect()) }
}

/// Returns a port in the byte order of the network; 0 if there is no address.
///
/// # Safety
/// `address` points to the storage of an address.
unsafe fn port_at(address: *const sockaddr) -> u16 {
    // SAFETY: the caller guarantees the storage.
    let address = unsafe { route::read(address) };
    address
        .ok()
        .flatten()
        .map_or(0, |address| address.port().to_be())
}

/// `rdma_get_src_port(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes a live identifier, whose addresses begin with the local one.
    unsafe { port_at((&raw const (*id).route.addr).cast()) }
}

/// `rdma_get_dst_port(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the program passes a live identifier; the remote address follows the local one.
    unsafe {
        let addresses = (&raw const (*id).route.addr).cast::<libc::sockaddr_storage>();
        port_at(addresses.add(1).cast())
    }
}

/// `rdma_establish(3)`: for programs that connect queue pairs themselves, which is not supported.
#[unsafe(no_mangle)]
extern "C" fn rdma_establish() -> c_int {
    fault::minus_one(Err(Errno::OPNOTSUPP))
}

/// `rdma_set_option(3)`: the options of addresses, which programs set for servers, are the
/// behaviour of this library; types of service have no meaning.
#[unsafe(no_mangle)]
extern "C" fn rdma_set_option() -> c_int {
    0
}
