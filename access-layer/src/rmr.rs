//! Remote memory region: a window that is bound to part of a region (DAT 2.0 section 6.9.3).

mod binding;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_abi::*;
use slab::Slab;

use self::binding::Binding;
use crate::ep::{Ep, check_flags};
use crate::error::{DatError, DatResult};
use crate::handle::{Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::lmr::{KNOWN_PRIVILEGES, Lmr, access_of};
use crate::pz::Pz;
use crate::rnic::{BindMw, Rnic, Sge};
use crate::users::User;

/// Remote memory region.
pub struct Rmr<R: Rnic> {
    mw: R::Mw,
    binding: Mutex<Binding<Bound>>,
    handle: Handle,
    scope: DatRmrScope,
    pz: Arc<Pz<R>>,
    _pz_use: User,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Rmr { handle, binding });

/// What a window is bound to since its last bind was posted.
#[derive(Debug)]
struct Bound {
    triplet: DatLmrTriplet,
    privileges: DatMemPrivFlags,
    va_type: DatVaType,
    rmr_context: DatRmrContext,
    /// Keeps the region from being freed.
    _lmr: User,
}

/// A bind as `dat_rmr_bind` wants it.
#[derive(Debug, Clone, Copy)]
pub struct BindArgs {
    /// Part of the region; length 0 unbinds.
    pub triplet: DatLmrTriplet,
    /// `DAT_MEM_PRIV_*`.
    pub privileges: DatMemPrivFlags,
    /// How the peer's addresses count.
    pub va_type: DatVaType,
    /// Comes back in the event.
    pub cookie: u64,
    /// `DAT_COMPLETION_*`.
    pub flags: DatCompletionFlags,
}

impl<R: Rnic> Object for Rmr<R> {
    const KIND: Kind = Kind::Rmr;
}

impl<R: Rnic> Rmr<R> {
    /// `dat_rmr_create`: whoever is connected to an endpoint of the zone may use what it is bound
    /// to.
    pub fn create(pz: &Pinned<Pz<R>>) -> DatResult<Handle> {
        Self::create_with(pz, DAT_RMR_SCOPE_PZ)
    }

    /// `dat_rmr_create_for_ep`: only the peer of the endpoint on which it was bound may use it.
    pub fn create_for_ep(pz: &Pinned<Pz<R>>) -> DatResult<Handle> {
        Self::create_with(pz, DAT_RMR_SCOPE_EP)
    }

    fn create_with(pz: &Pinned<Pz<R>>, scope: DatRmrScope) -> DatResult<Handle> {
        let ia = pz.ia();
        if ia.attr().mw_max == 0 {
            return Err(DatError::not_supported());
        }
        let pz_use = pz.use_it()?;
        let reservation = ia.reserve()?;
        let rmr = Arc::new(Self {
            mw: ia.rnic().create_mw(pz.rnic_pd())?,
            binding: Mutex::new(Binding::Unbound),
            handle: reservation.handle(),
            scope,
            pz: pz.to_arc(),
            _pz_use: pz_use,
            ia: ia.clone(),
        });
        ia.install(reservation, rmr)
    }

    /// `dat_rmr_bind`. Returns the context that is good once the bind has completed.
    pub fn bind(
        &self,
        lmr: Option<&Pinned<Lmr<R>>>,
        ep: &Pinned<Ep<R>>,
        args: &BindArgs,
    ) -> DatResult<DatRmrContext> {
        if ep.pz() != Some(self.pz.handle()) {
            return Err(DatError::invalid_arg(4));
        }
        let lmr_use = self.check_region(lmr, args)?;
        check_flags(args.flags, 8)?;
        let unbind = args.triplet.segment_length == 0;
        let bind_id = self.ia.binds().begin(self.handle, args.cookie)?;
        let request = BindMw {
            wr_id: bind_id,
            mr: lmr.filter(|_| !unbind).map(|lmr| lmr.rnic_mr()),
            range: Sge {
                addr: args.triplet.virtual_address,
                len: args.triplet.segment_length,
                lkey: args.triplet.lmr_context,
            },
            access: access_of(args.privileges),
            zero_based: args.va_type == DAT_VA_TYPE_ZB,
            qp_only: self.scope == DAT_RMR_SCOPE_EP,
            completion: args.flags & DAT_COMPLETION_SUPPRESS_FLAG == 0,
            signalled: args.flags & DAT_COMPLETION_UNSIGNALLED_FLAG == 0,
            fence: args.flags & DAT_COMPLETION_BARRIER_FENCE_FLAG != 0,
        };
        let rmr_context = ep
            .bind_mw(&self.mw, &request)
            .inspect_err(|_| self.ia.binds().cancel(bind_id))?;
        let bound = lmr_use.map(|lmr| Bound {
            triplet: args.triplet,
            privileges: args.privileges,
            va_type: args.va_type,
            rmr_context,
            _lmr: lmr,
        });
        let former = self.lock().on_bind(bound);
        drop(former);
        Ok(rmr_context)
    }

    /// The region has to contain what is bound, and to be of the same zone. `None` when unbinding.
    fn check_region(
        &self,
        lmr: Option<&Pinned<Lmr<R>>>,
        args: &BindArgs,
    ) -> DatResult<Option<User>> {
        if args.triplet.segment_length == 0 {
            return Ok(None);
        }
        let lmr = lmr.ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_LMR))?;
        if args.privileges & !KNOWN_PRIVILEGES != 0 {
            return Err(DatError::invalid_arg(4));
        }
        if args.va_type != DAT_VA_TYPE_VA && args.va_type != DAT_VA_TYPE_ZB {
            return Err(DatError::invalid_arg(5));
        }
        if !lmr.contains(args.triplet.virtual_address, args.triplet.segment_length) {
            return Err(DatError::invalid_arg(2));
        }
        if lmr.pz() != self.pz.handle() {
            return Err(DatError::invalid_arg(4));
        }
        lmr.use_it().map(Some)
    }

    /// `dat_rmr_query`.
    pub fn query(&self, mask: DatRmrParamMask) -> DatResult<DatRmrParam> {
        let binding = self.lock();
        let mut param = DatRmrParam::zeroed();
        param.ia_handle = self.ia.consumer_handle();
        param.pz_handle = self.pz.handle().as_dat();
        param.rmr_scope = self.scope;
        match binding.bound() {
            Some(bound) => {
                param.lmr_triplet = bound.triplet;
                param.mem_priv = bound.privileges;
                param.va_type = bound.va_type;
                param.rmr_context = bound.rmr_context;
            }
            None if mask & DAT_RMR_FIELD_LMR_TRIPLET != 0 => return Err(DatError::invalid_arg(2)),
            None => {}
        }
        Ok(param)
    }

    /// `dat_rmr_free`. Destroying the window unbinds it.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        Self::abandon(this);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Binding<Bound>> {
        self.binding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Rnic> Child for Rmr<R> {
    fn abandon(this: &Pinned<Self>) {
        if this.retire() {
            let bound = this.lock().on_free();
            drop(bound);
            this.ia.binds().forget(this.handle);
            this.ia.disown(Kind::Rmr, this.handle);
        }
    }
}

