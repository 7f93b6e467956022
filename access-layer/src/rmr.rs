//! Remote memory region: a window that is bound to part of a region (DAT 2.0 section 6.9.3).

mod binding;

use std::sync::{Arc, Mutex, MutexGuard};

use dat_abi::*;
use host::locks::IgnorePoison as _;

use self::binding::Binding;
use crate::ep::{Ep, check_flags};
use crate::error::{DatError, DatResult};
use crate::handle::{Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia, NewBind};
use crate::lmr::{KNOWN_PRIVILEGES, Lmr, access_of};
use crate::pz::Pz;
use crate::rnic::{BindMw, Rnic, Sge};
use crate::users::User;

/// A remote memory region.
pub struct Rmr<R: Rnic> {
    mw: R::Mw,
    binding: Mutex<Binding<Bound>>,
    /// Held from the post of a bind to the record of its binding, so that `binding` is that of the
    /// bind that was posted last. No upcall takes this lock.
    posting: Mutex<()>,
    handle: Handle,
    scope: DatRmrScope,
    pz: Arc<Pz<R>>,
    _pz_use: User,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Rmr<R> { handle, binding });

/// The binding of a window since its last bind was posted.
#[derive(Debug)]
struct Bound {
    triplet: DatLmrTriplet,
    privileges: DatMemPrivFlags,
    va_type: DatVaType,
    rmr_context: DatRmrContext,
    /// Prevents the region from being freed.
    _lmr: User,
}

/// Arguments of `dat_rmr_bind`.
#[derive(Debug, Clone, Copy)]
pub struct BindArgs {
    /// Part of the region; length 0 unbinds.
    pub triplet: DatLmrTriplet,
    /// `DAT_MEM_PRIV_*`.
    pub privileges: DatMemPrivFlags,
    /// Type of the peer's addresses: virtual or zero-based.
    pub va_type: DatVaType,
    /// Value that the event returns.
    pub cookie: u64,
    /// `DAT_COMPLETION_*`.
    pub flags: DatCompletionFlags,
}

impl<R: Rnic> Object for Rmr<R> {
    const KIND: Kind = Kind::Rmr;
}

impl<R: Rnic> Rmr<R> {
    /// Implements `dat_rmr_create`: the peer of any endpoint of the zone may use the bound memory.
    pub fn create(pz: &Pinned<Pz<R>>) -> DatResult<Handle> {
        Self::create_with(pz, DAT_RMR_SCOPE_PZ)
    }

    /// Implements `dat_rmr_create_for_ep`: only the peer of the endpoint that posted the bind may
    /// use the window.
    pub fn create_for_ep(pz: &Pinned<Pz<R>>) -> DatResult<Handle> {
        Self::create_with(pz, DAT_RMR_SCOPE_EP)
    }

    fn create_with(pz: &Pinned<Pz<R>>, scope: DatRmrScope) -> DatResult<Handle> {
        let ia = pz.ia();
        if ia.attr().mw_max == 0 {
            return Err(DatError::not_supported());
        }
        let pz_use = pz.add_user()?;
        let reservation = ia.reserve()?;
        let rmr = Arc::new(Self {
            mw: ia.rnic().create_mw(pz.rnic_pd())?,
            binding: Mutex::new(Binding::Unbound),
            posting: Mutex::default(),
            handle: reservation.handle(),
            scope,
            pz: pz.to_arc(),
            _pz_use: pz_use,
            ia: ia.clone(),
        });
        ia.install(reservation, rmr)
    }

    /// Implements `dat_rmr_bind`. Returns the context, which is valid once the bind has completed.
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
        let is_suppressed = args.flags & DAT_COMPLETION_SUPPRESS_FLAG != 0;
        let bind_id = self.ia.binds().begin(NewBind {
            rmr: self.handle,
            ep: ep.handle(),
            cookie: args.cookie,
            silent_max: is_suppressed.then(|| ep.completions_max()),
        })?;
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
            key: None,
            is_first: false,
            qp_only: self.scope == DAT_RMR_SCOPE_EP,
            completion: !is_suppressed,
            signalled: args.flags & DAT_COMPLETION_UNSIGNALLED_FLAG == 0,
            fence: args.flags & DAT_COMPLETION_BARRIER_FENCE_FLAG != 0,
        };
        let posting = self.posting.lock().ignore_poison();
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
        drop(posting);
        drop(former);
        Ok(rmr_context)
    }

    /// Checks that the region contains the part to bind and belongs to the same zone. Returns
    /// `None` for an unbind.
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
        lmr.add_user().map(Some)
    }

    /// Implements `dat_rmr_query`.
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

    /// Implements `dat_rmr_free`. The window is destroyed, and so unbound, when this returns, even
    /// if calls of other threads use the handle meanwhile. The unread completions of its binds are
    /// still delivered, with the former handle of the window.
    pub fn free(this: Pinned<Self>) -> DatResult {
        Self::abandon(&this);
        this.await_drop();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Binding<Bound>> {
        self.binding.lock().ignore_poison()
    }
}

impl<R: Rnic> Child for Rmr<R> {
    fn on_retired(this: &Pinned<Self>) {
        let bound = this.lock().on_free();
        drop(bound);
        this.ia.disown(Kind::Rmr, this.handle);
    }
}

#[cfg(test)]
mod tests;
