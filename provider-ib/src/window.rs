//! Memory windows.
//!
//! A window that every queue pair of a domain may use is of verbs' type 1, one for a single queue
//! pair of type 2B.
//!
//! A window of type 2 has to be free when it is bound. Instead of freeing it by a work request of
//! its own, a bind takes a fresh window from the device and gives the old one back: the peer may
//! have invalidated it meanwhile, and rxe (Linux 6.1) does not survive the invalidation of a free
//! window.
//!
//! A window of type 1 is bound and unbound in its place among the requests, behind binds that are
//! not done. An unbind that the end of a connection flushes would leave the window open over a
//! region that the consumer may free. So an unbound window is given back at the end of the
//! connection over which it was, and at once where there is none any more.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access_layer::rnic::{BindMw, QpToken, Resource, RnicError};
use verbs_dl::types::*;

use crate::memory::{Mr, Pd, access_flags, of};
use crate::qp::{Lifecycle, Qp};
use crate::rnic::IbRnic;

/// A memory window.
#[derive(Debug)]
pub(crate) struct Mw {
    pd: Arc<Pd>,
    hw: Mutex<Hw>,
}

/// What the device has of a window.
#[derive(Debug, Default, PartialEq, Eq)]
enum Hw {
    /// Nothing yet, or nothing any more.
    #[default]
    None,
    /// Of type 1, with the region that it is bound to. Null when it is bound to none: the region of
    /// an unbind may be gone by the next.
    Shared {
        mw: NonNull<ibv_mw>,
        region: *mut ibv_mr,
    },
    /// Of type 2B, bound on this queue pair.
    Own { mw: NonNull<ibv_mw>, owner: QpToken },
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
        match (&mut *hw, mr) {
            (Hw::Shared { .. }, _) => self.bind_shared(&mut hw, qp, mr, bind),
            (_, Some(_)) if !bind.qp_only => self.bind_shared(&mut hw, qp, mr, bind),
            (_, None) => {
                qp.post_bind_nothing(bind)?;
                hw.replace(Hw::None, dealloc);
                Ok(0)
            }
            (_, Some(mr)) => {
                let fresh = self.alloc(IBV_MW_TYPE_2)?;
                let key = qp.post_bind_own(fresh.as_ptr(), mr, bind);
                let key = key.inspect_err(|_| dealloc(fresh))?;
                let (mw, owner) = (fresh, qp.token);
                hw.replace(Hw::Own { mw, owner }, dealloc);
                qp.holds_window(self);
                Ok(key)
            }
        }
    }

    fn bind_shared(
        self: &Arc<Self>,
        hw: &mut Hw,
        qp: &Arc<Qp>,
        mr: Option<&Mr>,
        bind: &BindMw<'_, IbRnic>,
    ) -> Result<u32, RnicError> {
        if bind.zero_based {
            return Err(RnicError::NotSupported(
                "zero-based windows of a whole domain",
            ));
        }
        let is_fresh = !matches!(hw, Hw::Shared { .. });
        if is_fresh {
            let (mw, region) = (self.alloc(IBV_MW_TYPE_1)?, ptr::null_mut());
            hw.replace(Hw::Shared { mw, region }, dealloc);
        }
        let Hw::Shared { mw, region } = hw else {
            return Err(RnicError::InvalidState("a window of one queue pair"));
        };
        let mw = *mw;
        let key = rebind(region, mr.map(Mr::hw), |region| match region {
            Some(region) => qp.post_bind_shared(mw.as_ptr(), region.as_ptr(), bind),
            None => {
                qp.post_bind_nothing(bind)?;
                // SAFETY: alive as long as `hw` has it, whose lock is held.
                Ok(unsafe { mw.as_ref() }.rkey)
            }
        });
        // The end of the connection looks for windows after it has changed the state, so it finds
        // this one if the state is still the old one here.
        if key.is_ok() && mr.is_none() {
            qp.holds_window(self);
        }
        // What kind of window it is, the first bind decides that is posted.
        let is_refused = is_fresh && key.is_err();
        let is_flushed = key.is_ok() && qp.lifecycle() != Lifecycle::Connected;
        if is_refused || is_flushed {
            hw.replace(Hw::None, dealloc);
        }
        key
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

    /// The connection of a queue pair ends on which the window was unbound: whether the device came
    /// to the unbind does not show.
    pub(crate) fn on_qp_end(&self) {
        self.lock().on_qp_end(dealloc);
    }

    fn lock(&self) -> MutexGuard<'_, Hw> {
        self.hw.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        self.lock().replace(Hw::None, dealloc);
    }
}

impl Hw {
    fn replace(&mut self, next: Self, dealloc: impl Fn(NonNull<ibv_mw>)) {
        match std::mem::replace(self, next) {
            Self::None => {}
            Self::Shared { mw, .. } | Self::Own { mw, .. } => dealloc(mw),
        }
    }

