//! Interface adapter: an open RNIC, its children and its asynchronous events.
//!
//! Owns the RNIC. Its drop, which comes after that of every child because children hold it, shuts
//! the RNIC down. DAT 2.0 section 6.2 (`dat_ia_*`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_abi::*;

use crate::attr::Attributes;
use crate::cno::Cno;
use crate::counters::IaCounters;
use crate::cr::Cr;
use crate::dispatch::Dispatch;
use crate::ep::Ep;
use crate::error::{DatError, DatResult};
use crate::evd::Evd;
use crate::handle::{self, Handle, Kind, Object, Pinned, ProviderRef, Reservation};
use crate::lmr::Lmr;
use crate::pz::Pz;
use crate::registry;
use crate::rmr::{Binds, Rmr};
use crate::rnic::{Rnic, RnicAttr, RnicConfig};
use crate::sp::{Csp, Psp, Rsp, Ssp};
use crate::srq::Srq;
use crate::users::User;

/// How long a close waits for calls of other threads to leave the objects it has ended.
const QUIESCENCE_LIMIT: Duration = Duration::from_secs(10);

/// An object that its IA can end without being asked.
pub trait Child: Object {
    /// Ends it whatever its state, without telling anybody: retires the handle (and leaves at once
    /// when another thread did), gives up its uses of other objects and leaves the IA.
    fn abandon(this: &Pinned<Self>)
    where
        Self: Sized;
}

/// Where an IA's asynchronous events go.
#[derive(Debug)]
pub enum AsyncEvd<R: Rnic> {
    /// To an EVD that opening creates, for at least this many events.
    New(DatCount),
    /// To an EVD of another instance of the same device.
    Given(Arc<Evd<R>>),
    /// Nowhere from here: another instance has them (`DAT_EVD_ASYNC_EXISTS`).
    Elsewhere,
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
    /// Opens the RNIC that `config` names. Returns the IA and its asynchronous EVD, if it has one.
    pub fn open(
        provider: ProviderRef,
        config: &RnicConfig,
        async_evd: AsyncEvd<R>,
    ) -> DatResult<(Handle, Option<Handle>)> {
        let reservation = handle::reserve(provider).ok_or(OUT_OF_HANDLES)?;
        let handle = reservation.handle();
        let rnic = R::open(config, Dispatch::<R>::new(handle))
            .inspect_err(|error| tracing::warn!(ia = %config.ia_name, %error, "open failed"))?;
        tracing::debug!(ia = %config.ia_name, params = %config.ia_params, "opened");
        let ia = Arc::new(Self {
            handle,
            provider,
            name: config.ia_name.clone(),
            attributes: Attributes::new(&config.ia_name, rnic.attr()),
            children: Mutex::default(),
            async_evd: OnceLock::new(),
            binds: Binds::default(),
            counters: IaCounters::new(),
            rnic: Quiet(rnic),
        });
        // A failure from here on drops the Arc, and with it shuts the RNIC down.
        let evd = match async_evd {
            AsyncEvd::New(qlen) => Some(Evd::create_async(&ia, qlen)?),
            AsyncEvd::Given(evd) => Some(evd),
            AsyncEvd::Elsewhere => None,
        };
        let evd_handle = evd.as_ref().map(|evd| evd.handle());
        if let Some(evd) = evd {
            let _ = ia.async_evd.set((evd.handle(), evd.use_it()?));
        }
        Ok((reservation.publish(ia), evd_handle))
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
        self.async_evd
            .get()
            .map_or(DAT_EVD_OUT_OF_SCOPE, |(handle, _)| handle.as_dat())
    }

