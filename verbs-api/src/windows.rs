//! Memory windows.
//!
//! The RNIC draws the key of a window. A bind of type 1 takes a new one each time; the program
//! varies the last eight bits for binds of type 2, which need a window that is not bound.

use std::sync::{Arc, Weak};

use provider_iwarp_soft::{SoftMr, SoftMw, SoftRnic};
use rnic::{Access, BindMw, Rnic as _, RnicError, Sge};
use rustix::io::Errno;
use verbs_dl::types::*;

use crate::domains::{Pd, pd_of};
use crate::fault::{Fault, errno_of};
use crate::memory::mr_of;
use crate::object::Object;
use crate::users::Use;

/// The access rights that a window can grant, and the local right, which is that of the region.
const KNOWN_ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_ZERO_BASED;

/// The number of low bits of a key that the program chooses.
const CHOSEN_BITS: u32 = 8;

/// A window.
struct Mw {
    hw: Arc<SoftMw>,
    /// The first key, whose upper bits all keys of type 2 have.
    first_key: u32,
    pd: Use<Pd>,
}

type MwObject = Object<ibv_mw, Mw>;

/// Creates a window.
///
/// # Safety
/// `pd` is a live domain of this library.
pub(crate) unsafe fn create(pd: *mut ibv_pd, kind: ibv_mw_type) -> Result<*mut ibv_mw, Fault> {
    if !matches!(kind, IBV_MW_TYPE_1 | IBV_MW_TYPE_2) {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller guarantees a live domain, which points to its context.
    let (own, context) = unsafe { (pd_of(pd), (*pd).context) };
    let create = || -> Result<_, RnicError> {
        let hw = own.rnic.create_mw(&own.hw)?;
        let rkey = own.rnic.mw_key(&hw)?;
        Ok((Arc::new(hw), rkey))
    };
    let (hw, rkey) = create().map_err(|error| errno_of(&error))?;
    let c = ibv_mw {
        context,
        pd,
        rkey,
        handle: 0,
        type_: kind,
    };
    let pd = Use::of(own);
    let mw = Mw {
        hw,
        first_key: rkey,
        pd,
    };
    Ok(MwObject::create(c, mw))
}

/// Destroys a window. Once it has returned, no peer uses the window.
///
/// # Safety
/// `mw` is a live window of this library, and is not used after this call.
pub(crate) unsafe fn destroy(mw: *mut ibv_mw) {
    // SAFETY: the contracts are the same.
    unsafe { MwObject::destroy(mw) };
}

/// A request to bind a window. It does not keep its objects, which the program may destroy while
/// the request waits for a connection.
#[derive(Debug)]
pub(crate) struct Bind {
    pub(crate) wr_id: u64,
    pub(crate) completion: bool,
    pub(crate) fence: bool,
    /// The key of the window from now on.
    pub(crate) key: u32,
    mw: Weak<SoftMw>,
    /// `None` to unbind.
    mr: Option<Weak<SoftMr>>,
    range: Sge,
    access: Access,
    zero_based: bool,
    is_type_2: bool,
}

impl Bind {
    /// Returns the request for `mw`, which is a window of type `kind`. `key` is the one that the
    /// program has chosen, for a window of type 2.
    ///
    /// # Safety
    /// `mw` is null or a live window of this library, and so is the region of `info`.
    pub(crate) unsafe fn new(
        mw: *mut ibv_mw,
        kind: ibv_mw_type,
        info: &ibv_mw_bind_info,
        key: Option<u32>,
    ) -> Result<Self, Fault> {
        // SAFETY: the caller guarantees null or a live window.
        let Some(c) = (unsafe { mw.as_ref() }).filter(|c| c.type_ == kind) else {
            return Err(Errno::INVAL);
        };
        // SAFETY: the window was just found not to be null.
        let own = unsafe { MwObject::own(mw) };
        let flags = info.mw_access_flags;
        let len = u32::try_from(info.length).map_err(|_| Errno::INVAL)?;
        if flags & !KNOWN_ACCESS != 0 || (info.mr.is_null() && len > 0) {
            return Err(Errno::INVAL);
        }
        let mr = match len {
            0 => None,
            // SAFETY: the caller guarantees a live region, which points to its domain.
            _ => unsafe {
                let region = mr_of(info.mr);
                if (*info.mr).pd != c.pd || !region.may_bind {
                    return Err(Errno::INVAL);
                }
                Some(Arc::downgrade(&region.hw))
            },
        };
        let has = |flag| flags & flag != 0;
        let key = match key {
            Some(key) if (key ^ own.first_key) >> CHOSEN_BITS != 0 => return Err(Errno::INVAL),
            Some(key) => key,
            None => own
                .pd
                .rnic
                .mw_key(&own.hw)
                .map_err(|error| errno_of(&error))?,
        };
        Ok(Self {
            wr_id: 0,
            completion: false,
            fence: false,
            key,
            mw: Arc::downgrade(&own.hw),
            mr,
            range: Sge {
                addr: info.addr,
                len,
                lkey: 0,
            },
            access: Access {
                local_read: true,
                local_write: false,
                remote_read: has(IBV_ACCESS_REMOTE_READ),
                remote_write: has(IBV_ACCESS_REMOTE_WRITE),
                remote_atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
            },
            zero_based: has(IBV_ACCESS_ZERO_BASED),
            is_type_2: kind == IBV_MW_TYPE_2,
        })
    }

    /// Posts the request to a queue pair.
    pub(crate) fn post(
        &self,
        rnic: &SoftRnic,
        qp: &<SoftRnic as rnic::Rnic>::Qp,
    ) -> Result<(), RnicError> {
        const GONE: RnicError = RnicError::InvalidArgument("the window or its region is destroyed");
        let mw = self.mw.upgrade().ok_or(GONE)?;
        let mr = match &self.mr {
            Some(mr) => Some(mr.upgrade().ok_or(GONE)?),
            None => None,
        };
        let request = BindMw {
            wr_id: self.wr_id,
            mr: mr.as_deref(),
            range: self.range,
            access: self.access,
            zero_based: self.zero_based,
            key: Some(self.key),
            is_first: self.is_type_2,
            qp_only: self.is_type_2,
            completion: self.completion,
            signalled: true,
            fence: self.fence,
        };
        rnic.bind_mw(qp, &mw, &request).map(drop)
    }
}
