//! Interface adapter: an open RNIC, its children and its asynchronous events.
//!
//! Owns the RNIC. Its drop, which comes after that of every child because children hold it, shuts
//! the RNIC down. DAT 2.0 section 6.2 (`dat_ia_*`).

mod binds;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dat_abi::*;

pub(crate) use self::binds::{Binds, NewBind};
use crate::attr::Attributes;
use crate::counters::{IaCounters, TrafficCounters};
use crate::error::{DatError, DatResult};
use crate::handle::{self, Handle, Kind, Object, Pinned, ProviderRef, Reservation};
use crate::registry;
use crate::rnic::{Rnic, RnicAttr};
use crate::users::User;

/// An object that its IA can end without being asked.
pub trait Child: Object {
    /// Ends it whatever its state, without telling anybody: retires the handle (and leaves at once
    /// when another thread did), gives up its uses of other objects and leaves the IA.
    fn abandon(this: &Pinned<Self>)
    where
        Self: Sized;
}

/// Interface adapter.
#[derive(Debug)]
pub struct Ia<R: Rnic> {
    handle: Handle,
    provider: ProviderRef,
    name: String,
    attributes: Attributes,
    children: Mutex<Children>,
    /// Named, not owned: the EVD owns the IA. The use keeps the consumer from freeing it.
    async_evd: OnceLock<(Handle, User)>,
    binds: Binds,
    counters: IaCounters,
    traffic: TrafficCounters,
    rnic: Quiet<R>,
}

/// Keeps `Debug` away from the RNIC, which need not have it.
struct Quiet<R>(R);

impl<R> std::fmt::Debug for Quiet<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Rnic")
    }
}

#[derive(Debug, Default)]
struct Children {
    closing: bool,
    of_kind: [BTreeSet<Handle>; Kind::COUNT],
}

impl<R: Rnic> Object for Ia<R> {
    const KIND: Kind = Kind::Ia;
}

