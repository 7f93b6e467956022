//! Raw handles inside the crate, and the opaque identities that events carry.

use dat_abi::{DAT_HANDLE_NULL, DatHandle};

/// A live handle owned by one object of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) DatHandle);

// SAFETY: a DAT handle is an opaque name, which this crate never dereferences. The registry and the
// provider look the handle up or dereference it. They serialise access to their own state, because
// programs with several threads call them.
unsafe impl Send for Handle {}
// SAFETY: as for `Send`.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) const NULL: Self = Self(DAT_HANDLE_NULL);

    /// The value as a number, for tables and identities.
    pub(crate) fn key(self) -> usize {
        self.0.addr()
    }
}

/// Declares an identity type: it can be compared and printed, but not used as a handle.
macro_rules! identity {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        ///
        /// An identity can be compared after the object was freed, but a later object may get an
        /// equal one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(usize);

        impl $name {
            pub(crate) fn of(handle: DatHandle) -> Self {
                Self(handle.addr())
            }
        }
    };
}

identity! {
    /// The endpoint that an event concerns; compare with [`Ep::id`](crate::Ep::id).
    EpId
}
identity! {
    /// The event dispatcher; compare with [`Evd::id`](crate::Evd::id).
    EvdId
}
identity! {
    /// The service point that received a connection request; compare with `id` of `Psp`, `Rsp` or
    /// `Ssp`.
    SpId
}
identity! {
    /// The memory window that was bound; compare with [`Rmr::id`](crate::Rmr::id).
    RmrId
}
identity! {
    /// The shared receive queue; compare with [`Srq::id`](crate::Srq::id).
    SrqId
}
identity! {
    /// The object, of any kind, that an asynchronous error concerns.
    ObjectId
}

impl PartialEq<EpId> for ObjectId {
    fn eq(&self, other: &EpId) -> bool {
        self.0 == other.0
    }
}

impl PartialEq<EvdId> for ObjectId {
    fn eq(&self, other: &EvdId) -> bool {
        self.0 == other.0
    }
}

impl PartialEq<SrqId> for ObjectId {
    fn eq(&self, other: &SrqId) -> bool {
        self.0 == other.0
    }
}
