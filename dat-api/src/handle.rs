//! Raw handles inside the crate, and the opaque identities that events carry.

use dat_abi::{DAT_HANDLE_NULL, DatHandle};

/// A live handle owned by one object of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(pub(crate) DatHandle);

// SAFETY: a DAT handle is an opaque name. Registry and provider look it up or follow it themselves
// and serialise their own state, as DAT consumers with several threads require of every provider in
// use; this crate never dereferences one.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) const NULL: Self = Self(DAT_HANDLE_NULL);

    /// The value as a number, for tables and identities.
    pub(crate) fn key(self) -> usize {
        self.0.addr()
    }
}

/// Declares an identity: comparable, printable, good for nothing else.
macro_rules! identity {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        ///
        /// It stays comparable after the object has gone, but a later object may get the same one.
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
    /// Which endpoint an event speaks of; compare with [`Ep::id`](crate::Ep::id).
    EpId
}
identity! {
    /// Which event dispatcher; compare with [`Evd::id`](crate::Evd::id).
    EvdId
}
identity! {
    /// Which service point a connection request came to; compare with `id` of `Psp`, `Rsp` or
    /// `Ssp`.
    SpId
}
identity! {
    /// Which memory window was bound; compare with [`Rmr::id`](crate::Rmr::id).
    RmrId
}
identity! {
    /// Which shared receive queue; compare with [`Srq::id`](crate::Srq::id).
    SrqId
}
identity! {
    /// Which object, of whatever kind, an asynchronous error speaks of.
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