/// Binds that have not completed: their work request ids, because an event has to name the window
/// as well as the cookie, and a completion has room for one of the two.
#[derive(Debug, Default)]
pub(crate) struct Binds(Mutex<Slab<PendingBind>>);

#[derive(Debug, Clone, Copy)]
struct PendingBind {
    rmr: Handle,
    cookie: u64,
}

/// What the event of a bind says besides its status.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FinishedBind {
    /// The window, or null when it is unknown.
    pub(crate) rmr: DatRmrHandle,
    /// The consumer's cookie.
    pub(crate) cookie: u64,
}

/// Binds at once of one IA. A suppressed bind that succeeds has no completion that would end its
/// entry; it stays until its window is freed.
const BINDS_MAX: usize = 1 << 20;

impl Binds {
    fn begin(&self, rmr: Handle, cookie: u64) -> DatResult<u64> {
        let mut pending = self.lock();
        if pending.len() >= BINDS_MAX {
            return Err(DatError::no_resources(DAT_RESOURCE_MEMORY));
        }
        Ok(pending.insert(PendingBind { rmr, cookie }) as u64)
    }

    fn cancel(&self, bind_id: u64) {
        self.take(bind_id);
    }

    fn forget(&self, rmr: Handle) {
        self.lock().retain(|_, bind| bind.rmr != rmr);
    }

    pub(crate) fn finish(&self, bind_id: u64) -> FinishedBind {
        match self.take(bind_id) {
            Some(bind) => FinishedBind {
                rmr: bind.rmr.as_dat(),
                cookie: bind.cookie,
            },
            None => FinishedBind {
                rmr: DAT_HANDLE_NULL,
                cookie: 0,
            },
        }
    }

    fn take(&self, bind_id: u64) -> Option<PendingBind> {
        usize::try_from(bind_id)
            .ok()
            .and_then(|key| self.lock().try_remove(key))
    }

    fn lock(&self) -> MutexGuard<'_, Slab<PendingBind>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