impl<R: Rnic> Ia<R> {
    /// An open IA with the handle `handle`, as yet without asynchronous EVD.
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
            rnic: Quiet(rnic),
        }
    }

    /// Its asynchronous events go to the EVD `evd` from now on.
    pub(crate) fn set_async_evd(&self, evd: Handle, user: User) {
        let _ = self.async_evd.set((evd, user));
    }

    /// The EVD of its asynchronous events, if they go to one.
    pub(crate) fn own_async_evd(&self) -> Option<Handle> {
        self.async_evd.get().map(|(handle, _)| *handle)
    }

    /// The RNIC.
    pub fn rnic(&self) -> &R {
        &self.rnic.0
    }

    /// Its identity and limits.
    pub fn attr(&self) -> &RnicAttr {
        self.rnic().attr()
    }

    /// The handle the registry library knows.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The handle the consumer knows: the registry library's small integer, or null before it has
    /// one.
    pub fn consumer_handle(&self) -> DatIaHandle {
        registry::consumer_ia_handle(self.handle)
    }

    /// The provider table whose address begins every object.
    pub fn provider(&self) -> ProviderRef {
        self.provider
    }

    /// The name it was opened under.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the adapter, in memory that stays while the IA is open.
    pub fn local_address(&self) -> DatIaAddressPtr {
        self.attributes.address()
    }

    /// Whole `DAT_IA_ATTR`.
    pub fn ia_attr(&self) -> &DatIaAttr {
        self.attributes.ia()
    }

    /// Whole `DAT_PROVIDER_ATTR`.
    pub fn provider_attr(&self) -> &DatProviderAttr {
        self.attributes.provider()
    }

    /// What `dat_ia_query` says of the asynchronous EVD.
    pub fn async_evd(&self) -> DatEvdHandle {
        self.own_async_evd()
            .map_or(DAT_EVD_OUT_OF_SCOPE, Handle::as_dat)
    }

    /// What has happened to it.
    pub(crate) fn counters(&self) -> &IaCounters {
        &self.counters
    }

    /// How the payload of its connections travelled, as far as it keeps account of that.
    pub(crate) fn traffic_counters(&self) -> &TrafficCounters {
        &self.traffic
    }

    pub(crate) fn binds(&self) -> &Binds {
        &self.binds
    }

    /// A handle for a child to come.
    pub fn reserve(&self) -> DatResult<Reservation> {
        if reserve::is_short() {
            return Err(DatError::no_resources(DAT_RESOURCE_MEMORY));
        }
        handle::reserve(self.provider).ok_or(OUT_OF_HANDLES)
    }

    /// Brings a child to life and takes it into the family; refused while the IA closes.
    pub fn install<T: Child>(&self, reservation: Reservation, child: Arc<T>) -> DatResult<Handle> {
        let mut children = self.lock();
        if children.closing {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_IA));
        }
        let handle = reservation.publish(child);
        children.of_kind[T::KIND as usize].insert(handle);
        if let Some(index) = creation_counter(T::KIND) {
            self.counters.bump(index);
        }
        Ok(handle)
    }

    /// Forgets a child that was freed.
    pub fn disown(&self, kind: Kind, handle: Handle) {
        self.lock().of_kind[kind as usize].remove(&handle);
        if let Some(index) = end_counter(kind) {
            self.counters.bump(index);
        }
    }

    /// How many children of a kind there are.
    pub fn child_count(&self, kind: Kind) -> usize {
        self.lock().of_kind[kind as usize].len()
    }

    /// The live children of a kind, as they are now.
    pub(crate) fn children<T: Child>(&self) -> impl Iterator<Item = Pinned<T>> {
        let children = self.lock().of_kind[T::KIND as usize].clone();
        children.into_iter().filter_map(handle::pin_handle::<T>)
    }

    /// The first live child for which `wanted` holds.
    pub(crate) fn find_child<T: Child>(&self, wanted: impl Fn(&T) -> bool) -> Option<Pinned<T>> {
        self.children().find(|child| wanted(child))
    }

    /// No child comes to life any more.
    pub(crate) fn begin_close(&self) {
        self.lock().closing = true;
    }

    /// Whether a graceful close refuses: CNOs and SRQs do not count, nor does the IA's own EVD.
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
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Rnic> Drop for Ia<R> {
    fn drop(&mut self) {
        self.rnic().shutdown();
    }
}

/// Which counter a new object counts in. Public service points are created in two ways and count
/// there.
fn creation_counter(kind: Kind) -> Option<u32> {
    match kind {
        Kind::Pz => Some(DCNT_IA_PZ_CREATE),
        Kind::Lmr => Some(DCNT_IA_LMR_CREATE),
        Kind::Rmr => Some(DCNT_IA_RMR_CREATE),
        Kind::Rsp => Some(DCNT_IA_RSP_CREATE),
        Kind::Evd => Some(DCNT_IA_EVD_CREATE),
        Kind::Ep => Some(DCNT_IA_EP_CREATE),
        Kind::Srq => Some(DCNT_IA_SRQ_CREATE),
        Kind::Cr => Some(DCNT_IA_SP_CR),
        Kind::Psp | Kind::Csp | Kind::Ssp | Kind::Cno | Kind::Ia => None,
    }
}

/// Which counter the end of an object counts in.
fn end_counter(kind: Kind) -> Option<u32> {
    match kind {
        Kind::Pz => Some(DCNT_IA_PZ_FREE),
        Kind::Lmr => Some(DCNT_IA_LMR_FREE),
        Kind::Rmr => Some(DCNT_IA_RMR_FREE),
        Kind::Psp => Some(DCNT_IA_PSP_FREE),
        Kind::Rsp => Some(DCNT_IA_RSP_FREE),
        Kind::Evd => Some(DCNT_IA_EVD_FREE),
        Kind::Ep => Some(DCNT_IA_EP_FREE),
        Kind::Srq => Some(DCNT_IA_SRQ_FREE),
        Kind::Cr | Kind::Csp | Kind::Ssp | Kind::Cno | Kind::Ia => None,
    }
}

pub(crate) const OUT_OF_HANDLES: DatError = DatError::no_resources(DAT_RESOURCE_MEMORY);

#[cfg(test)]
mod tests;
