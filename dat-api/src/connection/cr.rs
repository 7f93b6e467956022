//! Connection requests (DAT 2.0 section 6.5).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use dat_abi::*;

use super::{Cr, Ep};
use crate::address::read_address;
use crate::error::{CallError, Error, Result, check};
use crate::handle::{Handle, SpId};
use crate::ia::Ia;
use crate::private_data::{copy_private_data, private_data_parts};
use crate::socket::PassedSocket;

/// A request that could not be answered, and the error. The request may be answered in another way.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct AnswerError {
    /// The request.
    pub request: Box<Cr>,
    /// The reason.
    #[source]
    pub error: Error,
}

impl Cr {
    /// # Safety
    ///
    /// `raw` describes a live request that no other [`Cr`] wraps.
    pub(crate) unsafe fn arrived(
        ia: Ia,
        raw: &DatCrArrivalEventData,
        ep: Option<Ep>,
        socket: Option<PassedSocket>,
    ) -> Self {
        let mut param = DatCrParam::zeroed();
        // SAFETY: the request is live and the out-pointer writable.
        let code =
            unsafe { (ia.library().dat_cr_query)(raw.cr_handle, DAT_CR_FIELD_ALL, &mut param) };
        if let Err(error) = check("dat_cr_query", code) {
            // The request can be answered without the address of the requester.
            tracing::warn!(%error, "the origin of a connection request is unknown");
            param = DatCrParam::zeroed();
        }
        // SAFETY: the provider's address and private data are valid until the request is answered.
        let (remote, private_data) = unsafe {
            (
                read_address(param.remote_ia_address_ptr),
                copy_private_data(param.private_data, param.private_data_size),
            )
        };
        let port = u16::try_from(param.remote_port_qual).ok();
        let remote =
            remote.map(|address| SocketAddr::new(address.ip(), port.unwrap_or(address.port())));
        Self {
            handle: Handle(raw.cr_handle),
            ia,
            sp: SpId::of(raw.sp_handle.as_handle()),
            conn_qual: raw.conn_qual,
            is_truncated: raw.truncate_flag != DAT_FALSE,
            remote,
            private_data,
            ep,
            skipped_ep: Weak::new(),
            socket,
        }
    }

    /// Called when the request is stored in its dispatcher. The stored request must not keep the
    /// endpoint alive.
    pub(crate) fn on_skipped(&mut self) {
        if let Some(ep) = self.ep.take() {
            self.skipped_ep = Arc::downgrade(&ep.inner);
        }
    }

    /// Called when the request has been taken out of its dispatcher again.
    pub(crate) fn on_taken(&mut self) {
        if self.ep.is_none() {
            self.ep = Ep::from_weak(&self.skipped_ep);
        }
    }

    /// Accepts the request on the endpoint that the service point reserved, otherwise on `ep`, an
    /// unconnected endpoint. Returns that endpoint; its connection dispatcher reports the outcome.
    ///
    /// # Errors
    /// The error contains the request, which may be answered in another way. Reasons: no endpoint,
    /// more private data than [`ProviderAttr::max_private_data_size`](crate::ProviderAttr), or an
    /// endpoint that is not unconnected (`DAT_INVALID_STATE`).
    pub fn accept(mut self, ep: Option<&Ep>, private_data: &[u8]) -> Result<Ep, AnswerError> {
        let Some(target) = self.ep.clone().or_else(|| ep.cloned()) else {
            let error = Error::Unrepresentable {
                what: "an accept without an endpoint",
            };
            return Err(self.unanswered(error));
        };
        // A request with a reserved endpoint is accepted without naming the endpoint (DAT 2.0
        // section 6.5).
        let named = if self.ep.is_some() {
            DAT_HANDLE_NULL
        } else {
            target.as_raw()
        };
        // Another thread may read the outcome before this call returns, so the socket is handed
        // over first.
        target.inner.on_attempt(self.socket.take());
        match self.answer(private_data, |library, handle, len, data| {
            // SAFETY: request and endpoint are live, and `data` is readable for `len` bytes.
            check("dat_cr_accept", unsafe {
                (library.dat_cr_accept)(handle, named, len, data)
            })
        }) {
            Ok(()) => Ok(target),
            Err(error) => {
                self.socket = target.inner.on_attempt_refused();
                Err(self.unanswered(error))
            }
        }
    }

    /// Hands the request to the service `conn_qual` of the same adapter, in this process or in
    /// another process of the host. The service receives it as a new request.
    ///
    /// # Errors
    /// The error contains the request. The call fails for a request that was received over a
    /// consumer's socket, and with `DAT_INVALID_PARAMETER` when no process has a service point for
    /// `conn_qual`.
    pub fn handoff(mut self, conn_qual: u64) -> Result<(), AnswerError> {
        let result = if self.socket.is_some() {
            Err(Error::Unrepresentable {
                what: "the handoff of a request over a socket",
            })
        } else {
            // SAFETY: the request is live.
            let code = unsafe { (self.ia.library().dat_cr_handoff)(self.handle.0, conn_qual) };
            check("dat_cr_handoff", code).map_err(Error::from)
        };
        match result {
            Ok(()) => {
                self.handle = Handle::NULL;
                Ok(())
            }
            Err(error) => Err(self.unanswered(error)),
        }
    }

    /// Rejects the request. If it was received over a consumer's socket, returns the socket.
    pub fn reject(mut self, private_data: &[u8]) -> Result<Option<OwnedFd>, AnswerError> {
        match self.reject_once(private_data) {
            Ok(()) => Ok(self.socket.take().map(PassedSocket::into_owned)),
            Err(error) => Err(self.unanswered(error)),
        }
    }

    fn unanswered(self, error: Error) -> AnswerError {
        AnswerError {
            request: Box::new(self),
            error,
        }
    }

    fn reject_once(&mut self, private_data: &[u8]) -> Result<()> {
        self.answer(private_data, |library, handle, len, data| {
            // SAFETY: the request is live and `data` is readable for `len` bytes.
            check("dat_cr_reject", unsafe {
                (library.dat_cr_reject)(handle, len, data)
            })
        })
    }

    fn answer(
        &mut self,
        private_data: &[u8],
        call: impl FnOnce(
            &crate::Library,
            DatCrHandle,
            DatCount,
            *const std::ffi::c_void,
        ) -> Result<(), CallError>,
    ) -> Result<()> {
        let (len, data) = private_data_parts(private_data)?;
        call(self.ia.library(), self.handle.0, len, data)?;
        self.handle = Handle::NULL;
        Ok(())
    }

    /// Private data that the peer passed to its connect.
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// True if the private data was truncated to the length that this provider supports.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    /// The peer's address, if the provider reports it.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.remote
    }

    /// The connection qualifier of the request; for a socket service point the local port.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.conn_qual
    }

    /// The service point that received the request.
    #[must_use]
    pub fn service_point(&self) -> SpId {
        self.sp
    }

    /// The endpoint that the service point reserved for the request.
    #[must_use]
    pub fn reserved_ep(&self) -> Option<&Ep> {
        self.ep.as_ref()
    }
}

impl Drop for Cr {
    fn drop(&mut self) {
        if self.handle != Handle::NULL {
            match self.reject_once(&[]) {
                // The provider has released the socket. The program dropped the request, so the
                // socket is closed.
                Ok(()) => drop(self.socket.take().map(PassedSocket::into_owned)),
                Err(error) => {
                    tracing::warn!(%error, "a dropped connection request was not rejected")
                }
            }
        }
    }
}

opaque_debug!(Cr, |it| [sp: it.sp, remote: it.remote, conn_qual: it.conn_qual]);
