//! Protection domains, and the parent domains and thread domains that some programs create.

use std::sync::{Arc, OnceLock};

use provider_iwarp_soft::{SoftPd, SoftRnic};
use rnic::Rnic as _;
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::adapter::{self, Adapter};
use crate::fault::{self, Fault, errno_of};
use crate::object::Object;
use crate::users::{Use, Used, Users};

/// A protection domain, or a parent domain, which has the protection of another one.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) hw: Arc<SoftPd>,
    pub(crate) rnic: Arc<SoftRnic>,
    users: Users,
    /// The domain from which a parent domain was made.
    _protection: Option<Use<Self>>,
}

impl Used for Pd {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// A protection domain and the device that it uses.
pub(crate) struct CreatedPd {
    pd: Arc<Pd>,
    _adapter: Use<Adapter>,
    td: OnceLock<Use<Td>>,
}

impl CreatedPd {
    /// Keeps a thread domain as long as this parent domain.
    fn keep(&self, td: Option<Use<Td>>) {
        if let Some(td) = td {
            let _ = self.td.set(td);
        }
    }
}

type PdObject = Object<ibv_pd, CreatedPd>;

/// Returns a protection domain.
///
/// # Safety
/// `pd` is a live domain of this library.
pub(crate) unsafe fn pd_of<'a>(pd: *mut ibv_pd) -> &'a Arc<Pd> {
    // SAFETY: the caller guarantees a live domain.
    &unsafe { PdObject::own(pd) }.pd
}

/// Creates a protection domain.
pub(crate) fn create_pd(context: *mut ibv_context) -> Result<*mut ibv_pd, Fault> {
    // SAFETY: the program passes a live context.
    let adapter = unsafe { adapter::of(context) };
    let hw = adapter.rnic.create_pd();
    let hw = Arc::new(hw.map_err(|error| errno_of(&error))?);
    Ok(object_of(context, adapter, hw, None))
}

fn object_of(
    context: *mut ibv_context,
    adapter: &Arc<Adapter>,
    hw: Arc<SoftPd>,
    protection: Option<Use<Pd>>,
) -> *mut ibv_pd {
    let pd = Pd {
        hw,
        rnic: adapter.rnic.clone(),
        users: Users::default(),
        _protection: protection,
    };
    let created = CreatedPd {
        pd: Arc::new(pd),
        _adapter: Use::of(adapter),
        td: OnceLock::new(),
    };
    PdObject::create(ibv_pd { context, handle: 0 }, created)
}

/// `struct ibv_td`: a thread domain, which promises that one thread at a time uses its objects.
/// This library needs no such promise.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ThreadDomain {
    context: *mut ibv_context,
}

/// A thread domain and the device that it uses.
struct CreatedTd {
    td: Arc<Td>,
    _adapter: Use<Adapter>,
}

/// The parent domains of a thread domain.
#[derive(Debug, Default)]
struct Td {
    users: Users,
}

impl Used for Td {
    fn users(&self) -> &Users {
        &self.users
    }
}

type TdObject = Object<ThreadDomain, CreatedTd>;

/// `ibv_alloc_td(3)`, called by the header.
///
/// # Safety
/// As the manual page says.
pub(crate) unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    attr: *mut u32,
) -> *mut ThreadDomain {
    let create = || {
        // SAFETY: the program passes its structure, whose only member is the mask.
        if unsafe { *attr } != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        // SAFETY: the program passes a live context.
        let adapter = unsafe { adapter::of(context) };
        let created = CreatedTd {
            td: Arc::default(),
            _adapter: Use::of(adapter),
        };
        Ok(TdObject::create(ThreadDomain { context }, created))
    };
    fault::pointer(create())
}

/// `ibv_dealloc_td(3)`, called by the header. `EBUSY` while parent domains use it.
///
/// # Safety
/// As the manual page says.
pub(crate) unsafe extern "C" fn dealloc_td(td: *mut ThreadDomain) -> libc::c_int {
    // SAFETY: the program passes a live thread domain, and does not use it after this call.
    unsafe {
        if TdObject::own(td).td.users.exist() {
            return fault::code(Err(Errno::BUSY));
        }
        TdObject::destroy(td);
    }
    0
}

/// `struct ibv_parent_domain_init_attr`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ParentDomainAttr {
    pd: *mut ibv_pd,
    td: *mut ThreadDomain,
    mask: u32,
    _alloc: usize,
    _free: usize,
    _pd_context: usize,
}

/// The members of [`ParentDomainAttr`] that a program may set: allocators, which are not called
/// because no memory is shared with a device, and their context.
const PARENT_DOMAIN_MASK: u32 = 3;

/// `ibv_alloc_parent_domain(3)`, called by the header.
///
/// # Safety
/// As the manual page says.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ParentDomainAttr,
) -> *mut ibv_pd {
    // SAFETY: the program passes a live context and its structure.
    let (adapter, attr) = unsafe { (adapter::of(context), &*attr) };
    if attr.pd.is_null() || attr.mask & !PARENT_DOMAIN_MASK != 0 {
        return fault::pointer(Err(Errno::INVAL));
    }
    // SAFETY: the program passes a live domain.
    let own = unsafe { pd_of(attr.pd) };
    // SAFETY: the program passes null or a live thread domain.
    let td = (!attr.td.is_null()).then(|| Use::of(unsafe { &TdObject::own(attr.td).td }));
    let object = object_of(context, adapter, own.hw.clone(), Some(Use::of(own)));
    // SAFETY: the object was just created.
    unsafe { PdObject::own(object) }.keep(td);
    object
}

/// The exported functions; each does as its manual page says.
mod exported {
    use super::*;

    /// `ibv_alloc_pd(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
        fault::pointer(create_pd(context))
    }

    /// `ibv_dealloc_pd(3)`. `EBUSY` while objects of the domain exist.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> libc::c_int {
        // SAFETY: the program passes a live domain.
        if unsafe { pd_of(pd) }.users.exist() {
            return fault::code(Err(Errno::BUSY));
        }
        // SAFETY: the program does not use the domain after this call.
        unsafe { PdObject::destroy(pd) };
        0
    }
}
