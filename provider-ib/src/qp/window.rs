//! Memory windows.
//!
//! A window that every queue pair of a domain may use is of verbs' type 1. A window for a single
//! queue pair is of type 2B.
//!
//! A window of type 2 must be free when it is bound. A bind does not free the old window by a work
//! request. It allocates a fresh window from the device and deallocates the old one, for two
//! reasons: the peer may have invalidated the old window meanwhile, and rxe (Linux 6.1) crashes
//! when a free window is invalidated.
//!
//! A window of type 1 is bound and unbound in order with the other requests, after unfinished
//! binds. A bind or unbind that is flushed by the end of a connection would leave the window open
//! as before, over a region that the consumer may free, under a key that the library has forgotten.
//! So the end of the connection deallocates an unbound window, and a window whose last request the
//! device has not done. Without a connection the window is deallocated at once.
//!
//! A window of either type is deallocated after the requests that name it: a bind that finds no
//! window fails, and breaks the connection.

use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard};

use host::locks::IgnorePoison as _;
use rnic::{BindMw, QpToken, Resource, Rnic, RnicError};
use verbs_dl::types::*;

use super::post::Bound;
use super::{Lifecycle, Qp, Qps};
use crate::device::of;
use crate::memory::{Mr, Pd};

/// A memory window.
#[derive(Debug)]
pub struct Mw {
    pd: Arc<Pd>,
    qps: Arc<Qps>,
    hw: Mutex<Hw>,
}

/// The state of a window in the device.
#[derive(Debug, Default, PartialEq, Eq)]
enum Hw {
    /// Not allocated yet, or deallocated.
    #[default]
    None,
    /// A window of type 1. `region` is the region to which the window is bound once its last
    /// request is done. A null region means that the window is unbound: the region of an unbind may
    /// be freed before the next bind.
    Shared {
        mw: NonNull<ibv_mw>,
        region: *mut ibv_mr,
        last: Option<Last>,
    },
    /// A window of type 2B, bound on the queue pair `owner`.
    Own {
        mw: NonNull<ibv_mw>,
        owner: QpToken,
        last: Option<Last>,
    },
}

/// The last request that names a window, if it was posted to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Last {
    qp: QpToken,
    /// The request's number in the send queue.
    sequence: u32,
}

/// A window that is not needed any more. Its drop deallocates it.
struct Spent {
    mw: NonNull<ibv_mw>,
    pd: Arc<Pd>,
}

// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Hw {}
// SAFETY: verbs objects may be used by any thread.
unsafe impl Send for Spent {}

impl Mw {
    /// Creates a window that is not bound. The first bind allocates it from the device, so that
    /// bind reports the device's limit.
    pub(crate) fn new(qps: &Arc<Qps>, pd: &Arc<Pd>) -> Result<Arc<Self>, RnicError> {
        if pd.shared.device.attr.max_mw <= 0 {
            return Err(RnicError::NotSupported("memory windows on this device"));
        }
        Ok(Arc::new(Self {
            pd: pd.clone(),
            qps: qps.clone(),
            hw: Mutex::default(),
        }))
    }

    /// Posts a bind, or with length 0 an unbind, and returns the key that the window then has.
    ///
    /// `mr` is the region of `bind`.
    pub(crate) fn bind<R: Rnic>(
        self: &Arc<Self>,
        qp: &Arc<Qp>,
        mr: Option<&Mr>,
        bind: &BindMw<'_, R>,
    ) -> Result<u32, RnicError> {
        self.pd.retry_stuck_regions();
        let mr = mr.filter(|_| bind.range.len > 0);
        let mut hw = self.lock();
        match (&mut *hw, mr) {
            (Hw::Shared { .. }, _) => self.bind_shared(&mut hw, qp, mr, bind),
            (_, Some(_)) if !bind.qp_only => self.bind_shared(&mut hw, qp, mr, bind),
            (_, None) => {
                qp.post_bind_nothing(bind)?;
                hw.replace(Hw::None, |mw, last| self.deallocate(mw, last));
                Ok(0)
            }
            (_, Some(mr)) => {
                let fresh = self.alloc(IBV_MW_TYPE_2)?;
                let bound = qp.post_bind_own(fresh.as_ptr(), mr, bind);
                let bound = bound.inspect_err(|_| self.deallocate(fresh, None))?;
                let next = Hw::Own {
                    mw: fresh,
                    owner: qp.token,
                    last: Last::of(qp, bound),
                };
                hw.replace(next, |mw, last| self.deallocate(mw, last));
                qp.register_window(self);
                Ok(bound.rkey)
            }
        }
    }

