//! Memory regions.

use std::sync::Arc;

use provider_iwarp_soft::SoftMr;
use rnic::{Access, RegisterMr, Rnic as _};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::domains::{Pd, pd_of};
use crate::fault::{self, Fault, errno_of};
use crate::object::Object;
use crate::users::Use;

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    pub(crate) hw: Arc<SoftMr>,
    /// True if windows may be bound to the region.
    pub(crate) may_bind: bool,
    access: ibv_access_flags,
    _pd: Use<Pd>,
}

/// Returns a memory region.
///
/// # Safety
/// `mr` is a live region of this library.
pub(crate) unsafe fn mr_of<'a>(mr: *mut ibv_mr) -> &'a Mr {
    // SAFETY: the caller guarantees a live region.
    unsafe { MrObject::own(mr) }
}

type MrObject = Object<ibv_mr, Mr>;

/// The access rights that the RNIC grants, or that need no action: memory is never pinned, and no
/// operation overtakes another.
const KNOWN_ACCESS: ibv_access_flags = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_HUGETLB
    | IBV_ACCESS_RELAXED_ORDERING;

/// Returns the registration of `length` bytes at `addr`, whose first byte has the address `iova` in
/// work requests.
fn request_of(
    addr: *mut libc::c_void,
    length: usize,
    iova: u64,
    access: ibv_access_flags,
) -> Result<RegisterMr, Fault> {
    let start = addr.addr() as u64;
    let has = |flag| access & flag != 0;
    // On-demand paging is not among the device's capabilities.
    if has(IBV_ACCESS_ON_DEMAND) {
        return Err(Errno::OPNOTSUPP);
    }
    let iova = if has(IBV_ACCESS_ZERO_BASED) { 0 } else { iova };
    let wraps = |first: u64| first.checked_add(length as u64).is_none();
    if access & !KNOWN_ACCESS != 0 || length == 0 || wraps(start) || wraps(iova) {
        return Err(Errno::INVAL);
    }
    Ok(RegisterMr {
        addr: start,
        len: length as u64,
        access: Access {
            local_read: true,
            local_write: has(IBV_ACCESS_LOCAL_WRITE),
            remote_read: has(IBV_ACCESS_REMOTE_READ),
            remote_write: has(IBV_ACCESS_REMOTE_WRITE),
            remote_atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
        },
        iova: (iova != start).then_some(iova),
    })
}

/// Registers memory.
pub(crate) fn register(
    pd: *mut ibv_pd,
    addr: *mut libc::c_void,
    length: usize,
    iova: u64,
    access: ibv_access_flags,
) -> Result<*mut ibv_mr, Fault> {
    let request = request_of(addr, length, iova, access)?;
    // SAFETY: the program passes a live domain.
    let own = unsafe { pd_of(pd) };
    let hw = own.rnic.register_mr(&own.hw, &request);
    let hw = Arc::new(hw.map_err(|error| errno_of(&error))?);
    Ok(object_of(pd, addr, length, hw, access))
}

/// Creates the structure of a region.
fn object_of(
    pd: *mut ibv_pd,
    addr: *mut libc::c_void,
    length: usize,
    hw: Arc<SoftMr>,
    access: ibv_access_flags,
) -> *mut ibv_mr {
    // SAFETY: the program passes a live domain, which points to its context.
    let (own, context) = unsafe { (pd_of(pd), (*pd).context) };
    let keys = own.rnic.mr_keys(&hw);
    let c = ibv_mr {
        context,
        pd,
        addr,
        length,
        handle: keys.lkey,
        lkey: keys.lkey,
        rkey: keys.rkey,
    };
    let mr = Mr {
        hw,
        may_bind: access & IBV_ACCESS_MW_BIND != 0,
        access,
        _pd: Use::of(own),
    };
    MrObject::create(c, mr)
}

/// Registers a region anew, under its keys.
///
/// # Safety
/// `mr` is a live region of this library, and so is `pd`, which is a domain.
unsafe fn reregister(
    mr: *mut ibv_mr,
    pd: *mut ibv_pd,
    addr: *mut libc::c_void,
    length: usize,
    access: ibv_access_flags,
) -> Result<(), Fault> {
    let request = request_of(addr, length, addr.addr() as u64, access)?;
    // SAFETY: as for the caller.
    let (own, hw) = unsafe { (pd_of(pd), mr_of(mr).hw.clone()) };
    let renewed = own.rnic.reregister_mr(&hw, &own.hw, &request);
    renewed.map_err(|error| errno_of(&error))?;
    let renewed = object_of(pd, addr, length, hw, access);
    // SAFETY: as for the caller; the new structure was just created.
    unsafe { MrObject::exchange(mr, renewed) };
    Ok(())
}

pub(crate) use self::exported::ibv_dereg_mr;

/// The exported functions; each does as its manual page says.
mod exported {
    use super::*;

    /// `ibv_reg_mr(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_reg_mr(
        pd: *mut ibv_pd,
        addr: *mut libc::c_void,
        length: usize,
        access: libc::c_int,
    ) -> *mut ibv_mr {
        let iova = addr.addr() as u64;
        fault::pointer(register(pd, addr, length, iova, access.cast_unsigned()))
    }

    /// `ibv_reg_mr_iova(3)`.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut libc::c_void,
        length: usize,
        iova: u64,
        access: libc::c_int,
    ) -> *mut ibv_mr {
        fault::pointer(register(pd, addr, length, iova, access.cast_unsigned()))
    }

    /// `ibv_reg_mr_iova(3)`, called by the header for flags that may be ignored.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut libc::c_void,
        length: usize,
        iova: u64,
        access: libc::c_uint,
    ) -> *mut ibv_mr {
        fault::pointer(register(pd, addr, length, iova, access))
    }

    /// The flags of `ibv_rereg_mr(3)`, and its result for arguments that are refused.
    const CHANGE_TRANSLATION: libc::c_int = 1;
    const CHANGE_PD: libc::c_int = 2;
    const CHANGE_ACCESS: libc::c_int = 4;
    const REFUSED: libc::c_int = -1;

    /// `ibv_rereg_mr(3)`: registers anew, under the same keys. A failure changes nothing.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: libc::c_int,
        pd: *mut ibv_pd,
        addr: *mut libc::c_void,
        length: usize,
        access: libc::c_int,
    ) -> libc::c_int {
        let known = CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS;
        if flags == 0 || flags & !known != 0 || (flags & CHANGE_PD != 0 && pd.is_null()) {
            fault::set_errno(Errno::INVAL);
            return REFUSED;
        }
        let has = |flag| flags & flag != 0;
        // SAFETY: the program passes a live region, and a live domain if it changes that.
        unsafe {
            let (former, former_access) = (*mr, mr_of(mr).access);
            let pd = if has(CHANGE_PD) { pd } else { former.pd };
            let (addr, length) = match has(CHANGE_TRANSLATION) {
                true => (addr, length),
                false => (former.addr, former.length),
            };
            let access = match has(CHANGE_ACCESS) {
                true => access.cast_unsigned(),
                false => former_access,
            };
            match reregister(mr, pd, addr, length, access) {
                Ok(()) => 0,
                Err(fault) => {
                    fault::set_errno(fault);
                    REFUSED
                }
            }
        }
    }

    /// `ibv_dereg_mr(3)`. Once it has returned, no byte of the region is read or written.
    ///
    /// # Safety
    /// As the manual page says.
    #[unsafe(no_mangle)]
    pub(crate) unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> libc::c_int {
        // SAFETY: the program passes a live region and does not use it after this call.
        unsafe { MrObject::destroy(mr) };
        0
    }
}
