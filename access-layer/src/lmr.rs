//! Local memory region (DAT 2.0 section 6.9).
//!
//! The RNIC decides how a registration affects the memory: a device pins it, the software provider
//! neither pins nor accesses it. In this module a region is a handle and a range.

use std::sync::Arc;

use dat_abi::*;

use crate::error::{DatError, DatResult};
use crate::handle::{self, Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::pz::Pz;
use crate::rnic::{Access, MrKeys, RegisterMr, Rnic};
use crate::users::{User, Users};

/// A local memory region.
pub struct Lmr<R: Rnic> {
    mr: R::Mr,
    keys: MrKeys,
    spec: LmrSpec,
    /// First byte, for every kind of memory.
    addr: u64,
    handle: Handle,
    /// Number of windows bound to the region.
    windows: Users,
    pz: Arc<Pz<R>>,
    _pz_use: User,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Lmr<R> {
    handle,
    spec,
    windows
});

/// The consumer's arguments for a registration.
#[derive(Debug, Clone, Copy)]
pub struct LmrSpec {
    /// Kind of memory.
    pub mem_type: DatMemType,
    /// The memory; `mem_type` selects the member.
    pub region: DatRegionDescription,
    /// Length in bytes.
    pub len: DatVlen,
    /// `DAT_MEM_PRIV_*`.
    pub privileges: DatMemPrivFlags,
    /// Address type: virtual or zero-based.
    pub va_type: DatVaType,
}

// SAFETY: the pointers in the region description are the consumer's values, stored for
// `dat_lmr_query` and never dereferenced.
unsafe impl Send for LmrSpec {}
// SAFETY: as for Send.
unsafe impl Sync for LmrSpec {}

impl LmrSpec {
    /// Looks up the memory to register and returns its first byte. For a region of another region,
    /// replaces a length of 0 by the length of the other region.
    fn resolve<R: Rnic>(&mut self, ia: &Arc<Ia<R>>) -> DatResult<u64> {
        match self.mem_type {
            // SAFETY: every member of the union begins with a word, and C has initialised all of
            // it.
            DAT_MEM_TYPE_VIRTUAL => Ok(unsafe { self.region.for_va }.addr() as u64),
            DAT_MEM_TYPE_LMR => {
                // SAFETY: C has initialised the union; any word may be looked up as a handle.
                let parent = handle::pin::<Lmr<R>>(unsafe { self.region.for_lmr_handle })
                    .filter(|parent| Arc::ptr_eq(&parent.ia, ia))
                    .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_LMR))?;
                // A length of 0 selects the length of the parent region. Any other length must not
                // exceed it.
                if self.len == 0 {
                    self.len = parent.spec.len;
                }
                if self.len > parent.spec.len {
                    return Err(DatError::of(DAT_LENGTH_ERROR));
                }
                Ok(parent.addr)
            }
            DAT_MEM_TYPE_SHARED_VIRTUAL => {
                // SAFETY: the memory type selects this member, and C has initialised all of it.
                let shared = unsafe { self.region.for_shared_memory };
                if shared.shared_memory_id.is_null() {
                    return Err(DatError::invalid_arg(3));
                }
                Ok(shared.virtual_address.addr() as u64)
            }
            _ => Err(DatError::invalid_arg(2)),
        }
    }
}

impl<R: Rnic> Object for Lmr<R> {
    const KIND: Kind = Kind::Lmr;
}

