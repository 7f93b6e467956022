//! The functions of identifiers; each does as its manual page says.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter;
use crate::fault::{self, Fault};
use crate::pairs::connected;
use crate::qp::Qp;
use crate::states;

use super::events::{channel_of, rdma_create_event_channel, rdma_destroy_event_channel};
use super::id::{Id, IdObject};
use super::route;
use super::synchronous;

/// The Q_Key of the queue pairs of datagram identifiers (`RDMA_UDP_QKEY`).
pub(super) const DATAGRAM_KEY: u32 = 0x0123_4567;

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

/// Returns the queue pair of an identifier, or the one of the program that the parameters name.
///
/// # Safety
/// `id` is a live identifier of this library, and `param` is null or a structure.
unsafe fn queue_pair<'a>(
    id: *mut rdma_cm_id,
    param: *const rdma_conn_param,
) -> Result<&'a Arc<Qp>, Fault> {
    // SAFETY: the caller guarantees the identifier, and its queue pair is alive if it has one. A
    // queue pair in the table of its device is alive.
    unsafe {
        let qp = (*id).qp;
        if !qp.is_null() {
            return connected(qp);
        }
        let number = param.as_ref().map_or(0, |param| param.qp_num);
        if (*id).verbs.is_null() || number == 0 {
            return Err(Errno::INVAL);
        }
        let found = adapter::of((*id).verbs).object_of(number);
        connected(found.ok_or(Errno::INVAL)?)
    }
}

/// Records the state of the queue pair of an identifier, if it has one.
///
/// # Safety
/// As for [`queue_pair`].
unsafe fn note_state(id: *mut rdma_cm_id) {
    // SAFETY: as for the caller.
    unsafe {
        if let Some(qp) = (*id).qp.as_mut() {
            qp.state = IBV_QPS_RTS;
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
    if !matches!(ps, RDMA_PS_TCP | RDMA_PS_UDP) {
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
        own.is_datagram.store(ps == RDMA_PS_UDP, Ordering::Relaxed);
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
            let context = IdObject::own(id).bind(local)?;
            // A loopback address names no device, as in the kernel.
            if let Some(context) = context.filter(|_| !local.ip().is_loopback()) {
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

/// `rdma_connect(3)`. If the identifier has no queue pair, the parameters name one of the program.
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
        if IdObject::own(id).is_datagram.load(Ordering::Relaxed) {
            return IdObject::own(id).ask(private_data(param));
        }
        let qp = queue_pair(id, param)?;
        let own = IdObject::own(id);
        own.is_external.store((*id).qp.is_null(), Ordering::Relaxed);
        own.connect(qp, private_data(param))?;
        note_state(id);
        Ok(())
    };
    // SAFETY: the identifier is alive.
    unsafe { synchronous::finish(id, connect()) }
}

/// `rdma_accept(3)`. If the identifier has no queue pair, the parameters name one of the program.
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
        if IdObject::own(id).is_datagram.load(Ordering::Relaxed) {
            let number = match (*id).qp.as_ref() {
                Some(qp) => qp.qp_num,
                None => param.as_ref().map_or(0, |param| param.qp_num),
            };
            return IdObject::own(id).name(number, DATAGRAM_KEY, private_data(param));
        }
        let qp = queue_pair(id, param)?;
        IdObject::own(id).accept(qp, private_data(param))?;
        note_state(id);
        Ok(())
    };
    // SAFETY: the identifier is alive. No event follows the answer to a datagram client.
    unsafe {
        if IdObject::own(id).is_datagram.load(Ordering::Relaxed) {
            return fault::minus_one(accept());
        }
        synchronous::finish(id, accept())
    }
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

/// `rdma_establish(3)`: the last step of a connection of a queue pair of the program, which is
/// established already.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    // SAFETY: the program passes a live identifier.
    let own = unsafe { IdObject::own(id) };
    let is_due = own.is_joined() && own.is_external.load(Ordering::Relaxed);
    fault::minus_one(is_due.then_some(()).ok_or(Errno::INVAL))
}

/// The level of options of identifiers, the timeout among them, and the last one.
const OPTION_ID: c_int = 0;
const OPTION_ACK_TIMEOUT: c_int = 3;

/// `rdma_set_option(3)`: the options of addresses, which programs set for servers, are the
/// behaviour of this library; types of service have no meaning; timeouts are stored.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    if level == OPTION_ID && !(0..=OPTION_ACK_TIMEOUT).contains(&option) {
        return fault::minus_one(Err(Errno::NOSYS));
    }
    if level == OPTION_ID && option == OPTION_ACK_TIMEOUT {
        if len != size_of::<u8>() {
            return fault::minus_one(Err(Errno::INVAL));
        }
        // SAFETY: the program passes a live identifier, and one byte.
        unsafe {
            let timeout = value.cast::<u8>().read();
            IdObject::own(id).timeout.store(timeout, Ordering::Relaxed);
        }
    }
    0
}

/// `rdma_init_qp_attr(3)`, for queue pairs of the program that `rdma_cm` connects.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    let init = || {
        // SAFETY: the program passes a live identifier and pointers to its variables; the remote
        // address follows the local one.
        unsafe {
            let addresses = (&raw const (*id).route.addr).cast::<libc::sockaddr_storage>();
            let remote = route::read(addresses.add(1).cast())?.ok_or(Errno::INVAL)?;
            let timeout = IdObject::own(id).timeout.load(Ordering::Relaxed);
            let (found, bits) = states::attributes_of((*attr).qp_state, remote.ip(), timeout)?;
            attr.write(found);
            mask.write(bits.cast_signed());
        }
        Ok(())
    };
    fault::minus_one(init())
}
