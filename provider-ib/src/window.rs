//! Memory windows.
//!
//! A window that every queue pair of a domain may use is of verbs' type 1, one for a single queue
//! pair of type 2B.
//!
//! Each bind takes a fresh window from the device and gives the old one back, and an unbind does
//! only the latter. So the device has no window into a region to which none was bound last, whatever
//! becomes of the requests: a flushed unbind, or a flushed bind to another region, would leave the
//! old window open, and its region, which the consumer may free by then, where the peer reaches it.
//! Neither names a window of type 2 that the peer may have invalidated meanwhile, which rxe (Linux
//! 6.1) does not survive, nor the region of an earlier bind, which may be gone.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access_layer::rnic::{BindMw, QpToken, Resource, RnicError};
use verbs_dl::types::*;

use crate::memory::{Mr, Pd, access_flags, of};
use crate::qp::Qp;
use crate::rnic::IbRnic;

/// A memory window.
#[derive(Debug)]
pub(crate) struct Mw {
    pd: Arc<Pd>,
    hw: Mutex<Hw>,
}

/// What the device has of a window, if anything.
#[derive(Debug, Default)]
struct Hw(Option<Bound>);

#[derive(Debug, PartialEq, Eq)]
struct Bound {
    mw: NonNull<ibv_mw>,
    /// The queue pair that alone may use it; `None` for every one of the domain.
    owner: Option<QpToken>,
}

// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Hw {}

impl Mw {
    /// A window that is not bound. Takes nothing of the device yet, so the device's limit shows at
    /// the first bind.
    pub(crate) fn new(pd: &Arc<Pd>) -> Result<Arc<Self>, RnicError> {
        if pd.shared.device.attr.max_mw <= 0 {
            return Err(RnicError::NotSupported("memory windows on this device"));
        }
        Ok(Arc::new(Self {
            pd: pd.clone(),
            hw: Mutex::default(),
        }))
    }

    /// Posts a bind, or with length 0 an unbind, and returns the key that the window then has.
    pub(crate) fn bind(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        bind: &BindMw<'_, IbRnic>,
    ) -> Result<u32, RnicError> {
        let mr = bind.mr.filter(|_| bind.range.len > 0).map(|mr| &mr.mr);
        let mut hw = self.lock();
        let Some(mr) = mr else {
            qp.post_bind_nothing(bind)?;
            hw.replace(None, dealloc);
            return Ok(0);
        };
        if bind.qp_only {
            let key = hw.bind(self.alloc(IBV_MW_TYPE_2)?, Some(qp.token), dealloc, |mw| {
                qp.post_bind_own(mw.as_ptr(), mr, bind)
            })?;
            qp.holds_window(self);
            return Ok(key);
        }
        if bind.zero_based {
            return Err(RnicError::NotSupported(
                "zero-based windows of a whole domain",
            ));
        }
        hw.bind(self.alloc(IBV_MW_TYPE_1)?, None, dealloc, |mw| {
            qp.post_bind_shared(mw.as_ptr(), mr, bind)
        })
    }

    fn alloc(&self, kind: ibv_mw_type) -> Result<NonNull<ibv_mw>, RnicError> {
        // SAFETY: the domain is alive.
        let mw = unsafe { verbs_dl::alloc_mw(self.pd.hw(), kind) };
        let mw = mw.map_err(|why| of(why, Resource::MemoryRegion))?;
        NonNull::new(mw).ok_or(RnicError::NoResources(Resource::MemoryRegion))
    }

    /// A queue pair on which the window was bound goes: the device wants it back first, if it is
    /// still that one's.
    pub(crate) fn on_qp_gone(&self, qp: QpToken) {
        self.lock().on_qp_gone(qp, dealloc);
    }

    fn lock(&self) -> MutexGuard<'_, Hw> {
        self.hw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        self.lock().replace(None, dealloc);
    }
}