impl<R: Rnic> Lmr<R> {
    /// Implements `dat_lmr_create`.
    ///
    /// A region of another region is a separate registration, which may outlive the other region.
    /// Shared memory is registered once for every mapping: an RNIC that accesses the memory through
    /// the process has nothing to share, so the identifier is only checked for presence.
    pub fn create(ia: &Arc<Ia<R>>, pz: &Pinned<Pz<R>>, mut spec: LmrSpec) -> DatResult<Arc<Self>> {
        // Another IA is another RNIC, whose close would wait for this region.
        if !Arc::ptr_eq(pz.ia(), ia) {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_PZ));
        }
        let addr = spec.resolve(ia)?;
        let request = request_of(&spec, addr, ia.attr().mr_len_max)?;
        let pz_use = pz.add_user()?;
        let reservation = ia.reserve()?;
        let mr = ia.rnic().register_mr(pz.rnic_pd(), &request)?;
        let lmr = Arc::new(Self {
            keys: ia.rnic().mr_keys(&mr),
            mr,
            spec,
            addr,
            handle: reservation.handle(),
            windows: Users::new(),
            pz: pz.to_arc(),
            _pz_use: pz_use,
            ia: ia.clone(),
        });
        ia.install(reservation, lmr.clone())?;
        Ok(lmr)
    }

    /// The handle of the region.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// `DAT_LMR_CONTEXT` and `DAT_RMR_CONTEXT`.
    pub fn keys(&self) -> MrKeys {
        self.keys
    }

    /// Returns the first byte and the length granted, which equal those requested.
    pub fn registered(&self) -> (DatVaddr, DatVlen) {
        (self.addr, self.spec.len)
    }

    pub(crate) fn rnic_mr(&self) -> &R::Mr {
        &self.mr
    }

    pub(crate) fn pz(&self) -> Handle {
        self.pz.handle()
    }

    /// Marks the region as used by a window that will be bound to it.
    pub(crate) fn add_user(&self) -> DatResult<User> {
        self.windows
            .take()
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_LMR))
    }

    /// Returns true if `len` bytes from `addr` (an offset for zero-based regions) are inside the
    /// region.
    pub(crate) fn contains(&self, addr: u64, len: u32) -> bool {
        let first = if self.spec.va_type == DAT_VA_TYPE_ZB {
            0
        } else {
            self.addr
        };
        addr.checked_sub(first)
            .and_then(|offset| offset.checked_add(u64::from(len)))
            .is_some_and(|end| end <= self.spec.len)
    }

    /// Implements `dat_lmr_query`.
    pub fn query(&self) -> DatLmrParam {
        let (registered_address, registered_size) = self.registered();
        DatLmrParam {
            ia_handle: self.ia.consumer_handle(),
            mem_type: self.spec.mem_type,
            region_desc: self.spec.region,
            length: self.spec.len,
            pz_handle: self.pz.handle().as_dat(),
            mem_priv: self.spec.privileges,
            va_type: self.spec.va_type,
            lmr_context: self.keys.lkey,
            rmr_context: self.keys.rkey,
            registered_size,
            registered_address,
        }
    }

    /// Implements `dat_lmr_free`. The region is deregistered when this returns, even if calls of
    /// other threads use the handle meanwhile.
    pub fn free(this: Pinned<Self>) -> DatResult {
        if !this.windows.close() {
            return Err(DatError::bare(DAT_INVALID_STATE, DAT_NO_SUBTYPE));
        }
        Self::abandon(&this);
        this.await_drop();
        Ok(())
    }
}

impl<R: Rnic> Child for Lmr<R> {
    fn on_retired(this: &Pinned<Self>) {
        this.windows.close_anyway();
        this.ia.disown(Kind::Lmr, this.handle);
    }
}

/// Converts `DAT_MEM_PRIV_*` flags to the RNIC's access rights.
///
/// Local reading is always allowed, because consumers register send buffers with the local write
/// privilege only.
pub(crate) fn access_of(privileges: DatMemPrivFlags) -> Access {
    let has = |flag| privileges & flag != 0;
    Access {
        local_read: true,
        local_write: has(DAT_MEM_PRIV_LOCAL_WRITE_FLAG),
        remote_read: has(DAT_MEM_PRIV_REMOTE_READ_FLAG),
        remote_write: has(DAT_MEM_PRIV_REMOTE_WRITE_FLAG),
        remote_atomic: has(DAT_IB_MEM_PRIV_REMOTE_ATOMIC),
    }
}

/// All defined privileges.
pub(crate) const KNOWN_PRIVILEGES: DatMemPrivFlags =
    DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;

fn request_of(spec: &LmrSpec, addr: u64, len_max: u64) -> DatResult<RegisterMr> {
    if spec.privileges & !KNOWN_PRIVILEGES != 0 {
        return Err(DatError::invalid_arg(6));
    }
    let iova = match spec.va_type {
        DAT_VA_TYPE_VA => None,
        DAT_VA_TYPE_ZB => Some(0),
        _ => return Err(DatError::invalid_arg(7)),
    };
    // `dtest -b 0` registers an empty region at an address. An empty region without an address is
    // an error.
    let is_nothing = spec.len == 0 && addr == 0;
    if is_nothing || spec.len > len_max || addr.checked_add(spec.len).is_none() {
        return Err(DatError::of(DAT_LENGTH_ERROR));
    }
    Ok(RegisterMr {
        addr,
        len: spec.len,
        access: access_of(spec.privileges),
        iova,
    })
}

#[cfg(test)]
mod tests;
