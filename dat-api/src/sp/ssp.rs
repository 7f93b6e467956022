//! Socket service points: a connected stream socket waits to become an RDMA connection
//! (DAT 2.0 iWARP extensions 3.1.1 to 3.1.3).

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use dat_abi::*;

use crate::connection::{Cr, Ep, EpState, Evd, Event, Reservation, Route, SocketRefused};
use crate::error::{Error, Result, check};
use crate::handle::{Handle, SpId};
use crate::socket::{PassedSocket, SocketOwnership};

/// A socket service point: accepts one request for RDMA over one socket, for one endpoint.
///
/// The service point takes ownership of the socket. At any time the socket has exactly one owner:
/// the service point until the peer's request is received, then the request, then the endpoint.
/// The call that ends a failed attempt returns the socket: [`free`](Self::free), [`Cr::reject`] or
/// [`Ep::take_socket`].
pub struct Ssp {
    handle: Handle,
    evd: Evd,
    reservation: Arc<Reservation>,
}

/// State of a socket service point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SspState {
    /// The socket is attached and a request may be received.
    Operational,
    /// A request was received, or the socket was lost.
    NonOperational,
}

/// Reasons for which no request was received over a socket.
#[derive(Debug, thiserror::Error)]
pub enum SspWaitError {
    /// The socket is no longer connected, or the bytes received over it were not a request for
    /// RDMA.
    #[error("the socket is down, or its peer sent no request for RDMA")]
    SocketDown,
    /// The timeout expired.
    #[error("the peer sent no request for RDMA in time")]
    TimedOut,
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Error),
}

impl Ssp {
    /// Waits on `socket`, a connected TCP socket, for the peer's request for RDMA. The request is
    /// delivered on `evd` and concerns `ep`.
    ///
    /// `final_message` is the last message in streaming mode. It is sent when the service point is
    /// ready to receive the request, so the peer may send its request as soon as it has read the
    /// message.
    ///
    /// # Errors
    /// The error contains the socket. `DAT_INVALID_STATE` when the endpoint is not unconnected, or
    /// when the socket is not TCP, does not run through this adapter, or did not accept the
    /// message; [`Error::is_unsupported`] when the provider has no socket service points.
    pub fn create(
        socket: impl Into<OwnedFd>,
        ep: &Ep,
        evd: &Evd,
        final_message: &[u8],
    ) -> Result<Self, SocketRefused> {
        let socket = socket.into();
        let Ok(message_len) = DatCount::try_from(final_message.len()) else {
            let error = Error::Unrepresentable {
                what: "a final streaming message",
            };
            return Err(SocketRefused { socket, error });
        };
        let socket = PassedSocket::pass(socket).map_err(|(socket, error)| SocketRefused {
            socket,
            error: error.into(),
        })?;
        let ia = evd.ia();
        let mut handle = DAT_HANDLE_NULL;
        // Another thread may dequeue the request before the route is stored. The lock makes that
        // thread wait.
        let mut routes = evd.routes();
        // SAFETY: the handles are live and the variadic arguments are those of the operation: int
        // socket, EP, EVD, pointer readable for the int length, writable out-pointer.
        let code = unsafe {
            (ia.library().dat_extension_op)(
                ia.as_raw(),
                DAT_IW_SSP_CREATE_OP,
                socket.number(),
                ep.as_raw(),
                evd.as_raw(),
                final_message.as_ptr().cast_mut(),
                message_len,
                &raw mut handle,
            )
        };
        if let Err(error) = check("dat_iw_ssp_create", code) {
            return Err(SocketRefused {
                socket: socket.into_owned(),
                error: error.into(),
            });
        }
        let reservation = Reservation::new(ep, SpId::of(handle), evd, Some(socket));
        let (handle, reservation) = (Handle(handle), Arc::new(reservation));
        let route = Route::Reservation(Arc::downgrade(&reservation));
        routes.insert(handle.key(), route);
        drop(routes);
        Ok(Self {
            handle,
            evd: evd.clone(),
            reservation,
        })
    }

