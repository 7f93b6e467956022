//! Connecting an endpoint: to a service point, or over a socket that is connected already.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use dat_abi::*;

use super::super::{Ep, Event};
use super::Close;
use crate::address::timeout_us;
use crate::error::{Error, Result, check};
use crate::event::{ConnectionEvent, ConnectionKind};
use crate::private_data::private_data_parts;
use crate::socket::PassedSocket;

/// The time that a blocking connect waits for the outcome after the provider's own timeout.
const GRACE: Duration = Duration::from_secs(5);

/// A socket that a call refused, and the error.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SocketRefused {
    /// The socket, unchanged.
    pub socket: OwnedFd,
    /// The reason of the refusal.
    pub error: Error,
}

/// A connection that could not be established.
#[derive(Debug, thiserror::Error)]
#[error("no RDMA connection: {reason}")]
pub struct ConnectError {
    /// The reason.
    pub reason: ConnectFailure,
    /// Private data that the peer's program passed to its reject.
    pub private_data: Vec<u8>,
    /// The consumer's socket, ready to be used in streaming mode. `None` when no socket was passed,
    /// or when the provider did not release the socket.
    pub socket: Option<OwnedFd>,
}

/// The reason why a connection could not be established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectFailure {
    /// A call failed: the attempt was not started, or waiting for its outcome failed.
    #[error(transparent)]
    Call(#[from] Error),
    /// The attempt ended with this event.
    #[error("{0}")]
    Ended(ConnectionKind),
}

impl Ep {
    /// Starts to connect to the service `conn_qual` at `remote`, whose port is ignored. The outcome
    /// is an event on the connection dispatcher. `timeout` `None` sets no limit; a limit of more
    /// than 71.6 minutes, which DAT cannot express, is reduced to that.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` when the endpoint is not unconnected, `DAT_INVALID_PARAMETER` for a
    /// timeout of zero or too much private data, `DAT_INVALID_ADDRESS` for an unspecified address
    /// or a qualifier that is port 0.
    pub fn start_connect(
        &self,
        remote: SocketAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        let (len, data) = private_data_parts(private_data)?;
        let mut address = CSocketAddr::from(remote);
        let (timeout, qos) = (timeout_us(timeout), DAT_QOS_BEST_EFFORT);
        self.start("dat_ep_connect", |ep| {
            let (connect, flags) = (self.library().dat_ep_connect, DAT_CONNECT_DEFAULT_FLAG);
            // SAFETY: the handle is live; address and private data are readable for the call.
            unsafe {
                connect(
                    ep,
                    address.as_ptr(),
                    conn_qual,
                    timeout,
                    len,
                    data,
                    qos,
                    flags,
                )
            }
        })
    }

    /// Starts to connect to the service to which `other` is connected. The outcome is an event on
    /// the connection dispatcher.
    pub fn start_dup_connect(
        &self,
        other: &Ep,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        let (len, data) = private_data_parts(private_data)?;
        self.start("dat_ep_dup_connect", |ep| {
            let (connect, dup) = (self.library().dat_ep_dup_connect, other.as_raw());
            // SAFETY: both handles are live; the private data is readable for the call.
            unsafe { connect(ep, dup, timeout_us(timeout), len, data, DAT_QOS_BEST_EFFORT) }
        })
    }

    /// Starts to connect to the address and port `remote`, where a [`Csp`](crate::Csp) or any other
    /// iWARP stack listens. OFA's registry library does not export this call.
    pub fn start_common_connect(
        &self,
        remote: SocketAddr,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        const CALL: &str = "dat_ep_common_connect";
        let connect = self.library().dat_ep_common_connect;
        let connect = connect.ok_or(Error::Missing { call: CALL })?;
        let (len, data) = private_data_parts(private_data)?;
        let mut address = CSocketAddr::from(remote);
        self.start(CALL, |ep| {
            // SAFETY: the handle is live; address and private data are readable for the call.
            unsafe { connect(ep, address.as_ptr(), timeout_us(timeout), len, data) }
        })
    }

    /// Registers an attempt, which `connect` starts, and unregisters it if it does not start.
    fn start(
        &self,
        call: &'static str,
        connect: impl FnOnce(DatEpHandle) -> DatReturn,
    ) -> Result<()> {
        self.inner.on_attempt(None);
        check(call, connect(self.as_raw())).map_err(|error| {
            self.inner.on_attempt_refused();
            error.into()
        })
    }

