//! The functions of completion queues; each does as its manual page says.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use rnic::{CqToken, Rnic as _};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter::{self, Adapter};
use crate::channel::{self, Notified};
use crate::cq::{Cq, Owners};
use crate::fault::{self, Fault, errno_of};
use crate::polling::{CqEx, CqObject, Created, STANDARD_MEMBERS};
use crate::users::{Use, Used as _};

/// The number of completion vectors. Completions are reported without interrupts, so vectors have
/// no meaning.
pub(crate) const VECTORS: libc::c_int = 1;

/// Returns a completion queue.
///
/// # Safety
/// `cq` is a live completion queue of this library.
pub(crate) unsafe fn cq_of<'a>(cq: *mut ibv_cq) -> &'a Arc<Cq> {
    // SAFETY: the caller guarantees a live queue.
    &unsafe { CqObject::own(cq.cast()) }.cq
}

/// Returns a depth that a program asks for, if the device has it.
fn depth_of(adapter: &Adapter, cqe: libc::c_int) -> Result<u32, Fault> {
    let max = adapter.rnic_attr().cqe_max;
    let depth = u32::try_from(cqe).ok();
    depth
        .filter(|depth| (1..=max).contains(depth))
        .ok_or(Errno::INVAL)
}

/// Creates a completion queue.
pub(crate) fn create(
    context: *mut ibv_context,
    cqe: libc::c_int,
    cq_context: *mut libc::c_void,
    channel: *mut ibv_comp_channel,
    vector: libc::c_int,
) -> Result<*mut ibv_cq, Fault> {
    // SAFETY: the program passes a live context.
    let depth = depth_of(unsafe { adapter::of(context) }, cqe)?;
    if !(0..VECTORS).contains(&vector) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the program passes a live context, and null or a live channel.
    let (adapter, own_channel) = unsafe { (adapter::of(context), channel::of(channel)) };
    let token = CqToken(adapter.new_token());
    let hw = adapter.rnic.create_cq(depth, token);
    let hw = hw.map_err(|error| errno_of(&error))?;
    let notified = Notified::new(own_channel);
    let owners: Arc<dyn Owners> = adapter.events.clone();
    let rnic = adapter.rnic.clone();
    let cq = Arc::new(Cq::new(hw, rnic, Arc::downgrade(&owners), notified.clone()));
    // SAFETY: zero is a value of the header's mutex and condition, which this library does not use.
    let (mutex, cond) = unsafe { std::mem::zeroed() };
    let c = ibv_cq {
        context,
        channel,
        cq_context,
        handle: 0,
        cqe,
        mutex,
        cond,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let (registry, adapter) = (adapter, Use::of(adapter));
    let object = CqObject::create(CqEx::of(c), Created { cq, token, adapter }).cast();
    notified.object.store(object, Ordering::Release);
    registry.add_cq(token, notified);
    Ok(object)
}

/// `ibv_create_cq(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: libc::c_int,
    cq_context: *mut libc::c_void,
    channel: *mut ibv_comp_channel,
    vector: libc::c_int,
) -> *mut ibv_cq {
    fault::pointer(create(context, cqe, cq_context, channel, vector))
}

/// `struct ibv_cq_init_attr_ex`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CqAttr {
    cqe: u32,
    cq_context: *mut libc::c_void,
    channel: *mut ibv_comp_channel,
    vector: u32,
    wc_flags: u64,
    mask: u32,
    flags: u32,
    _parent_domain: *mut ibv_pd,
}

/// The members of [`CqAttr`] that may be set: `flags` and the parent domain.
const CQ_ATTR_MASK: u32 = 3;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`, which needs no action.
const SINGLE_THREADED: u32 = 1;

/// `ibv_create_cq_ex(3)`, called by the header.
///
/// # Safety
/// As the manual page says.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *const CqAttr,
) -> *mut CqEx {
    // SAFETY: the program passes its structure.
    let attr = unsafe { &*attr };
    let flags = if attr.mask & 1 != 0 { attr.flags } else { 0 };
    if attr.mask & !CQ_ATTR_MASK != 0
        || attr.wc_flags & !STANDARD_MEMBERS != 0
        || flags & !SINGLE_THREADED != 0
    {
        return fault::pointer(Err(Errno::OPNOTSUPP));
    }
    let int = |value: u32| libc::c_int::try_from(value).map_err(|_| Errno::INVAL);
    let create = || {
        let (cqe, vector) = (int(attr.cqe)?, int(attr.vector)?);
        create(context, cqe, attr.cq_context, attr.channel, vector)
    };
    fault::pointer(create().map(|cq| cq.cast()))
}

/// `ibv_resize_cq(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: libc::c_int) -> libc::c_int {
    // SAFETY: the program passes a live queue.
    let own = unsafe { CqObject::own(cq.cast()) };
    let resize = || {
        let depth = depth_of(&own.adapter, cqe)?;
        if own.cq.unpolled() > depth as usize {
            return Err(Errno::INVAL);
        }
        let resized = own.adapter.rnic.resize_cq(&own.cq.hw, depth);
        resized.map_err(|error| errno_of(&error))?;
        // SAFETY: the queue is alive, and the program does not resize it on two threads.
        unsafe { (*cq).cqe = cqe };
        Ok(())
    };
    fault::code(resize())
}

/// `ibv_destroy_cq(3)`. `EBUSY` while queue pairs use the queue. Waits until the program has
/// acknowledged the events of the queue.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> libc::c_int {
    // SAFETY: the program passes a live queue.
    let own = unsafe { CqObject::own(cq.cast()) };
    if own.cq.users().exist() {
        return fault::code(Err(Errno::BUSY));
    }
    own.adapter.remove_cq(own.token, cq);
    own.cq.notified.retire();
    // SAFETY: the program does not use the queue after this call.
    unsafe { CqObject::destroy(cq.cast()) };
    0
}

/// `ibv_ack_cq_events(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, events: libc::c_uint) {
    // SAFETY: the program passes a live queue.
    unsafe { cq_of(cq) }.notified.acknowledge(events);
}
