//! Queue pairs of identifiers, with the objects that the library creates for them, and the calls
//! that combine several steps; each does as its manual page says.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use host::locks::lock;
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::channel;
use crate::completions;
use crate::fault::{self, Fault};
use crate::pairs::{self, HAS_PD, Kind, QpAttrEx, kind_of};
use crate::srq;

use super::events::{
    channel_of, rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
use super::exported::{
    DATAGRAM_KEY, rdma_bind_addr, rdma_create_id, rdma_destroy_id, rdma_resolve_addr,
    rdma_resolve_route,
};
use super::id::{Endpoint, IdObject};
use super::info::{AddrInfo, PASSIVE};
use super::route;
use super::synchronous::{forget_event, result_of};

/// The limit of `rdma_create_ep(3)` for each step, in milliseconds.
const STEP_MS: c_int = 2000;

/// Creates a completion queue and its channel for an identifier.
///
/// # Safety
/// `id` is a live identifier of this library with a device.
unsafe fn create_cq(
    id: *mut rdma_cm_id,
    depth: u32,
) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Fault> {
    // SAFETY: the caller guarantees the identifier.
    let context = unsafe { (*id).verbs };
    let channel = channel::create(context)?;
    let depth = c_int::try_from(depth.max(1)).unwrap_or(c_int::MAX);
    match completions::create(context, depth, id.cast(), channel, 0) {
        Ok(cq) => Ok((channel, cq)),
        Err(fault) => {
            // SAFETY: the channel was just created, and nothing uses it.
            unsafe { channel::ibv_destroy_comp_channel(channel) };
            Err(fault)
        }
    }
}

/// Creates the completion queues that the program has not passed.
///
/// # Safety
/// As for [`create_cq`].
unsafe fn create_cqs(
    id: *mut rdma_cm_id,
    cap: &ibv_qp_cap,
    send: &mut *mut ibv_cq,
    recv: &mut *mut ibv_cq,
) -> Result<(), Fault> {
    // SAFETY: as for the caller.
    unsafe {
        if send.is_null() {
            if (*id).send_cq.is_null() {
                ((*id).send_cq_channel, (*id).send_cq) = create_cq(id, cap.max_send_wr)?;
            }
            *send = (*id).send_cq;
        }
        if recv.is_null() {
            if (*id).recv_cq.is_null() {
                ((*id).recv_cq_channel, (*id).recv_cq) = create_cq(id, cap.max_recv_wr)?;
            }
            *recv = (*id).recv_cq;
        }
    }
    Ok(())
}

/// Destroys the completion queues that the library has created.
///
/// # Safety
/// As for [`create_cq`]; no queue pair uses them.
unsafe fn destroy_cqs(id: *mut rdma_cm_id) {
    let take = |cq: &mut *mut ibv_cq| std::mem::replace(cq, std::ptr::null_mut());
    let take_channel =
        |channel: &mut *mut ibv_comp_channel| std::mem::replace(channel, std::ptr::null_mut());
    // SAFETY: as for the caller.
    unsafe {
        for cq in [take(&mut (*id).send_cq), take(&mut (*id).recv_cq)] {
            if !cq.is_null() {
                completions::ibv_destroy_cq(cq);
            }
        }
        let channels = [
            take_channel(&mut (*id).send_cq_channel),
            take_channel(&mut (*id).recv_cq_channel),
        ];
        for channel in channels {
            if !channel.is_null() {
                channel::ibv_destroy_comp_channel(channel);
            }
        }
    }
}

/// Creates a queue pair for an identifier by `create`.
///
/// # Safety
/// As for [`create_cq`], and `pd` is null or a live domain.
unsafe fn create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    create: impl FnOnce(*mut ibv_pd) -> Result<*mut ibv_qp, Fault>,
) -> Result<(), Fault> {
    // SAFETY: as for the caller.
    unsafe {
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if pd.is_null() || !(*id).qp.is_null() || (*id).verbs != (*pd).context {
            return Err(Errno::INVAL);
        }
        let is_datagram = IdObject::own(id).is_datagram.load(Ordering::Relaxed);
        let created = create(pd).and_then(|qp| {
            let state = match kind_of(qp) {
                Kind::Connected(own) if !is_datagram => own.prepare(),
                Kind::Datagram(own) if is_datagram => own.prepare(DATAGRAM_KEY),
                _ => {
                    pairs::destroy(qp);
                    return Err(Errno::INVAL);
                }
            };
            (*qp).state = state;
            Ok(qp)
        });
        (*id).qp = created.inspect_err(|_| destroy_cqs(id))?;
        (*id).pd = pd;
    }
    Ok(())
}

