//! Shared receive queues.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::locks::lock;
use provider_iwarp_soft::SoftSrq;
use rnic::{RecvWr, Rnic as _, Sge, SrqToken};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter::{self, Adapter};
use crate::domains::{Pd, pd_of};
use crate::fault::{self, Fault, errno_of};
use crate::object::Object;
use crate::users::{Use, Used, Users};
use crate::work;

/// A shared receive queue.
pub(crate) struct Srq {
    pub(crate) hw: SoftSrq,
    pd: Arc<Pd>,
    adapter: Arc<Adapter>,
    token: SrqToken,
    max_wr: AtomicU32,
    max_sge: u32,
    limit: AtomicU32,
    users: Users,
    /// The datagram queue pairs that use the queue.
    datagrams: Mutex<Vec<Weak<dyn Awaiting>>>,
    /// True if `datagrams` is not empty.
    has_datagrams: AtomicBool,
}

/// A datagram queue pair that may wait for a receive.
pub(crate) trait Awaiting: Send + Sync {
    /// Called when a receive was posted.
    fn on_receive(&self);
}

rnic::opaque_debug!(Srq { token });

impl Used for Srq {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// A shared receive queue and the domain that it uses.
struct CreatedSrq {
    srq: Arc<Srq>,
    _pd: Use<Pd>,
}

type SrqObject = Object<ibv_srq, CreatedSrq>;

/// Returns a shared receive queue.
///
/// # Safety
/// `srq` is a live queue of this library.
pub(crate) unsafe fn srq_of<'a>(srq: *mut ibv_srq) -> &'a Arc<Srq> {
    // SAFETY: the caller guarantees a live queue.
    &unsafe { SrqObject::own(srq) }.srq
}

impl Srq {
    pub(crate) fn post(&self, wr: &ibv_recv_wr) -> Result<(), Fault> {
        work::with_receive(wr, |wr: &RecvWr<'_>| {
            self.pd.rnic.post_srq_recv(&self.hw, wr)
        })?;
        if self.has_datagrams.load(Ordering::Acquire) {
            let waiting = lock(&self.datagrams).clone();
            waiting
                .iter()
                .filter_map(Weak::upgrade)
                .for_each(|qp| qp.on_receive());
        }
        Ok(())
    }

    /// Adds a datagram queue pair, and forgets those that are destroyed.
    pub(crate) fn add_datagrams(&self, qp: Weak<dyn Awaiting>) {
        let mut datagrams = lock(&self.datagrams);
        datagrams.retain(|qp| qp.strong_count() > 0);
        datagrams.push(qp);
        self.has_datagrams.store(true, Ordering::Release);
    }

    /// Takes the oldest receive for a datagram.
    pub(crate) fn take(&self) -> Option<(u64, Vec<Sge>)> {
        self.adapter.rnic.take_srq_recv(&self.hw)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.adapter.rnic.srq_available(&self.hw) == Some(0)
    }

    fn modify(&self, attr: &ibv_srq_attr, mask: ibv_srq_attr_mask) -> Result<(), Fault> {
        let rnic = &self.pd.rnic;
        if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
            return Err(Errno::INVAL);
        }
        if mask & IBV_SRQ_MAX_WR != 0 {
            let resized = rnic.resize_srq(&self.hw, attr.max_wr);
            resized.map_err(|error| errno_of(&error))?;
            self.max_wr.store(attr.max_wr, Ordering::Relaxed);
        }
        if mask & IBV_SRQ_LIMIT != 0 {
            if attr.srq_limit > self.max_wr.load(Ordering::Relaxed) {
                return Err(Errno::INVAL);
            }
            self.limit.store(attr.srq_limit, Ordering::Relaxed);
            let armed = rnic.arm_srq(&self.hw, attr.srq_limit);
            armed.map_err(|error| errno_of(&error))?;
        }
        Ok(())
    }
}

