//! Protection zone: determines which memory endpoints may use (DAT 2.0 section 6.8).

use std::sync::Arc;

use dat_abi::*;

use crate::error::{DatError, DatResult};
use crate::handle::{Handle, Kind, Object, Pinned};
use crate::ia::{Child, Ia};
use crate::rnic::Rnic;
use crate::users::{User, Users};

/// A protection zone: a protection domain of the RNIC and its use count.
pub struct Pz<R: Rnic> {
    pd: R::Pd,
    handle: Handle,
    users: Users,
    ia: Arc<Ia<R>>,
}

opaque_debug!(Pz<R> { handle, users });

impl<R: Rnic> Object for Pz<R> {
    const KIND: Kind = Kind::Pz;
}

impl<R: Rnic> Pz<R> {
    /// Implements `dat_pz_create`.
    pub fn create(ia: &Arc<Ia<R>>) -> DatResult<Handle> {
        let reservation = ia.reserve()?;
        let pz = Arc::new(Self {
            pd: ia.rnic().create_pd()?,
            handle: reservation.handle(),
            users: Users::new(),
            ia: ia.clone(),
        });
        ia.install(reservation, pz)
    }

    /// The RNIC's protection domain.
    pub fn rnic_pd(&self) -> &R::Pd {
        &self.pd
    }

    /// The handle of the zone.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The IA of the zone.
    pub fn ia(&self) -> &Arc<Ia<R>> {
        &self.ia
    }

    /// Adds a use, which prevents the zone from being freed.
    pub fn add_user(&self) -> DatResult<User> {
        self.users
            .take()
            .ok_or(DatError::invalid_handle(DAT_INVALID_HANDLE_PZ))
    }

    /// Implements `dat_pz_query`.
    pub fn query(&self) -> DatPzParam {
        DatPzParam {
            ia_handle: self.ia.consumer_handle(),
        }
    }

    /// Implements `dat_pz_free`.
    pub fn free(this: &Pinned<Self>) -> DatResult {
        if !this.users.close() {
            return Err(DatError::invalid_state(DAT_INVALID_STATE_PZ_IN_USE));
        }
        Self::abandon(this);
        Ok(())
    }
}

impl<R: Rnic> Child for Pz<R> {
    fn on_retired(this: &Pinned<Self>) {
        this.users.close_anyway();
        this.ia.disown(Kind::Pz, this.handle);
    }
}