impl Hw {
    /// Posts the bind of a fresh window, which takes the place of the one there is.
    fn bind(
        &mut self,
        fresh: NonNull<ibv_mw>,
        owner: Option<QpToken>,
        dealloc: impl Fn(NonNull<ibv_mw>),
        post: impl FnOnce(NonNull<ibv_mw>) -> Result<u32, RnicError>,
    ) -> Result<u32, RnicError> {
        let key = post(fresh).inspect_err(|_| dealloc(fresh))?;
        self.replace(Some(Bound { mw: fresh, owner }), dealloc);
        Ok(key)
    }

    fn replace(&mut self, next: Option<Bound>, dealloc: impl Fn(NonNull<ibv_mw>)) {
        if let Some(old) = std::mem::replace(&mut self.0, next) {
            dealloc(old.mw);
        }
    }

    fn on_qp_gone(&mut self, qp: QpToken, dealloc: impl Fn(NonNull<ibv_mw>)) {
        if self.0.as_ref().is_some_and(|it| it.owner == Some(qp)) {
            self.replace(None, dealloc);
        }
    }
}

fn dealloc(mw: NonNull<ibv_mw>) {
    // SAFETY: made by `alloc`, and forgotten by the caller.
    if let Err(why) = unsafe { verbs_dl::dealloc_mw(mw.as_ptr()) } {
        tracing::warn!(%why, "the device keeps a memory window");
    }
}

/// What a bind says to the device.
pub(crate) fn bind_info(mr: &Mr, bind: &BindMw<'_, IbRnic>) -> ibv_mw_bind_info {
    let mut flags = access_flags(bind.access) & !IBV_ACCESS_LOCAL_WRITE;
    if bind.zero_based {
        flags |= IBV_ACCESS_ZERO_BASED;
    }
    ibv_mw_bind_info {
        mr: mr.hw(),
        addr: bind.range.addr,
        length: u64::from(bind.range.len),
        mw_access_flags: flags,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Stands for a window, and nobody reads it.
    fn window(number: usize) -> NonNull<ibv_mw> {
        NonNull::without_provenance((number * 64).try_into().unwrap())
    }

    #[test]
    fn a_bind_gives_the_old_window_back_and_a_failed_one_the_fresh() {
        let back = RefCell::new(Vec::new());
        let dealloc = |mw| back.borrow_mut().push(mw);
        let mut hw = Hw::default();
        let full = || Err(RnicError::NoResources(Resource::WorkRequest));
        assert!(hw.bind(window(1), None, dealloc, |_| full()).is_err());
        assert_eq!((hw.0.is_none(), back.take()), (true, vec![window(1)]));
        assert_eq!(hw.bind(window(2), None, dealloc, |_| Ok(7)).unwrap(), 7);
        assert!(hw.bind(window(3), None, dealloc, |_| full()).is_err());
        assert_eq!(hw.0.as_ref().map(|it| it.mw), Some(window(2)));
        assert_eq!(back.take(), [window(3)]);
        hw.bind(window(4), None, dealloc, |_| Ok(8)).unwrap();
        assert_eq!(back.take(), [window(2)]);
        hw.replace(None, dealloc);
        hw.replace(None, dealloc);
        assert_eq!(back.take(), [window(4)], "and once");
    }

    #[test]
    fn only_the_queue_pair_of_the_last_bind_takes_a_window_along() {
        let back = RefCell::new(Vec::new());
        let dealloc = |mw| back.borrow_mut().push(mw);
        let (first, second) = (QpToken(1), QpToken(2));
        let mut hw = Hw::default();
        hw.bind(window(1), Some(first), dealloc, |_| Ok(1)).unwrap();
        hw.bind(window(2), Some(second), dealloc, |_| Ok(2))
            .unwrap();
        assert_eq!(back.take(), [window(1)]);
        hw.on_qp_gone(first, dealloc);
        assert_eq!(back.take(), [], "bound on another meanwhile");
        hw.on_qp_gone(second, dealloc);
        assert_eq!((hw.0.is_none(), back.take()), (true, vec![window(2)]));
        hw.bind(window(3), None, dealloc, |_| Ok(3)).unwrap();
        hw.on_qp_gone(first, dealloc);
        assert_eq!(back.take(), [], "everybody's");
    }
}