    fn bind_shared<R: Rnic>(
        self: &Arc<Self>,
        hw: &mut Hw,
        qp: &Arc<Qp>,
        mr: Option<&Mr>,
        bind: &BindMw<'_, R>,
    ) -> Result<u32, RnicError> {
        if bind.zero_based {
            return Err(RnicError::NotSupported(
                "zero-based windows of a whole domain",
            ));
        }
        let is_fresh = !matches!(hw, Hw::Shared { .. });
        let deallocate = |mw, last| self.deallocate(mw, last);
        if is_fresh {
            let fresh = Hw::Shared {
                mw: self.alloc(IBV_MW_TYPE_1)?,
                region: ptr::null_mut(),
                last: None,
            };
            hw.replace(fresh, deallocate);
        }
        let Hw::Shared { mw, region, last } = hw else {
            return Err(RnicError::InvalidState("a window of one queue pair"));
        };
        let mw = *mw;
        let key = rebind(region, mr.map(Mr::hw), |region| match region {
            Some(region) => {
                let bound = qp.post_bind_shared(mw.as_ptr(), region.as_ptr(), bind)?;
                *last = Last::of(qp, bound).or(*last);
                Ok(bound.rkey)
            }
            None => {
                qp.post_bind_nothing(bind)?;
                // SAFETY: the window is alive as long as `hw` holds it, and the lock of `hw` is
                // held.
                Ok(unsafe { mw.as_ref() }.rkey)
            }
        });
        // The end of the connection changes the state first and then searches windows. So it finds
        // this window if the state here is still the old one.
        if key.is_ok() {
            qp.register_window(self);
        }
        // The first bind that is posted determines the type of the window.
        let is_refused = is_fresh && key.is_err();
        let is_flushed = key.is_ok() && qp.lifecycle() != Lifecycle::Connected;
        if is_refused || is_flushed {
            hw.replace(Hw::None, deallocate);
        }
        key
    }

    fn alloc(&self, kind: ibv_mw_type) -> Result<NonNull<ibv_mw>, RnicError> {
        // SAFETY: the domain is alive, because `self` holds it.
        let mw = unsafe { verbs_dl::alloc_mw(self.pd.hw(), kind) };
        let mw = mw.map_err(|why| of(why, Resource::MemoryRegion))?;
        NonNull::new(mw).ok_or(RnicError::NoResources(Resource::MemoryRegion))
    }

    /// Called when a queue pair on which the window was bound is destroyed. The device requires
    /// that the window is deallocated first, if it is still bound on that queue pair.
    pub(crate) fn on_qp_destroyed(&self, qp: QpToken) {
        let mut hw = self.lock();
        hw.on_qp_destroyed(qp, |mw, last| self.deallocate(mw, last));
    }

    /// Called when the connection of a queue pair has ended on which the window was bound or
    /// unbound. The device has reported the outcome of its requests by then.
    pub(crate) fn on_qp_end(&self, qp: &Qp) {
        let is_done = |last: Last| last.qp != qp.token || qp.has_bound(last.sequence);
        let mut hw = self.lock();
        hw.on_qp_end(is_done, |mw, last| self.deallocate(mw, last));
    }

