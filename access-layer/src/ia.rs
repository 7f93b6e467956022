//! Interface adapter: an open RNIC, its children and its asynchronous events.
//!
//! Owns the RNIC. The drop of the IA shuts the RNIC down. The IA is dropped after all children,
//! because children own the IA. DAT 2.0 section 6.2 (`dat_ia_*`).

mod binds;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use dat_abi::*;
use host::locks::IgnorePoison as _;

pub(crate) use self::binds::{Binds, NewBind};
use crate::attr::Attributes;
use crate::counters::{IaCounters, TrafficCounters};
use crate::error::{DatError, DatResult};
use crate::handle::{self, Handle, Kind, Object, Pinned, ProviderRef, Reservation};
use crate::registry;
use crate::rnic::{Rnic, RnicAttr};
use crate::users::User;

/// An object that its IA can end without a call of the consumer.
pub trait Child: Object {
    /// Releases the objects that this object uses, and removes this object from the IA. Called
    /// once, after the handle of this object was retired.
    fn on_retired(this: &Pinned<Self>)
    where
        Self: Sized;

    /// Ends the object in any state, without a notification. Returns false if another thread has
    /// ended the object.
    fn abandon(this: &Pinned<Self>) -> bool
    where
        Self: Sized,
    {
        let is_first = this.retire();
        if is_first {
            Self::on_retired(this);
        }
        is_first
    }
}

/// An interface adapter.
#[derive(Debug)]
pub struct Ia<R: Rnic> {
    handle: Handle,
    provider: ProviderRef,
    name: String,
    attributes: Attributes,
    children: Mutex<Children>,
    /// Stores the handle only, not an `Arc`, because the EVD owns the IA. The use prevents the
    /// consumer from freeing the EVD.
    async_evd: OnceLock<(Handle, User)>,
    binds: Binds,
    counters: IaCounters,
    traffic: TrafficCounters,
    rnic: OpaqueRnic<R>,
}

/// Implements `Debug` for the RNIC, which need not implement it.
struct OpaqueRnic<R>(R);

impl<R> std::fmt::Debug for OpaqueRnic<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rnic")
    }
}

#[derive(Debug, Default)]
struct Children {
    is_closing: bool,
    of_kind: [BTreeSet<Handle>; Kind::COUNT],
}

impl<R: Rnic> Object for Ia<R> {
    const KIND: Kind = Kind::Ia;
}

impl<R: Rnic> Ia<R> {
    /// Creates an open IA with the handle `handle`, without an asynchronous EVD.
    pub(crate) fn new(handle: Handle, provider: ProviderRef, name: &str, rnic: R) -> Self {
        Self {
            handle,
            provider,
            name: name.to_owned(),
            attributes: Attributes::new(name, rnic.attr()),
            children: Mutex::default(),
            async_evd: OnceLock::new(),
            binds: Binds::default(),
            counters: IaCounters::new(),
            traffic: TrafficCounters::default(),
            rnic: OpaqueRnic(rnic),
        }
    }

    /// Sets `evd` as the EVD of asynchronous events.
    pub(crate) fn set_async_evd(&self, evd: Handle, user: User) {
        let _ = self.async_evd.set((evd, user));
    }

    /// Returns the EVD of asynchronous events, if there is one.
    pub(crate) fn own_async_evd(&self) -> Option<Handle> {
        self.async_evd.get().map(|(handle, _)| *handle)
    }

    /// The RNIC.
    pub fn rnic(&self) -> &R {
        &self.rnic.0
    }

    /// Identity and limits of the RNIC.
    pub fn attr(&self) -> &RnicAttr {
        self.rnic().attr()
    }

    /// The handle that the registry library uses.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the handle that the consumer uses: the registry library's small integer, or null
    /// before the library has assigned one.
    pub fn consumer_handle(&self) -> DatIaHandle {
        registry::consumer_ia_handle(self.handle)
    }

    /// The provider table, whose address is the first word of every object.
    pub fn provider(&self) -> ProviderRef {
        self.provider
    }

    /// The name under which the IA was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address of the adapter, in memory that stays valid while the IA is open.
    pub fn local_address(&self) -> DatIaAddressPtr {
        self.attributes.address()
    }

    /// The complete `DAT_IA_ATTR`.
    pub fn ia_attr(&self) -> &DatIaAttr {
        self.attributes.ia()
    }

    /// The complete `DAT_PROVIDER_ATTR`.
    pub fn provider_attr(&self) -> &DatProviderAttr {
        self.attributes.provider()
    }

    /// Returns the asynchronous EVD as `dat_ia_query` reports it.
    pub fn async_evd(&self) -> DatEvdHandle {
        self.own_async_evd()
            .map_or(DAT_EVD_OUT_OF_SCOPE, Handle::as_dat)
    }

    pub(crate) fn counters(&self) -> &IaCounters {
        &self.counters
    }