/// `rdma_create_qp(3)`. The library creates the completion queues that the program does not pass.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes live structures.
    fault::minus_one(unsafe {
        create_qp(id, pd, |pd| {
            let init = &mut *init;
            create_cqs(id, &init.cap, &mut init.send_cq, &mut init.recv_cq)?;
            if init.srq.is_null() {
                init.srq = (*id).srq;
            }
            pairs::create(pd, init)
        })
    })
}

/// `rdma_create_qp_ex(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp_ex(id: *mut rdma_cm_id, attr: *mut QpAttrEx) -> c_int {
    // SAFETY: the program passes live structures.
    fault::minus_one(unsafe {
        let attr = &mut *attr;
        let pd = match attr.mask & HAS_PD {
            0 => std::ptr::null_mut(),
            _ => attr.pd,
        };
        create_qp(id, pd, |pd| {
            create_cqs(id, &attr.cap, &mut attr.send_cq, &mut attr.recv_cq)?;
            if attr.srq.is_null() {
                attr.srq = (*id).srq;
            }
            attr.mask |= HAS_PD;
            attr.pd = pd;
            let qp = pairs::create_qp_ex((*id).verbs, attr);
            match qp.is_null() {
                true => Err(fault::errno()),
                false => Ok(qp),
            }
        })
    })
}

/// `rdma_destroy_qp(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    // SAFETY: the program passes a live identifier, whose queue pair is alive if it has one.
    unsafe {
        let qp = std::mem::replace(&mut (*id).qp, std::ptr::null_mut());
        if !qp.is_null() {
            pairs::destroy(qp);
        }
        destroy_cqs(id);
    }
}

/// `rdma_create_srq(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the program passes live structures.
    let create = || unsafe {
        let pd = if pd.is_null() { (*id).pd } else { pd };
        if pd.is_null() || !(*id).srq.is_null() {
            return Err(Errno::INVAL);
        }
        (*id).srq = srq::create(pd, &*init)?;
        (*id).pd = pd;
        Ok(())
    };
    fault::minus_one(create())
}

/// `rdma_destroy_srq(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the program passes a live identifier.
    unsafe {
        let srq = std::mem::replace(&mut (*id).srq, std::ptr::null_mut());
        if !srq.is_null() {
            srq::exported::ibv_destroy_srq(srq);
        }
    }
}

/// `rdma_create_ep(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_ep(
    out: *mut *mut rdma_cm_id,
    info: *const AddrInfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the program passes its structures, and pointers to them or null.
    unsafe {
        let info = &*info;
        let mut id = std::ptr::null_mut();
        let none = std::ptr::null_mut();
        let ps = info.port_space.cast_unsigned();
        if rdma_create_id(none, &raw mut id, std::ptr::null_mut(), ps) != 0 {
            return -1;
        }
        let code = match info.flags & PASSIVE {
            0 => begin_active(id, info, pd, init),
            _ => begin_passive(id, info, pd, init),
        };
        if code != 0 {
            let fault = fault::errno();
            rdma_destroy_ep(id);
            return fault::minus_one(Err(fault));
        }
        out.write(id);
    }
    0
}

/// # Safety
/// As for [`rdma_create_ep`], with a live identifier.
unsafe fn begin_passive(
    id: *mut rdma_cm_id,
    info: &AddrInfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe {
        let code = rdma_bind_addr(id, info.src_addr);
        if code != 0 {
            return code;
        }
        if !pd.is_null() {
            (*id).pd = pd;
        }
        if let Some(init) = init.as_mut() {
            init.qp_type = info.qp_type.cast_unsigned();
            *lock(&IdObject::own(id).endpoint) = Some(Endpoint { pd, init: *init });
        }
    }
    0
}

/// # Safety
/// As for [`rdma_create_ep`], with a live identifier.
unsafe fn begin_active(
    id: *mut rdma_cm_id,
    info: &AddrInfo,
    pd: *mut ibv_pd,
    init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: as for the caller.
    unsafe {
        let mut code = rdma_resolve_addr(id, info.src_addr, info.dst_addr, STEP_MS);
        if code == 0 {
            code = rdma_resolve_route(id, STEP_MS);
        }
        match init.as_mut() {
            Some(init) if code == 0 => {
                init.qp_type = info.qp_type.cast_unsigned();
                rdma_create_qp(id, pd, init)
            }
            _ => code,
        }
    }
}