    /// Deallocates a window once the device has completed the last request that names it.
    fn deallocate(&self, mw: NonNull<ibv_mw>, last: Option<Last>) {
        let spent = Spent {
            mw,
            pd: self.pd.clone(),
        };
        // A destroyed queue pair has flushed its requests already.
        let busy = last.and_then(|last| Some((self.qps.get(last.qp)?, last.sequence)));
        if let Some((qp, sequence)) = busy {
            qp.drop_after(sequence, Box::new(spent));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Hw> {
        self.hw.lock().ignore_poison()
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        let mut hw = self.lock();
        hw.replace(Hw::None, |mw, last| self.deallocate(mw, last));
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        // SAFETY: allocated by `Mw::alloc`; its owner passed the pointer to this value, so it is
        // deallocated once.
        if let Err(why) = unsafe { verbs_dl::dealloc_mw(self.mw.as_ptr()) } {
            tracing::warn!(%why, "the device keeps a memory window");
        }
        self.pd.retry_stuck_regions();
    }
}

impl Last {
    fn of(qp: &Qp, bound: Bound) -> Option<Self> {
        let qp = qp.token;
        bound.last.map(|sequence| Self { qp, sequence })
    }
}

impl Hw {
    fn replace(&mut self, next: Self, deallocate: impl Fn(NonNull<ibv_mw>, Option<Last>)) {
        match std::mem::replace(self, next) {
            Self::None => {}
            Self::Shared { mw, last, .. } | Self::Own { mw, last, .. } => deallocate(mw, last),
        }
    }

    fn on_qp_destroyed(&mut self, qp: QpToken, deallocate: impl Fn(NonNull<ibv_mw>, Option<Last>)) {
        if matches!(self, Self::Own { owner, .. } if *owner == qp) {
            self.replace(Self::None, deallocate);
        }
    }

    fn on_qp_end(
        &mut self,
        is_done: impl Fn(Last) -> bool,
        deallocate: impl Fn(NonNull<ibv_mw>, Option<Last>),
    ) {
        let Self::Shared { region, last, .. } = self else {
            return;
        };
        if region.is_null() || !last.is_none_or(is_done) {
            self.replace(Self::None, deallocate);
        }
    }
}

/// Posts a bind to the region `next`, or with `None` an unbind. `post` receives the region that the
/// request must name, or `None` if the window is bound to none. An unbind names the region to which
/// the window is bound, because drivers read its key before they check the length.
fn rebind(
    bound: &mut *mut ibv_mr,
    next: Option<*mut ibv_mr>,
    post: impl FnOnce(Option<NonNull<ibv_mr>>) -> Result<u32, RnicError>,
) -> Result<u32, RnicError> {
    let key = post(NonNull::new(next.unwrap_or(*bound)))?;
    *bound = next.unwrap_or(ptr::null_mut());
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn an_unbind_names_the_bound_region_and_the_next_one_none() {
        // The pointers represent regions and are not dereferenced.
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
        assert_eq!(post(None, false), (null, null), "the region may be freed");
    }

    /// A pointer that represents a window and is not dereferenced.
    fn window(number: usize) -> NonNull<ibv_mw> {
        NonNull::without_provenance((number * 64).try_into().unwrap())
    }

    /// The deallocated windows, each with the number of the request that it waits for.
    type Freed = RefCell<Vec<(NonNull<ibv_mw>, Option<u32>)>>;

    fn into(freed: &Freed) -> impl Fn(NonNull<ibv_mw>, Option<Last>) {
        |mw, last| {
            let sequence = last.map(|last| last.sequence);
            freed.borrow_mut().push((mw, sequence));
        }
    }

    const FIRST: QpToken = QpToken(1);
    const SECOND: QpToken = QpToken(2);

    fn own(number: usize, owner: QpToken, sequence: u32) -> Hw {
        Hw::Own {
            mw: window(number),
            owner,
            last: Some(Last {
                qp: owner,
                sequence,
            }),
        }
    }

    fn shared(region: usize, last: Option<Last>) -> Hw {
        Hw::Shared {
            mw: window(1),
            region: ptr::without_provenance_mut(region),
            last,
        }
    }

    #[test]
    fn only_the_queue_pair_of_the_last_bind_deallocates_a_window() {
        let freed = Freed::default();
        let mut hw = own(1, FIRST, 5);
        hw.replace(own(2, SECOND, 6), into(&freed));
        assert_eq!(freed.take(), [(window(1), Some(5))], "after its bind");
        hw.on_qp_destroyed(FIRST, into(&freed));
        hw.on_qp_end(|_| false, into(&freed));
        assert_eq!(freed.take(), [], "bound on another queue pair meanwhile");
        hw.on_qp_destroyed(SECOND, into(&freed));
        assert_eq!((hw, freed.take()), (Hw::None, vec![(window(2), Some(6))]));
    }

    #[test]
    fn an_unbound_window_ends_with_the_connection_and_a_bound_one_stays() {
        let freed = Freed::default();
        let last = Some(Last {
            qp: FIRST,
            sequence: 5,
        });
        let mut hw = shared(64, last);
        hw.on_qp_end(|_| true, into(&freed));
        hw.on_qp_destroyed(FIRST, into(&freed));
        assert_eq!(freed.take(), [], "a shared window");
        hw = shared(0, last);
        hw.on_qp_end(|_| true, into(&freed));
        assert_eq!((hw, freed.take()), (Hw::None, vec![(window(1), Some(5))]));
    }

    #[test]
    fn a_window_whose_rebind_was_flushed_ends_with_the_connection() {
        let freed = Freed::default();
        let last = Last {
            qp: FIRST,
            sequence: 5,
        };
        let mut hw = shared(64, Some(last));
        let ended = |qp| move |last: Last| last.qp != qp;
        hw.on_qp_end(ended(SECOND), into(&freed));
        assert_eq!(freed.take(), [], "the end is that of another queue pair");
        // The device has the window in its former state; the library has the key of the flushed
        // bind.
        hw.on_qp_end(ended(FIRST), into(&freed));
        assert_eq!((hw, freed.take()), (Hw::None, vec![(window(1), Some(5))]));
    }
}
