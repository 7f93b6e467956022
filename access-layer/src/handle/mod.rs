//! Handles: type-stable slots that resist stale, foreign and invented handles.
//!
//! Owns the one table of handles of this shared library and refuses every word that is not the
//! handle of a live object of the wanted type. Follows DAT 2.0 chapter 5 and the rule of all
//! registry libraries that the first word behind a handle is the provider's address.
//!
//! # How
//!
//! One range of addresses is reserved for the life of the process (`table`) and divided into slots.
//! A slot begins with sixteen equal provider words. The generation of its current object selects
//! the word that is the handle, so sixteen lives of a slot have sixteen different handles. Freed
//! slots wait in a FIFO before they are reused. No address outside the range is ever dereferenced.
//! The range is never unmapped, so a registry library may also read the provider word of a freed
//! handle.
//!
//! A slot's state is one atomic word: pins, phase, kind, generation. [`pin`] adds a pin first and
//! checks the state afterwards. The thread that removes the last pin of a retired slot drops the
//! object. Most threads do not count their pins in the state but announce them (`pins`).
//!
//! # Cost
//!
//! `pin` and the drop of its result: a plain store each, or an atomic addition where pins are
//! counted; no lock, no allocation, no system call except for the first pin of a thread. Creation:
//! one short lock, and a system call for every `table::CHUNK_SLOTS` new slots. Destruction: one
//! short lock and a barrier on the processors that run the process.

mod pins;
mod state;
mod table;

#[cfg(not(miri))]
pub(crate) use table::forking::Locks;

use std::any::TypeId;
use std::ffi::c_void;
use std::fmt;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use dat_abi::{DatHandle, DatHandleType, DatProvider};

use self::table::{Pin, Slot};

/// Maximum time for which a close or a free waits until calls of other threads no longer use the
/// objects that were ended.
pub(crate) const QUIESCENCE_LIMIT: Duration = Duration::from_secs(10);

/// The kind of a handle's object; the numbers are those of `DAT_HANDLE_TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Connection request.
    Cr = 0,
    /// Endpoint.
    Ep = 1,
    /// Event dispatcher.
    Evd = 2,
    /// Interface adapter.
    Ia = 3,
    /// Local memory region.
    Lmr = 4,
    /// Public service point.
    Psp = 5,
    /// Protection zone.
    Pz = 6,
    /// Remote memory region.
    Rmr = 7,
    /// Reserved service point.
    Rsp = 8,
    /// Consumer notification object.
    Cno = 9,
    /// Shared receive queue.
    Srq = 10,
    /// Common service point.
    Csp = 11,
    /// Socket service point (`DAT_IW_HANDLE_TYPE_SSP`, the first number reserved for extensions).
    Ssp = 12,
}

impl Kind {
    /// One more than the largest number of a kind: the length of tables indexed by kind.
    pub const COUNT: usize = 13;

    /// Every kind.
    pub const ALL: [Self; 13] = [
        Self::Cr,
        Self::Ep,
        Self::Evd,
        Self::Ia,
        Self::Lmr,
        Self::Psp,
        Self::Pz,
        Self::Rmr,
        Self::Rsp,
        Self::Cno,
        Self::Srq,
        Self::Csp,
        Self::Ssp,
    ];

    fn from_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == bits)
    }

    /// Returns the number of the kind in C.
    #[must_use]
    pub fn as_dat(self) -> DatHandleType {
        DatHandleType::from(self as u8)
    }
}

/// The table of a provider, which stays valid for the rest of the process.
#[derive(Clone, Copy)]
pub struct ProviderRef(&'static DatProvider);

impl ProviderRef {
    /// Wraps a provider's table.
    #[must_use]
    pub fn new(provider: &'static DatProvider) -> Self {
        Self(provider)
    }

    /// The table.
    #[must_use]
    pub fn get(self) -> &'static DatProvider {
        self.0
    }
}

impl PartialEq for ProviderRef {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl fmt::Debug for ProviderRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderRef({:p})", self.0)
    }
}

/// An object that has a handle.
pub trait Object: Send + Sync + 'static {
    /// The result of `dat_get_handle_type` for the object.
    const KIND: Kind;
}

/// A word that was a handle when it was created. Only [`pin`] checks that it still is one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(NonZeroUsize);

impl Handle {
    /// Returns the handle as C uses it.
    #[must_use]
    pub fn as_dat(self) -> DatHandle {
        std::ptr::with_exposed_provenance_mut::<c_void>(self.0.get())
    }

    /// Returns the handle as a token for the RNIC.
    #[must_use]
    pub fn as_token(self) -> u64 {
        self.0.get() as u64
    }

    /// Wraps any word from C; `None` for the null handle only.
    #[must_use]
    pub fn from_dat(handle: DatHandle) -> Option<Self> {
        NonZeroUsize::new(handle.addr()).map(Self)
    }

    /// Converts a token from the RNIC.
    #[must_use]
    pub fn from_token(token: u64) -> Option<Self> {
        usize::try_from(token)
            .ok()
            .and_then(NonZeroUsize::new)
            .map(Self)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:#x})", self.0)
    }
}

/// A handle whose object does not exist yet, so that the object can be created with its own handle.
#[derive(Debug)]
pub struct Reservation {
    slot: Option<&'static Slot>,
    handle: Handle,
}

