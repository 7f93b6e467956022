//! Protection domains and regions.

use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use access_layer::rnic::{Access, MrKeys, RegisterMr, Resource, RnicError};
use verbs_dl::types::*;

use crate::device::checked;
use crate::lock::lock;
use crate::rnic::Shared;

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    hw: NonNull<ibv_pd>,
    /// Regions that the device did not take back.
    stuck: Mutex<Stuck>,
    pub(crate) shared: Arc<Shared>,
}

/// Regions that a window was still bound to when they were to go, as far as the device had come.
///
/// Consumers may free a region when they have posted the unbind, but a device keeps a region with a
/// window (InfiniBand specification, section 10.6.7.2.6). So it is asked again when a window is
/// gone or is bound, and before the domain goes.
#[derive(Debug, Default)]
struct Stuck(Vec<NonNull<ibv_mr>>);

// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Stuck {}

impl Stuck {
    /// Gives back what the device takes.
    fn give_back(&mut self, mut dereg: impl FnMut(*mut ibv_mr) -> io::Result<()>) {
        self.0.retain(|mr| dereg(mr.as_ptr()).is_err());
    }
}

// SAFETY: verbs objects may be used by any thread (ibv_create_qp(3) and its like).
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Pd {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Arc<Self>, RnicError> {
        let device = &shared.device;
        // SAFETY: the device is open.
        let hw = unsafe { device.libraries.verbs.ibv_alloc_pd(device.context()) };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::ProtectionDomain))?;
        Ok(Arc::new(Self {
            hw,
            stuck: Mutex::default(),
            shared: shared.clone(),
        }))
    }

    /// Windows have gone or are about to be bound: regions may go that could not.
    pub(crate) fn give_regions_back(&self) {
        lock(&self.stuck).give_back(|mr| self.dereg(mr));
    }

    fn dereg(&self, mr: *mut ibv_mr) -> io::Result<()> {
        // SAFETY: registered by us; who calls this forgets it when it is gone.
        checked(unsafe { self.shared.device.libraries.verbs.ibv_dereg_mr(mr) })
    }

    pub(crate) fn hw(&self) -> *mut ibv_pd {
        self.hw.as_ptr()
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        self.give_regions_back();
        // SAFETY: made by us; everything made in it holds it, so nothing is left.
        unsafe { self.shared.device.libraries.verbs.ibv_dealloc_pd(self.hw()) };
    }
}

/// Why the last verb made nothing; `resource` is what it would have been.
pub(crate) fn refused(resource: Resource) -> RnicError {
    of(io::Error::last_os_error(), resource)
}

/// What an error of a verb means.
pub(crate) fn of(error: io::Error, resource: Resource) -> RnicError {
    match error.raw_os_error() {
        Some(libc::ENOMEM | libc::ENOSPC | libc::EAGAIN) => RnicError::NoResources(resource),
        Some(libc::EMFILE | libc::ENFILE) => RnicError::NoResources(Resource::Descriptor),
        Some(libc::EINVAL | libc::EFAULT) => RnicError::InvalidArgument("the device refuses it"),
        Some(libc::EPERM | libc::EACCES) => RnicError::NotPermitted("the device refuses it"),
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => RnicError::NotSupported("the device has it not"),
        _ => RnicError::Os(error),
    }
}

/// A memory region.
#[derive(Debug)]
pub(crate) struct Mr {
    hw: NonNull<ibv_mr>,
    pd: Arc<Pd>,
}

// SAFETY: as for `Pd`.
unsafe impl Send for Mr {}
// SAFETY: as above.
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
        if request.zero_based && !quirks.zero_based_regions {
            return Err(RnicError::NotSupported("zero-based regions on this device"));
        }
        let Ok(len) = usize::try_from(request.len) else {
            return Err(RnicError::InvalidArgument("length of a region"));
        };
        let addr = std::ptr::with_exposed_provenance_mut(request.addr as usize);
        let first = if request.zero_based { 0 } else { request.addr };
        let mut flags = access_flags(access);
        if quirks.read_sink_is_remote && access.local_write {
            flags |= IBV_ACCESS_REMOTE_WRITE;
        }
        if device.attr.max_mw > 0 {
            flags |= IBV_ACCESS_MW_BIND;
        }
        let verbs = &device.libraries.verbs;
        // SAFETY: the domain is alive; whether the memory is there is what the kernel finds out.
        let hw = unsafe { verbs.ibv_reg_mr_iova(pd.hw(), addr, len, first, flags as i32) };
        let hw = NonNull::new(hw).ok_or_else(|| refused(Resource::MemoryRegion))?;
        let mr = Self { hw, pd: pd.clone() };
        if !request.zero_based {
            let regions = &pd.shared.regions;
            regions.insert(mr.keys().lkey, request.addr, request.len);
        }
        Ok(mr)
    }

    pub(crate) fn hw(&self) -> *mut ibv_mr {
        self.hw.as_ptr()
    }

    pub(crate) fn keys(&self) -> MrKeys {
        // SAFETY: alive as long as `self`, and not changed by anybody.
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

/// Rights in verbs words. Local reading needs none.
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
    fn a_region_is_given_back_as_soon_as_the_device_takes_it() {
        // They stand for regions, and nobody reads them.
        let [first, second] = [64, 128].map(ptr::without_provenance_mut::<ibv_mr>);
        let mut stuck = Stuck([first, second].map(|mr| NonNull::new(mr).unwrap()).into());
        let mut asked = Vec::new();
        let mut give_back = |bound: &[*mut ibv_mr]| {
            stuck.give_back(|mr| {
                asked.push(mr);
                let taken = !bound.contains(&mr);
                let busy = || io::Error::from_raw_os_error(libc::EINVAL);
                taken.then_some(()).ok_or_else(busy)
            });
            std::mem::take(&mut asked)
        };
        assert_eq!(give_back(&[first, second]), [first, second]);
        assert_eq!(give_back(&[second]), [first, second]);
        assert_eq!(
            give_back(&[]),
            [second],
            "the other is gone, and not touched"
        );
        assert_eq!(give_back(&[]), []);
    }
}
