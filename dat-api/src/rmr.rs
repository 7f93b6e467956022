//! Remote memory regions: windows onto local memory that the peer may use (DAT 2.0 section 6.9.3).

use std::sync::{Arc, Mutex, Weak};

use dat_abi::*;

use crate::connection::{Bindings, Ep, Evd, EvdInner, Route};
use crate::error::{Error, Result, check};
use crate::handle::{Handle, RmrId};
use crate::leak::keep_for_ever;
use crate::lmr::{Privileges, RemoteRegion};
use crate::lock::lock;
use crate::pz::Pz;
use crate::region::Region;

/// A memory window. Clones share the window; dropping the last clone unbinds and frees it.
#[derive(Clone)]
pub struct Rmr {
    inner: Arc<RmrInner>,
}

struct RmrInner {
    handle: Handle,
    pz: Pz,
    bindings: Arc<Mutex<Bindings>>,
    /// The dispatchers that deliver the completions of binds, without duplicates.
    evds: Mutex<Vec<Weak<EvdInner>>>,
}

impl Rmr {
    /// Creates an unbound window for the peers of all endpoints of the zone.
    pub fn create(pz: &Pz) -> Result<Self> {
        Self::create_with(pz, "dat_rmr_create", pz.ia().library().dat_rmr_create)
    }

    /// Creates an unbound window that serves only the peer of the endpoint through which it is
    /// bound. OFA's registry library does not export this call.
    pub fn create_for_ep(pz: &Pz) -> Result<Self> {
        const CALL: &str = "dat_rmr_create_for_ep";
        let create = pz.ia().library().dat_rmr_create_for_ep;
        Self::create_with(pz, CALL, create.ok_or(Error::Missing { call: CALL })?)
    }

    fn create_with(pz: &Pz, call: &'static str, create: DatRmrCreateFunc) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the zone is live and the out-pointer writable.
        check(call, unsafe { create(pz.as_raw(), &mut handle) })?;
        Ok(Self {
            inner: Arc::new(RmrInner {
                handle: Handle(handle),
                pz: pz.clone(),
                bindings: Arc::default(),
                evds: Mutex::default(),
            }),
        })
    }

    /// Binds the window to a part of `region` through `ep`; the bind's completion is delivered on
    /// the endpoint's request dispatcher. The peer can use the returned description when the bind
    /// has completed.
    pub fn bind(
        &self,
        ep: &Ep,
        region: &Region,
        offset: usize,
        len: usize,
        privileges: Privileges,
        cookie: u64,
    ) -> Result<RemoteRegion> {
        let triplet = region.lmr().triplet(offset, len)?;
        let context = self.post_bind(ep, Some(region), &triplet, privileges, cookie)?;
        Ok(RemoteRegion {
            addr: triplet.virtual_address,
            len: triplet.segment_length,
            context,
        })
    }

    /// Unbinds the window. The peer loses access when the unbind has completed.
    pub fn unbind(&self, ep: &Ep, cookie: u64) -> Result<()> {
        let nothing = DatLmrTriplet::zeroed();
        self.post_bind(ep, None, &nothing, Privileges::NONE, cookie)
            .map(|_| ())
    }

    fn post_bind(
        &self,
        ep: &Ep,
        region: Option<&Region>,
        triplet: &DatLmrTriplet,
        privileges: Privileges,
        cookie: u64,
    ) -> Result<DatRmrContext> {
        let lmr = region.map_or(DAT_HANDLE_NULL, |region| region.lmr().as_raw());
        // The lock is held during the call, because another thread may read the event before the
        // call returns.
        let mut bindings = lock(&self.inner.bindings);
        self.inner.expect_events(ep.request_evd());
        bindings.on_post(&ep.inner, region.cloned());
        let mut context = 0;
        // SAFETY: window and endpoint are live, the LMR is live or null, the triplet is readable
        // and the out-pointer writable for the call.
        let code = unsafe {
            (self.inner.pz.ia().library().dat_rmr_bind)(
                self.inner.handle.0,
                lmr,
                triplet,
                privileges.bits(),
                DAT_VA_TYPE_VA,
                ep.as_raw(),
                DatContext::from_u64(cookie),
                DAT_COMPLETION_DEFAULT_FLAG,
                &mut context,
            )
        };
        if let Err(error) = check("dat_rmr_bind", code) {
            bindings.on_refused();
            return Err(error.into());
        }
        Ok(context)
    }

    /// The identity in [`BindCompletion::rmr`](crate::BindCompletion::rmr).
    #[must_use]
    pub fn id(&self) -> RmrId {
        RmrId::of(self.inner.handle.0)
    }

    /// The handle, for calls through [`Library`](crate::Library). Valid while `self` or a clone
    /// lives.
    #[must_use]
    pub fn as_raw(&self) -> DatRmrHandle {
        self.inner.handle.0
    }
}

impl RmrInner {
    /// Makes `evd` notify the bindings of completed binds of this window.
    fn expect_events(&self, evd: &Evd) {
        let mut evds = lock(&self.evds);
        evds.retain(|known| known.strong_count() > 0);
        let inner = Arc::downgrade(&evd.inner);
        if evds.iter().any(|known| known.ptr_eq(&inner)) {
            return;
        }
        let route = Route::Bindings(Arc::downgrade(&self.bindings));
        evd.routes().insert(self.handle.key(), route);
        evds.push(inner);
    }
}

impl Drop for RmrInner {
    fn drop(&mut self) {
        let key = self.handle.key();
        for inner in lock(&self.evds).iter().filter_map(Weak::upgrade) {
            Evd { inner }.routes().remove(&key);
        }
        // SAFETY: the handle is live and used for the last time; the call unbinds a bound window.
        let code = unsafe { (self.pz.ia().library().dat_rmr_free)(self.handle.0) };
        let freed = check("dat_rmr_free", code);
        if freed.is_err() {
            std::mem::forget(std::mem::take(&mut *lock(&self.bindings)));
        }
        keep_for_ever(freed, &self.pz);
    }
}

opaque_debug!(Rmr, |it| [id: it.id()]);