    /// Connects to the service `conn_qual` at `remote` and waits for the outcome. Returns the
    /// private data that the peer passed to its accept.
    ///
    /// Events of other endpoints on the connection dispatcher are kept for later calls. The event
    /// that ended an earlier connection of this endpoint must have been read before.
    pub fn connect(
        &self,
        remote: SocketAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<Vec<u8>, ConnectError> {
        self.start_connect(remote, conn_qual, timeout, private_data)
            .map_err(|error| ConnectError::of_call(error, None))?;
        self.wait_established(timeout.map(|timeout| timeout.saturating_add(GRACE)))
    }

    /// Starts to turn `socket`, a connected TCP socket, into an RDMA connection, as its active side
    /// (DAT 2.0 iWARP extensions 3.1.4).
    ///
    /// The call takes ownership of the socket. If the attempt fails, its event is delivered on the
    /// connection dispatcher, and after that event was read [`take_socket`](Self::take_socket)
    /// returns the socket.
    pub fn start_connect_socket(
        &self,
        socket: impl Into<OwnedFd>,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<(), SocketRefused> {
        let socket = socket.into();
        let (len, data) = match private_data_parts(private_data) {
            Ok(parts) => parts,
            Err(error) => return Err(SocketRefused { socket, error }),
        };
        let socket = PassedSocket::pass(socket).map_err(|(socket, error)| SocketRefused {
            socket,
            error: error.into(),
        })?;
        let number = socket.number();
        // Another thread may read the outcome before the call returns, so the socket is registered
        // first.
        self.inner.on_attempt(Some(socket));
        // SAFETY: the handle is live and the variadic arguments are those of the operation: int
        // socket, u32 microseconds, int length, pointer readable for that length.
        let code = unsafe {
            (self.inner.pz.ia().library().dat_extension_op)(
                self.as_raw(),
                DAT_IW_SOCKET_CONNECT_OP,
                number,
                timeout_us(timeout),
                len,
                data,
            )
        };
        let Err(error) = check("dat_iw_socket_connect", code) else {
            return Ok(());
        };
        match self.inner.on_attempt_refused() {
            Some(socket) => Err(SocketRefused {
                socket: socket.into_owned(),
                error: error.into(),
            }),
            None => {
                // Reached only if a provider refuses the call and reports an outcome as well. The
                // event has determined the owner of the socket.
                tracing::error!(%error, "a refused socket had an outcome");
                Ok(())
            }
        }
    }

    /// Turns `socket`, a connected TCP socket, into an RDMA connection, as its active side, and
    /// waits for the outcome. Returns the private data that the peer passed to its accept.
    ///
    /// If no connection is established, the error contains the socket, ready to be used in
    /// streaming mode.
    pub fn connect_socket(
        &self,
        socket: impl Into<OwnedFd>,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<Vec<u8>, ConnectError> {
        self.start_connect_socket(socket, timeout, private_data)
            .map_err(|refused| ConnectError::of_call(refused.error, Some(refused.socket)))?;
        self.wait_established(timeout.map(|timeout| timeout.saturating_add(GRACE)))
    }

    /// Waits for the outcome of an attempt or an accept on the connection dispatcher. Returns the
    /// private data that the peer passed to its accept; empty at the accepting side.
    ///
    /// An attempt without an outcome after `timeout` is aborted, and the error contains the socket.
    pub fn wait_established(&self, timeout: Option<Duration>) -> Result<Vec<u8>, ConnectError> {
        match self.wait_connection_event(timeout) {
            Ok(event) if event.kind == ConnectionKind::Established => Ok(event.private_data),
            Ok(event) => Err(ConnectError {
                reason: ConnectFailure::Ended(event.kind),
                private_data: event.private_data,
                socket: self.take_socket(),
            }),
            Err(error) => {
                let aborted = self.disconnect(Close::Abrupt);
                if aborted.is_ok() {
                    // The event that ends the attempt determines the owner of the socket. Without
                    // that event the endpoint keeps the socket.
                    let _ = self.wait_connection_event(Some(GRACE));
                }
                Err(ConnectError::of_call(error, self.take_socket()))
            }
        }
    }

    /// Waits until the connection has ended for any reason, and returns the kind of the event.
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> Result<ConnectionKind> {
        loop {
            let event = self.wait_connection_event(timeout)?;
            if event.kind != ConnectionKind::Established {
                return Ok(event.kind);
            }
        }
    }

    fn wait_connection_event(&self, timeout: Option<Duration>) -> Result<ConnectionEvent> {
        let id = self.id();
        let is_own = |event: &Event| matches!(event, Event::Connection(event) if event.ep == id);
        match self.connect_evd().wait_matching(timeout, is_own)? {
            Some(Event::Connection(event)) => Ok(event),
            _ => Err(Error::TimedOut),
        }
    }
}

impl ConnectError {
    fn of_call(error: Error, socket: Option<OwnedFd>) -> Self {
        Self {
            reason: ConnectFailure::Call(error),
            private_data: Vec::new(),
            socket,
        }
    }
}
