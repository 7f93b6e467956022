//! Endpoints that a service point has reserved for a request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::{Ep, Evd};
use crate::handle::SpId;
use crate::lock::lock;
use crate::socket::{PassedSocket, SocketOwnership};

/// The endpoint that a service point has reserved, and the consumer's socket of the service point,
/// if it has one.
pub(crate) struct Reservation {
    ep: Ep,
    socket: Mutex<SocketOwnership>,
    /// True once the request has been read. From then on the request holds the endpoint.
    is_request_read: AtomicBool,
}

impl Reservation {
    /// Reserves `ep` for the request of service point `sp`, which will be delivered on `requests`.
    pub(crate) fn new(ep: &Ep, sp: SpId, requests: &Evd, socket: Option<PassedSocket>) -> Self {
        ep.inner.on_reserved(sp, requests);
        Self {
            ep: ep.clone(),
            socket: Mutex::new(socket.map_or(SocketOwnership::None, SocketOwnership::Passed)),
            is_request_read: AtomicBool::new(false),
        }
    }

    pub(crate) fn ep(&self) -> &Ep {
        &self.ep
    }

    pub(crate) fn socket(&self) -> MutexGuard<'_, SocketOwnership> {
        lock(&self.socket)
    }

    pub(crate) fn is_request_read(&self) -> bool {
        self.is_request_read.load(Ordering::Acquire)
    }

    /// Called when the request was read. Returns the endpoint and the socket, which belong to the
    /// request from now on.
    pub(super) fn on_request(&self) -> (Ep, Option<PassedSocket>) {
        self.is_request_read.store(true, Ordering::Release);
        (self.ep.clone(), self.socket().take_passed())
    }

    /// Called when the event of the socket's loss was read. A socket that is still open belongs to
    /// the consumer again.
    pub(super) fn on_socket_down(&self) {
        self.socket().on_not_established();
    }
}