    fn on_qp_gone(&mut self, qp: QpToken, dealloc: impl Fn(NonNull<ibv_mw>)) {
        if matches!(self, Self::Own { owner, .. } if *owner == qp) {
            self.replace(Self::None, dealloc);
        }
    }

    fn on_qp_end(&mut self, dealloc: impl Fn(NonNull<ibv_mw>)) {
        if matches!(self, Self::Shared { region, .. } if region.is_null()) {
            self.replace(Self::None, dealloc);
        }
    }
}

/// Posts a bind to the region `next`, or with `None` an unbind, by the region that it is to name:
/// an unbind names the one that the window is bound to, because drivers read its key before they
/// look at the length. `None` there: the window is bound to none.
fn rebind(
    bound: &mut *mut ibv_mr,
    next: Option<*mut ibv_mr>,
    post: impl FnOnce(Option<NonNull<ibv_mr>>) -> Result<u32, RnicError>,
) -> Result<u32, RnicError> {
    let key = post(NonNull::new(next.unwrap_or(*bound)))?;
    *bound = next.unwrap_or(ptr::null_mut());
    Ok(key)
}

fn dealloc(mw: NonNull<ibv_mw>) {
    // SAFETY: made by `alloc`, and forgotten by the caller.
    if let Err(why) = unsafe { verbs_dl::dealloc_mw(mw.as_ptr()) } {
        tracing::warn!(%why, "the device keeps a memory window");
    }
}

/// What a bind says to the device.
pub(crate) fn bind_info(region: *mut ibv_mr, bind: &BindMw<'_, IbRnic>) -> ibv_mw_bind_info {
    let mut flags = access_flags(bind.access) & !IBV_ACCESS_LOCAL_WRITE;
    if bind.zero_based {
        flags |= IBV_ACCESS_ZERO_BASED;
    }
    let empty = bind.range.len == 0;
    ibv_mw_bind_info {
        mr: region,
        addr: if empty { 0 } else { bind.range.addr },
        length: u64::from(bind.range.len),
        mw_access_flags: if empty { 0 } else { flags },
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn an_unbind_names_the_bound_region_and_the_next_one_none() {
        // They stand for regions, and nobody reads them.
        let [first, second] = [64, 128].map(ptr::without_provenance_mut::<ibv_mr>);
        let mut bound = ptr::null_mut();
        let mut post = |next, fails: bool| {
            let mut named = None;
            let outcome = rebind(&mut bound, next, |region| {
                named = Some(region.map_or(ptr::null_mut(), NonNull::as_ptr));
                match fails {
                    true => Err(RnicError::NoResources(Resource::WorkRequest)),
                    false => Ok(1),
                }
            });
            assert_eq!(outcome.is_err(), fails);
            (named.unwrap(), bound)
        };
        let null = ptr::null_mut();
        assert_eq!(post(None, false), (null, null), "nothing is bound");
        assert_eq!(post(Some(first), true), (first, null), "not posted");
        assert_eq!(post(Some(first), false), (first, first));
        assert_eq!(post(Some(second), true), (second, first), "not posted");
        assert_eq!(post(None, true), (first, first), "not posted");
        assert_eq!(post(None, false), (first, null));
        assert_eq!(post(None, false), (null, null), "the region may be gone");
    }

    /// Stands for a window, and nobody reads it.
    fn window(number: usize) -> NonNull<ibv_mw> {
        NonNull::without_provenance((number * 64).try_into().unwrap())
    }

    #[test]
    fn only_the_queue_pair_of_the_last_bind_takes_a_window_along() {
        let back = RefCell::new(Vec::new());
        let dealloc = |mw| back.borrow_mut().push(mw);
        let (first, second) = (QpToken(1), QpToken(2));
        let own = |number, owner| Hw::Own {
            mw: window(number),
            owner,
        };
        let mut hw = own(1, first);
        hw.replace(own(2, second), dealloc);
        assert_eq!(back.take(), [window(1)]);
        hw.on_qp_gone(first, dealloc);
        hw.on_qp_end(dealloc);
        assert_eq!(back.take(), [], "bound on another meanwhile");
        hw.on_qp_gone(second, dealloc);
        assert_eq!((hw, back.take()), (Hw::None, vec![window(2)]));
    }

    #[test]
    fn an_unbound_window_goes_with_the_connection_and_a_bound_one_stays() {
        let back = RefCell::new(Vec::new());
        let dealloc = |mw| back.borrow_mut().push(mw);
        let shared = |region| Hw::Shared {
            mw: window(1),
            region,
        };
        let mut hw = shared(ptr::without_provenance_mut(64));
        hw.on_qp_end(dealloc);
        hw.on_qp_gone(QpToken(1), dealloc);
        assert_eq!(back.take(), [], "everybody's");
        hw = shared(ptr::null_mut());
        hw.on_qp_end(dealloc);
        assert_eq!((hw, back.take()), (Hw::None, vec![window(1)]));
    }
}