/// Creates a shared receive queue.
pub(crate) fn create(pd: *mut ibv_pd, init: &ibv_srq_init_attr) -> Result<*mut ibv_srq, Fault> {
    // SAFETY: the program passes a live domain, which points to its context.
    let (own, context) = unsafe { (pd_of(pd), (*pd).context) };
    // SAFETY: the context of a live domain is alive.
    let adapter = unsafe { adapter::of(context) };
    let attr = init.attr;
    if attr.max_wr == 0 {
        return Err(Errno::INVAL);
    }
    let token = SrqToken(adapter.new_token());
    let hw = own
        .rnic
        .create_srq(&own.hw, attr.max_wr, attr.max_sge, token)
        .map_err(|error| errno_of(&error))?;
    let srq = Arc::new(Srq {
        hw,
        pd: own.clone(),
        adapter: adapter.clone(),
        token,
        max_wr: AtomicU32::new(attr.max_wr),
        max_sge: attr.max_sge,
        limit: AtomicU32::new(0),
        users: Users::default(),
        datagrams: Mutex::default(),
        has_datagrams: AtomicBool::new(false),
    });
    // SAFETY: zero is a value of the header's mutex and condition, which this library does not use.
    let (mutex, cond) = unsafe { std::mem::zeroed() };
    let c = ibv_srq {
        context,
        srq_context: init.srq_context,
        pd,
        handle: 0,
        mutex,
        cond,
        events_completed: 0,
    };
    let _pd = Use::of(own);
    let object = SrqObject::create(c, CreatedSrq { srq, _pd });
    adapter.add_srq(token, object);
    Ok(object)
}

/// The start of `struct ibv_srq_init_attr_ex`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct SrqAttr {
    srq_context: *mut libc::c_void,
    attr: ibv_srq_attr,
    mask: u32,
    kind: u32,
    pd: *mut ibv_pd,
}

/// The members of [`SrqAttr`] that may be set: the type, which is a basic one, and the domain.
const HAS_TYPE: u32 = 1;
const HAS_PD: u32 = 2;

/// `ibv_create_srq_ex(3)`, called by the header.
///
/// # Safety
/// As the manual page says.
pub(crate) unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut SrqAttr,
) -> *mut ibv_srq {
    // SAFETY: the program passes its structure.
    let attr = unsafe { &mut *attr };
    let kind = if attr.mask & HAS_TYPE != 0 {
        attr.kind
    } else {
        0
    };
    let create = || {
        if kind != 0 || attr.mask & !(HAS_TYPE | HAS_PD) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if attr.mask & HAS_PD == 0 {
            return Err(Errno::INVAL);
        }
        let init = ibv_srq_init_attr {
            srq_context: attr.srq_context,
            attr: attr.attr,
        };
        create(attr.pd, &init)
    };
    fault::pointer(create())
}

/// The exported functions; each does as its manual page says.
pub(crate) mod exported {
    use super::*;

    /// `ibv_create_srq(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_create_srq(
        pd: *mut ibv_pd,
        init: *mut ibv_srq_init_attr,
    ) -> *mut ibv_srq {
        // SAFETY: the program passes live structures.
        fault::pointer(create(pd, unsafe { &*init }))
    }

    /// `ibv_modify_srq(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_modify_srq(
        srq: *mut ibv_srq,
        attr: *mut ibv_srq_attr,
        mask: libc::c_int,
    ) -> libc::c_int {
        // SAFETY: the program passes a live queue and structure.
        let (own, attr) = unsafe { (srq_of(srq), &*attr) };
        fault::code(own.modify(attr, mask.cast_unsigned()))
    }

    /// `ibv_query_srq(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> libc::c_int {
        // SAFETY: the program passes a live queue.
        let own = unsafe { srq_of(srq) };
        let found = ibv_srq_attr {
            max_wr: own.max_wr.load(Ordering::Relaxed),
            max_sge: own.max_sge,
            srq_limit: own.limit.load(Ordering::Relaxed),
        };
        // SAFETY: the program passes a pointer to its structure.
        unsafe { attr.write(found) };
        0
    }

    /// `ibv_destroy_srq(3)`. `EBUSY` while queue pairs use the queue.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> libc::c_int {
        // SAFETY: the program passes a live queue.
        let own = unsafe { srq_of(srq) };
        if own.users.exist() {
            return fault::code(Err(Errno::BUSY));
        }
        own.adapter.remove_srq(own.token, srq);
        // SAFETY: the program does not use the queue after this call.
        unsafe { SrqObject::destroy(srq) };
        0
    }
}
