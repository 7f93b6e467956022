//! Common service points: a service at a transport address, for any iWARP stack.

use std::net::SocketAddr;

use dat_abi::*;

use crate::address::read_address;
use crate::connection::Evd;
use crate::error::{Error, Result, check};
use crate::handle::{Handle, SpId};
use crate::ia::Ia;

/// A common service point. Dropping the service point stops the service; received requests stay
/// valid. OFA's registry library does not export these calls.
pub struct Csp {
    handle: Handle,
    evd: Evd,
    free: DatCspFreeFunc,
    address: SocketAddr,
}

impl Csp {
    /// Offers a service at `address`, whose IP is the adapter's or unspecified; port 0 selects any
    /// free port. Requests are delivered on `evd`.
    pub fn create(ia: &Ia, address: SocketAddr, evd: &Evd) -> Result<Self> {
        let missing = |call| Error::Missing { call };
        let library = ia.library();
        let create = library.dat_csp_create.ok_or(missing("dat_csp_create"))?;
        let query = library.dat_csp_query.ok_or(missing("dat_csp_query"))?;
        let free = library.dat_csp_free.ok_or(missing("dat_csp_free"))?;
        // Zeros select TCP in the family of the address.
        let (mut comm, mut raw) = (DatComm::zeroed(), CSocketAddr::from(address));
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: IA and dispatcher are live, communicator and address readable, and the
        // out-pointer writable.
        let code = unsafe {
            create(
                ia.as_raw(),
                &mut comm,
                raw.as_ptr(),
                evd.as_raw(),
                &mut handle,
            )
        };
        check("dat_csp_create", code)?;
        let mut csp = Self {
            handle: Handle(handle),
            evd: evd.clone(),
            free,
            address,
        };
        let mut param = DatCspParam::zeroed();
        // SAFETY: the handle is live and the out-pointer writable.
        check("dat_csp_query", unsafe {
            query(handle, DAT_CSP_FIELD_ALL, &mut param)
        })?;
        // SAFETY: the address of a service point is null or valid until the service point is freed.
        if let Some(own) = unsafe { read_address(param.address_ptr) } {
            csp.address = own;
        }
        Ok(csp)
    }

    /// The address on which the service point listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The identity that [`Cr::service_point`](crate::Cr::service_point) returns.
    #[must_use]
    pub fn id(&self) -> SpId {
        SpId::of(self.handle.0)
    }
}

impl Drop for Csp {
    fn drop(&mut self) {
        // SAFETY: the handle is live and used for the last time.
        let code = unsafe { (self.free)(self.handle.0) };
        if let Err(error) = check("dat_csp_free", code) {
            tracing::warn!(%error, "a common service point was not freed");
            std::mem::forget(self.evd.clone());
        }
    }
}

opaque_debug!(Csp, |it| [address: it.address]);