    /// Waits for the request. Other events on the dispatcher are kept for later calls.
    ///
    /// If no request is received, [`free`](Self::free) returns the socket.
    pub fn wait_request(&self, timeout: Option<Duration>) -> Result<Cr, SspWaitError> {
        let id = self.id();
        let is_own = |event: &Event| match event {
            Event::ConnectionRequest(cr) => cr.service_point() == id,
            Event::SocketDown(sp) => *sp == id,
            _ => false,
        };
        match self.evd.wait_matching(timeout, is_own)? {
            Some(Event::ConnectionRequest(cr)) => Ok(cr),
            Some(_) => Err(SspWaitError::SocketDown),
            None => Err(SspWaitError::TimedOut),
        }
    }

    /// Returns the state of the service point.
    pub fn state(&self) -> Result<SspState> {
        let mut param = DatIwSspParam::zeroed();
        // SAFETY: the handle is live and the arguments are those of the operation: int-sized mask,
        // writable structure.
        let code = unsafe {
            (self.evd.ia().library().dat_extension_op)(
                self.handle.0,
                DAT_IW_SSP_QUERY_OP,
                DAT_IW_SSP_FIELD_ALL,
                &raw mut param,
            )
        };
        check("dat_iw_ssp_query", code)?;
        Ok(match param.ssp_state {
            DAT_IW_SSP_STATE_OPERATIONAL => SspState::Operational,
            _ => SspState::NonOperational,
        })
    }

    /// Frees the service point and returns the socket, unless the socket belongs to a request, read
    /// or unread.
    pub fn free(self) -> Result<Option<OwnedFd>> {
        self.free_once()?;
        Ok(self.reservation.socket().take_returned())
    }

    /// The identity in [`Cr::service_point`] and [`Event::SocketDown`].
    #[must_use]
    pub fn id(&self) -> SpId {
        SpId::of(self.handle.0)
    }

    /// The endpoint of the service point.
    #[must_use]
    pub fn ep(&self) -> &Ep {
        self.reservation.ep()
    }

    /// Frees the service point once. Afterwards the reservation has the socket as returned, or the
    /// socket belongs to an unread request.
    fn free_once(&self) -> Result<()> {
        // The lock keeps a request from being read between the free and the check of the socket's
        // owner.
        let mut routes = self.evd.routes();
        // A later service point may have the number of a freed one.
        let own = Arc::as_ptr(&self.reservation);
        match routes.get(&self.handle.key()) {
            Some(Route::Reservation(weak)) if weak.as_ptr() == own => {}
            _ => return Ok(()),
        }
        routes.remove(&self.handle.key());
        // SAFETY: the handle is live; the route has been removed, so this happens once.
        let code = unsafe {
            (self.evd.ia().library().dat_extension_op)(self.handle.0, DAT_IW_SSP_FREE_OP)
        };
        if let Err(error) = check("dat_iw_ssp_free", code) {
            std::mem::forget((self.ep().clone(), self.evd.clone()));
            return Err(error.into());
        }
        let mut ownership = self.reservation.socket();
        let Some(socket) = ownership.take_passed() else {
            return Ok(());
        };
        // The endpoint and the socket belong to the consumer again, or to an unread request (DAT
        // 2.0 iWARP extensions 3.1.2).
        match self.ep().state() {
            Ok(EpState::PassiveConnectionPending) => {
                routes.insert(
                    self.handle.key(),
                    Route::Orphan {
                        socket: Some(socket),
                        ep: Arc::downgrade(&self.ep().inner),
                    },
                );
            }
            _ => {
                self.ep().inner.on_released();
                *ownership = SocketOwnership::Returned(socket.into_owned());
            }
        }
        Ok(())
    }
}

impl Drop for Ssp {
    fn drop(&mut self) {
        if let Err(error) = self.free_once() {
            tracing::warn!(%error, "a socket service point was not freed");
        }
    }
}

opaque_debug!(Ssp, |it| [ep: *it.ep()]);