/// `rdma_destroy_ep(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the program passes a live identifier and does not use it after this call.
    unsafe {
        rdma_destroy_qp(id);
        rdma_destroy_srq(id);
        rdma_destroy_id(id);
    }
}

/// `rdma_get_request(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    out: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the program passes a live identifier.
    let own = unsafe { IdObject::own(listener) };
    if !own.is_synchronous.load(Ordering::Relaxed) {
        return fault::minus_one(Err(Errno::INVAL));
    }
    let mut event = std::ptr::null_mut();
    // SAFETY: as above; the channel of a live identifier is alive.
    unsafe {
        forget_event(listener);
        if rdma_get_cm_event((*listener).channel, &raw mut event) != 0 {
            return -1;
        }
        let taken = take_request(listener, &*event);
        match taken {
            Ok(id) => {
                (*id).event = event;
                out.write(id);
            }
            Err(_) => (*listener).event = event,
        }
        fault::minus_one(taken.map(drop))
    }
}

/// Returns the identifier of a request, with the queue pair that the listener wants. It has a
/// channel of its own, because the program waits for its events alone.
///
/// # Safety
/// `listener` is alive, and `event` was received from its channel.
unsafe fn take_request(
    listener: *mut rdma_cm_id,
    event: &rdma_cm_event,
) -> Result<*mut rdma_cm_id, Fault> {
    result_of(event)?;
    if event.event != RDMA_CM_EVENT_CONNECT_REQUEST {
        return Err(Errno::INVAL);
    }
    let id = event.id;
    // SAFETY: the identifier of a request is alive until the program destroys it.
    unsafe {
        make_synchronous(id)?;
        let wanted = lock(&IdObject::own(listener).endpoint)
            .as_ref()
            .map(|endpoint| (endpoint.pd, endpoint.init));
        if let Some((pd, mut init)) = wanted
            && rdma_create_qp(id, pd, &raw mut init) != 0
        {
            return Err(fault::errno());
        }
    }
    Ok(id)
}

/// Gives an identifier a channel of its own.
///
/// # Safety
/// `id` is a live identifier of this library.
unsafe fn make_synchronous(id: *mut rdma_cm_id) -> Result<(), Fault> {
    let channel = rdma_create_event_channel();
    if channel.is_null() {
        return Err(fault::errno());
    }
    // SAFETY: the caller guarantees the identifier, and the channel was just created.
    unsafe {
        let own: &Arc<_> = IdObject::own(id);
        own.migrate(channel_of(channel));
        own.is_synchronous.store(true, Ordering::Relaxed);
        (*id).channel = channel;
    }
    Ok(())
}

/// `rdma_migrate_id(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    channel: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the program passes a live identifier, and null or a live channel.
    let migrate = || unsafe {
        let own = IdObject::own(id);
        let was_synchronous = own.is_synchronous.load(Ordering::Relaxed);
        if channel.is_null() {
            return match was_synchronous {
                true => Err(Errno::INVAL),
                false => make_synchronous(id),
            };
        }
        let former = (*id).channel;
        if was_synchronous {
            forget_event(id);
        }
        own.migrate(channel_of(channel));
        own.is_synchronous.store(false, Ordering::Relaxed);
        (*id).channel = channel;
        if was_synchronous {
            rdma_destroy_event_channel(former);
        }
        Ok(())
    };
    fault::minus_one(migrate())
}

/// `rdma_get_devices(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let list = || -> Result<*mut *mut ibv_context, Fault> {
        let mut found = route::contexts(None)?;
        if !count.is_null() {
            // SAFETY: the program passes null or a pointer to its variable.
            unsafe { count.write(found.len() as c_int) };
        }
        found.push(std::ptr::null_mut());
        // SAFETY: the memory has room for the list; `rdma_free_devices` frees it.
        unsafe {
            let list = libc::calloc(found.len(), size_of::<*mut ibv_context>());
            let list = list.cast::<*mut ibv_context>();
            if list.is_null() {
                return Err(Errno::NOMEM);
            }
            list.copy_from_nonoverlapping(found.as_ptr(), found.len());
            Ok(list)
        }
    };
    fault::pointer(list())
}

/// `rdma_free_devices(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: `rdma_get_devices` allocated the list.
    unsafe { libc::free(list.cast()) };
}
