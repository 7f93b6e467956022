//! Public service points: a service to which many peers may connect.

use dat_abi::*;

use crate::connection::Evd;
use crate::error::{Error, Result, check};
use crate::handle::{Handle, SpId};
use crate::ia::Ia;

/// A public service point. Dropping it stops the service; received requests stay valid.
pub struct Psp {
    handle: Handle,
    evd: Evd,
    conn_qual: u64,
}

impl Psp {
    /// Offers the service `conn_qual`; its requests are delivered on `evd`.
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE` when the port is in use, `DAT_PRIVILEGES_VIOLATION` when the port
    /// needs privileges, `DAT_INVALID_HANDLE` when `evd` does not accept connection requests.
    pub fn create(ia: &Ia, conn_qual: u64, evd: &Evd) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: IA and dispatcher are live and the out-pointer writable.
        let code = unsafe {
            let create = ia.library().dat_psp_create;
            create(
                ia.as_raw(),
                conn_qual,
                evd.as_raw(),
                DAT_PSP_CONSUMER_FLAG,
                &mut handle,
            )
        };
        check("dat_psp_create", code)?;
        Ok(Self {
            handle: Handle(handle),
            evd: evd.clone(),
            conn_qual,
        })
    }

    /// Offers a service under a qualifier of the provider's choice.
    pub fn create_any(ia: &Ia, evd: &Evd) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        let mut conn_qual = 0;
        // SAFETY: IA and dispatcher are live and both out-pointers writable.
        let code = unsafe {
            let create = ia.library().dat_psp_create_any;
            create(
                ia.as_raw(),
                &mut conn_qual,
                evd.as_raw(),
                DAT_PSP_CONSUMER_FLAG,
                &mut handle,
            )
        };
        check("dat_psp_create_any", code)?;
        Ok(Self {
            handle: Handle(handle),
            evd: evd.clone(),
            conn_qual,
        })
    }

    /// The qualifier to which peers connect.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.conn_qual
    }

    /// The identity that [`Cr::service_point`](crate::Cr::service_point) returns.
    #[must_use]
    pub fn id(&self) -> SpId {
        SpId::of(self.handle.0)
    }

    /// Stops the service and returns the provider's answer.
    pub fn free(mut self) -> Result<()> {
        self.free_once()
    }

    fn free_once(&mut self) -> Result<()> {
        if self.handle == Handle::NULL {
            return Ok(());
        }
        let handle = std::mem::replace(&mut self.handle, Handle::NULL);
        // SAFETY: the handle was live and has been taken, so it is used for the last time.
        check("dat_psp_free", unsafe {
            (self.evd.ia().library().dat_psp_free)(handle.0)
        })
        .inspect_err(|_| std::mem::forget(self.evd.clone()))
        .map_err(Error::from)
    }
}

impl Drop for Psp {
    fn drop(&mut self) {
        if let Err(error) = self.free_once() {
            tracing::warn!(%error, "a public service point was not freed");
        }
    }
}

opaque_debug!(Psp, |it| [conn_qual: it.conn_qual]);