    /// The traffic counts that the IA stores itself, such as those of freed endpoints.
    pub(crate) fn traffic_counters(&self) -> &TrafficCounters {
        &self.traffic
    }

    pub(crate) fn binds(&self) -> &Binds {
        &self.binds
    }

    /// Reserves a handle for a child that will be created.
    pub fn reserve(&self) -> DatResult<Reservation> {
        if host::reserve::is_short() {
            return Err(DatError::no_resources(DAT_RESOURCE_MEMORY));
        }
        handle::reserve(self.provider).ok_or(OUT_OF_HANDLES)
    }

    /// Installs a child under its handle and adds it to the children; refused while the IA closes.
    pub fn install<T: Child>(&self, reservation: Reservation, child: Arc<T>) -> DatResult<Handle> {
        let mut children = self.lock();
        if children.is_closing {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_IA));
        }
        let handle = reservation.publish(child);
        children.of_kind[T::KIND as usize].insert(handle);
        if let Some(index) = life_counters(T::KIND).0 {
            self.counters.bump(index);
        }
        Ok(handle)
    }

    /// Removes a child that was freed.
    pub fn disown(&self, kind: Kind, handle: Handle) {
        self.lock().of_kind[kind as usize].remove(&handle);
        if let Some(index) = life_counters(kind).1 {
            self.counters.bump(index);
        }
    }

    /// Returns the number of children of a kind.
    pub fn child_count(&self, kind: Kind) -> usize {
        self.lock().of_kind[kind as usize].len()
    }

    /// Returns the live children of a kind at this moment.
    pub(crate) fn children<T: Child>(&self) -> impl Iterator<Item = Pinned<T>> {
        let children = self.lock().of_kind[T::KIND as usize].clone();
        children.into_iter().filter_map(handle::pin_handle::<T>)
    }

    /// Returns the first live child for which `wanted` is true.
    pub(crate) fn find_child<T: Child>(&self, wanted: impl Fn(&T) -> bool) -> Option<Pinned<T>> {
        self.children().find(|child| wanted(child))
    }

    /// Refuses new children from now on.
    pub(crate) fn begin_close(&self) {
        self.lock().is_closing = true;
    }

    /// Returns true if a graceful close must be refused. CNOs, SRQs, CRs and the IA's own EVD do
    /// not count.
    pub(crate) fn is_in_use(&self) -> bool {
        let own_evd = self.own_async_evd();
        let children = self.lock();
        let count = |kind: Kind| children.of_kind[kind as usize].len();
        let evds = &children.of_kind[Kind::Evd as usize];
        let consumers_evds = evds.iter().filter(|evd| Some(**evd) != own_evd).count();
        [
            Kind::Ep,
            Kind::Lmr,
            Kind::Rmr,
            Kind::Psp,
            Kind::Rsp,
            Kind::Csp,
            Kind::Ssp,
            Kind::Pz,
        ]
        .into_iter()
        .any(|kind| count(kind) > 0)
            || consumers_evds > 0
    }

    /// Ends all children of a kind.
    pub(crate) fn abandon_all<T: Child>(&self) {
        let children = std::mem::take(&mut self.lock().of_kind[T::KIND as usize]);
        for child in children {
            if let Some(child) = handle::pin_handle::<T>(child) {
                T::abandon(&child);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Children> {
        self.children.lock().ignore_poison()
    }
}

impl<R: Rnic> Drop for Ia<R> {
    fn drop(&mut self) {
        self.rnic().shutdown();
    }
}

/// Returns the counters of created and of freed objects of a kind. The two calls that create public
/// service points count them separately.
fn life_counters(kind: Kind) -> (Option<u32>, Option<u32>) {
    match kind {
        Kind::Pz => (Some(DCNT_IA_PZ_CREATE), Some(DCNT_IA_PZ_FREE)),
        Kind::Lmr => (Some(DCNT_IA_LMR_CREATE), Some(DCNT_IA_LMR_FREE)),
        Kind::Rmr => (Some(DCNT_IA_RMR_CREATE), Some(DCNT_IA_RMR_FREE)),
        Kind::Rsp => (Some(DCNT_IA_RSP_CREATE), Some(DCNT_IA_RSP_FREE)),
        Kind::Evd => (Some(DCNT_IA_EVD_CREATE), Some(DCNT_IA_EVD_FREE)),
        Kind::Ep => (Some(DCNT_IA_EP_CREATE), Some(DCNT_IA_EP_FREE)),
        Kind::Srq => (Some(DCNT_IA_SRQ_CREATE), Some(DCNT_IA_SRQ_FREE)),
        Kind::Psp => (None, Some(DCNT_IA_PSP_FREE)),
        Kind::Cr => (Some(DCNT_IA_SP_CR), None),
        Kind::Csp | Kind::Ssp | Kind::Cno | Kind::Ia => (None, None),
    }
}

pub(crate) const OUT_OF_HANDLES: DatError = DatError::no_resources(DAT_RESOURCE_MEMORY);

#[cfg(test)]
mod tests;