    /// What has happened to it.
    pub(crate) fn counters(&self) -> &IaCounters {
        &self.counters
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

    /// Tells an asynchronous event; lost, but logged, when nobody listens.
    pub fn post_async(
        &self,
        number: DatEventNumber,
        object: DatHandle,
        reason: DatAsyncErrorReason,
    ) {
        let event_number = format_args!("{number:#x}");
        tracing::warn!(ia = %self.name, event_number, ?object, reason, "asynchronous event");
        self.counters.bump(DCNT_IA_ASYNC_ERROR);
        match number {
            DAT_ASYNC_ERROR_EP_BROKEN => self.counters.bump(DCNT_IA_ASYNC_QP_ERROR),
            DAT_ASYNC_ERROR_EVD_OVERFLOW => self.counters.bump(DCNT_IA_ASYNC_CQ_ERROR),
            _ => {}
        }
        let mut event = DatEvent::zeroed();
        event.event_number = number;
        event.event_data.asynch_error_event_data = DatAsynchErrorEventData {
            dat_handle: object,
            reason,
        };
        let evd = self
            .async_evd
            .get()
            .and_then(|(evd, _)| handle::pin_handle::<Evd<R>>(*evd));
        match evd {
            Some(evd) => evd.post(event),
            None => tracing::error!(ia = %self.name, "no EVD for an asynchronous event"),
        }
    }

    /// The device is gone or unusable.
    pub fn on_device_fatal(&self) {
        // OFA's providers name the IA by their own pointer here, which consumers can only compare.
        self.post_async(
            DAT_ASYNC_ERROR_IA_CATASTROPHIC,
            self.handle.as_dat(),
            DAT_IA_CATASTROPHIC_ERROR,
        );
    }

    /// `dat_ia_close`.
    pub fn close(this: Pinned<Self>, flags: DatCloseFlags) -> DatResult {
        match flags {
            DAT_CLOSE_GRACEFUL_FLAG if this.is_in_use() => {
                return Err(DatError::invalid_state(DAT_INVALID_STATE_IA_IN_USE));
            }
            DAT_CLOSE_GRACEFUL_FLAG | DAT_CLOSE_ABRUPT_FLAG => {}
            _ => return Err(DatError::invalid_arg(2)),
        }
        if !this.retire() {
            return Err(DatError::invalid_handle(DAT_INVALID_HANDLE_IA));
        }
        this.lock().closing = true;
        let evds = this.consumers_evds();
        this.abandon_children();
        let ia = this.to_arc();
        // EVDs may serve endpoints of other instances; then this one goes with the last of those.
        let lent = || {
            evds.iter()
                .any(|evd| evd.upgrade().is_some_and(|evd| evd.is_used()))
        };
        let alone = || this.pin_count() == 1 && (Arc::strong_count(&ia) == 2 || lent());
        if !is_quiet(alone) {
            tracing::error!(
                ia = %ia.name,
                "calls of other threads do not return; closing without them"
            );
        }
        tracing::debug!(ia = %ia.name, "closed");
        Ok(())
    }

    /// All EVDs but its own asynchronous one.
    fn consumers_evds(&self) -> Vec<Weak<Evd<R>>> {
        let own = self.async_evd.get().map(|(handle, _)| *handle);
        let evds = self.lock().of_kind[Kind::Evd as usize].clone();
        let evds = evds.into_iter().filter(|evd| Some(*evd) != own);
        evds.filter_map(handle::pin_handle::<Evd<R>>)
            .map(|evd| Arc::downgrade(&evd.to_arc()))
            .collect()
    }

    /// Whether a graceful close refuses: CNOs and SRQs do not count, nor does the IA's own EVD.
    fn is_in_use(&self) -> bool {
        let own_evd = self.async_evd.get().map(|(handle, _)| *handle);
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

    /// Users before what they use.
    fn abandon_children(&self) {
        self.abandon_all::<Rmr<R>>();
        self.abandon_all::<Rsp<R>>();
        self.abandon_all::<Ssp<R>>();
        self.abandon_all::<Ep<R>>();
        self.abandon_all::<Lmr<R>>();
        self.abandon_all::<Psp<R>>();
        self.abandon_all::<Csp<R>>();
        self.abandon_all::<Cr<R>>();
        self.abandon_all::<Srq<R>>();
        self.abandon_all::<Pz<R>>();
        self.abandon_all::<Evd<R>>();
        self.abandon_all::<Cno<R>>();
    }

    fn abandon_all<T: Child>(&self) {
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

const OUT_OF_HANDLES: DatError = DatError::no_resources(DAT_RESOURCE_MEMORY);

/// Waits until `condition` holds, for as long as calls that were told to return may need.
fn is_quiet(condition: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + QUIESCENCE_LIMIT;
    let mut pause = Duration::from_micros(20);
    while !condition() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
    true
}

#[cfg(test)]
mod tests;
