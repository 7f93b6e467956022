//! Protection domains and regions.

use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use host::locks::lock;
use rnic::{Access, MrKeys, RegisterMr, Resource, RnicError};
use verbs_dl::types::*;

use crate::device::{checked, refused};
use crate::shared::Shared;

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    hw: NonNull<ibv_pd>,
    /// Regions that the device refused to deregister.
    stuck: Mutex<Stuck>,
    pub(crate) shared: Arc<Shared>,
}

/// Regions that could not be deregistered, because a window was still bound to them in the device.
///
/// Consumers may free a region once they have posted the unbind, but a device keeps a region with a
/// bound window (InfiniBand specification, section 10.6.7.2.6). So deregistration is tried again
/// when a window is deallocated or bound, and before the domain is destroyed.
#[derive(Debug, Default)]
struct Stuck(Vec<NonNull<ibv_mr>>);

// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Stuck {}

impl Stuck {
    /// Deregisters the regions that the device accepts, and keeps the remaining ones.
    fn retry(&mut self, mut dereg: impl FnMut(*mut ibv_mr) -> io::Result<()>) {
        self.0.retain(|mr| dereg(mr.as_ptr()).is_err());
    }
}

// SAFETY: verbs objects may be used by any thread (ibv_create_qp(3) and its like).
unsafe impl Send for Pd {}
// SAFETY: verbs objects may be used by any thread (ibv_create_qp(3) and its like).
unsafe impl Sync for Pd {}

impl Pd {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Arc<Self>, RnicError> {
        // SAFETY: the device is open.
        let hw = unsafe { shared.verbs().ibv_alloc_pd(shared.device.context()) };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::ProtectionDomain))?;
        Ok(Arc::new(Self {
            hw,
            stuck: Mutex::default(),
            shared: shared.clone(),
        }))
    }

    /// Tries stuck regions again, because windows were deallocated or are about to be bound.
    pub(crate) fn retry_stuck_regions(&self) {
        lock(&self.stuck).retry(|mr| self.dereg(mr));
    }

    fn dereg(&self, mr: *mut ibv_mr) -> io::Result<()> {
        // SAFETY: registered by `Mr::register`; the caller drops its pointer once the region is
        // deregistered.
        checked(unsafe { self.shared.verbs().ibv_dereg_mr(mr) })
    }

    pub(crate) fn hw(&self) -> *mut ibv_pd {
        self.hw.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        self.retry_stuck_regions();
        // SAFETY: created by `Pd::new`; every object in the domain keeps it alive, so none is left.
        unsafe { self.shared.verbs().ibv_dealloc_pd(self.hw()) };
    }
}

/// A memory region. When its drop returns, the device does not access the memory any more.
#[derive(Debug)]
pub struct Mr {
    hw: NonNull<ibv_mr>,
    pd: Arc<Pd>,
}

// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Mr {}
// SAFETY: verbs objects may be used by any thread.
unsafe impl Sync for Mr {}

impl Mr {
    pub(crate) fn register(pd: &Arc<Pd>, request: &RegisterMr) -> Result<Self, RnicError> {
        let access = request.access;
        if (access.remote_write || access.remote_atomic) && !access.local_write {
            return Err(RnicError::InvalidArgument(
                "remote write without local write",
            ));
        }
        let device = &pd.shared.device;
        let quirks = device.quirks();
        if request.iova.is_some() && !quirks.zero_based_regions {
            return Err(RnicError::NotSupported("zero-based regions on this device"));
        }
        let Ok(len) = usize::try_from(request.len) else {
            return Err(RnicError::InvalidArgument("length of a region"));
        };
        let addr = std::ptr::with_exposed_provenance_mut(request.addr as usize);
        let first = request.iova.unwrap_or(request.addr);
        let mut flags = access_flags(access);
        if quirks.read_sink_is_remote && access.local_write {
            flags |= IBV_ACCESS_REMOTE_WRITE;
        }
        if device.attr.max_mw > 0 {
            flags |= IBV_ACCESS_MW_BIND;
        }
        let verbs = pd.shared.verbs();
        // SAFETY: the domain is alive; the kernel checks that the memory is mapped.
        let hw = unsafe { verbs.ibv_reg_mr_iova(pd.hw(), addr, len, first, flags as i32) };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::MemoryRegion))?;
        let mr = Self { hw, pd: pd.clone() };
        if request.iova.is_none() {
            let regions = &pd.shared.regions;
            regions.insert(mr.keys().lkey, request.addr, request.len);
        }
        Ok(mr)
    }

    pub(crate) fn hw(&self) -> *mut ibv_mr {
        self.hw.as_ptr()
    }

    pub(crate) fn keys(&self) -> MrKeys {
        // SAFETY: the region is alive as long as `self`, and does not change.
        let mr = unsafe { self.hw.as_ref() };
        MrKeys {
            lkey: mr.lkey,
            rkey: mr.rkey,
        }
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        self.pd.shared.regions.remove(self.keys().lkey);
        if let Err(why) = self.pd.dereg(self.hw()) {
            tracing::warn!(%why, "the device keeps a memory region for now");
            lock(&self.pd.stuck).0.push(self.hw);
        }
    }
}

/// The rights as verbs flags. Local reading needs no flag.
pub(crate) fn access_flags(access: Access) -> u32 {
    let when = |set: bool, flag: ibv_access_flags| if set { flag } else { 0 };
    when(access.local_write, IBV_ACCESS_LOCAL_WRITE)
        | when(access.remote_read, IBV_ACCESS_REMOTE_READ)
        | when(access.remote_write, IBV_ACCESS_REMOTE_WRITE)
        | when(access.remote_atomic, IBV_ACCESS_REMOTE_ATOMIC)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_region_is_deregistered_as_soon_as_the_device_allows_it() {
        // The pointers represent regions and are not dereferenced.
        let [first, second] = [64, 128].map(ptr::without_provenance_mut::<ibv_mr>);
        let mut stuck = Stuck([first, second].map(|mr| NonNull::new(mr).unwrap()).into());
        let mut tried = Vec::new();
        let mut retry = |bound: &[*mut ibv_mr]| {
            stuck.retry(|mr| {
                tried.push(mr);
                let taken = !bound.contains(&mr);
                let busy = || io::Error::from_raw_os_error(libc::EINVAL);
                taken.then_some(()).ok_or_else(busy)
            });
            std::mem::take(&mut tried)
        };
        assert_eq!(retry(&[first, second]), [first, second]);
        assert_eq!(retry(&[second]), [first, second]);
        assert_eq!(
            retry(&[]),
            [second],
            "the other region is deregistered already"
        );
        assert_eq!(retry(&[]), []);
    }
}