/// Reserves a handle for an object of `provider`; `None` when the table is full.
#[must_use]
pub fn reserve(provider: ProviderRef) -> Option<Reservation> {
    let (slot, handle) = table::take(provider)?;
    Some(Reservation {
        slot: Some(slot),
        handle,
    })
}

impl Reservation {
    /// The handle that [`publish`](Self::publish) will make valid.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Makes the handle valid.
    pub fn publish<T: Object>(mut self, object: Arc<T>) -> Handle {
        if let Some(slot) = self.slot.take() {
            slot.publish(object);
        }
        self.handle
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            table::release(slot);
        }
    }
}

/// A live object that stays alive while this value exists, even if it is freed.
pub struct Pinned<T: Object> {
    slot: &'static Slot,
    pin: Pin,
    object: NonNull<T>,
    handle: Handle,
}

// SAFETY: a pin represents a reference of the Arc<T> that the slot owns; T is Send and Sync by
// `Object`.
unsafe impl<T: Object> Send for Pinned<T> {}
// SAFETY: as for Send; all methods take &self, and the slot's words are atomics.
unsafe impl<T: Object> Sync for Pinned<T> {}

/// Pins the object of `handle`, if it is alive, of type `T`, and of this generation.
///
/// The caller may pass any word.
#[inline]
#[must_use]
pub fn pin<T: Object>(handle: DatHandle) -> Option<Pinned<T>> {
    let (slot, ordinal) = table::find(handle.addr())?;
    let pin = slot.try_pin(T::KIND, ordinal)?;
    // From here on the slot is pinned in a life that had begun, so the object and its type are
    // valid.
    let object = slot.object(TypeId::of::<T>());
    match (object, Handle::from_dat(handle)) {
        (Some(object), Some(handle)) => Some(Pinned {
            slot,
            pin,
            object: object.cast(),
            handle,
        }),
        _ => {
            slot.unpin(pin);
            None
        }
    }
}

/// Calls [`pin`] for a handle or token that the access layer stores.
#[inline]
#[must_use]
pub fn pin_handle<T: Object>(handle: Handle) -> Option<Pinned<T>> {
    pin(handle.as_dat())
}

/// Returns the kind of a live handle.
#[must_use]
pub fn kind_of(handle: DatHandle) -> Option<Kind> {
    let (slot, ordinal) = table::find(handle.addr())?;
    slot.with_pin(ordinal, |slot| slot.kind()).flatten()
}

/// Returns the consumer's context of a live handle; 0 until set.
#[must_use]
pub fn context(handle: DatHandle) -> Option<u64> {
    let (slot, ordinal) = table::find(handle.addr())?;
    slot.with_pin(ordinal, Slot::context)
}

/// Sets the consumer's context of a live handle.
#[must_use]
pub fn set_context(handle: DatHandle, context: u64) -> Option<()> {
    let (slot, ordinal) = table::find(handle.addr())?;
    slot.with_pin(ordinal, |slot| slot.set_context(context))
}

impl<T: Object> Pinned<T> {
    /// The handle under which the object was found.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns a reference that outlives the pin.
    #[must_use]
    pub fn to_arc(&self) -> Arc<T> {
        let object = self.object.as_ptr().cast_const();
        // SAFETY: the pointer came from Arc::into_raw in `publish`. The slot's reference is not
        // dropped while the slot is pinned, so the count is at least one when it is incremented.
        unsafe {
            Arc::increment_strong_count(object);
            Arc::from_raw(object)
        }
    }

    /// Returns the pin without its type.
    #[must_use]
    pub(crate) fn erase(self) -> AnyPin {
        let this = ManuallyDrop::new(self);
        AnyPin {
            slot: this.slot,
            pin: this.pin,
        }
    }

    /// Ends the life of the handle; the object is dropped with its last pin.
    ///
    /// Returns `false` if another thread has retired the handle and therefore destroys the object.
    #[must_use]
    pub fn retire(&self) -> bool {
        self.slot.retire()
    }

    /// Ends this pin of a retired handle. The object was dropped when this returns, unless a call
    /// of another thread uses the object for longer than [`QUIESCENCE_LIMIT`].
    pub fn await_drop(self) {
        let this = ManuallyDrop::new(self);
        this.slot.unpin_and_wait(this.pin, QUIESCENCE_LIMIT);
    }

    /// Returns the number of pins, including this one. The number may change at any time; for a
    /// retired object it only decreases.
    #[must_use]
    pub fn pin_count(&self) -> u64 {
        self.slot.pin_count()
    }
}

impl<T: Object> Deref for Pinned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: `pin` checked that the slot holds a T, and the pin keeps it until the drop of
        // `self`.
        unsafe { self.object.as_ref() }
    }
}

impl<T: Object> Drop for Pinned<T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.unpin(self.pin);
    }
}

/// The pin of an object whose type the code that holds the pin does not know.
#[derive(Debug)]
pub(crate) struct AnyPin {
    slot: &'static Slot,
    pin: Pin,
}

impl Drop for AnyPin {
    #[inline]
    fn drop(&mut self) {
        self.slot.unpin(self.pin);
    }
}

impl<T: Object> fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("kind", &T::KIND)
            .field("handle", &self.handle)
            .finish()
    }
}

#[cfg(test)]
mod tests;
