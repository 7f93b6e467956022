//! Making and ending connections.

use std::net::SocketAddr;
use std::time::Duration;

/// Where a service listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress {
    /// TCP port, or 0 for one of the RNIC's choice.
    pub port: u16,
}

/// How to connect.
#[derive(Debug, Clone, Copy)]
pub struct ConnectParams<'a> {
    /// Address and port of the service.
    pub remote: SocketAddr,
    /// For the whole attempt; `None` waits for ever.
    pub timeout: Option<Duration>,
    /// For the peer's consumer; within `RnicAttr::private_data_len_max`.
    pub private_data: &'a [u8],
}

/// How to accept.
#[derive(Debug, Clone, Copy)]
pub struct AcceptParams<'a> {
    /// For the peer's consumer; within `RnicAttr::private_data_len_max`.
    pub private_data: &'a [u8],
}

/// What a connection request says.
#[derive(Debug, Clone, Copy)]
pub struct RequestInfo<'a> {
    /// Our side of the connection.
    pub local: SocketAddr,
    /// The peer's side.
    pub remote: SocketAddr,
    /// The peer consumer's private data.
    pub private_data: &'a [u8],
    /// It was longer than `RnicAttr::private_data_len_max` and has been cut.
    pub truncated: bool,
}

/// News of one connection. The RNIC has finished with the queue pair's work before it tells an
/// ending.
#[derive(Debug, Clone, Copy)]
pub enum ConnectionEvent<'a> {
    /// Both sides may send.
    Established {
        /// Our side.
        local: SocketAddr,
        /// The peer's side.
        remote: SocketAddr,
        /// What the peer gave to its accept; empty at the accepting side.
        private_data: &'a [u8],
    },
    /// The peer's consumer rejected.
    PeerRejected {
        /// What it gave to its reject.
        private_data: &'a [u8],
    },
    /// Nobody listens, or the peer does not speak MPA, or start-up parameters do not fit.
    NonPeerRejected,
    /// No route, no answer from the network.
    Unreachable,
    /// The consumer's timeout passed.
    TimedOut,
    /// The accepted peer went away before the connection was usable.
    AcceptFailed,
    /// Either side ended an established or pending connection in good order.
    Disconnected,
    /// It broke: reset, Terminate, protocol error, failed work request.
    Broken,
}

/// Why a consumer's socket was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocketFault {
    /// Not an open descriptor, or not a socket at all.
    #[error("not an open socket descriptor")]
    NotASocket,
    /// Not a TCP stream socket that this RNIC can use.
    #[error("not a TCP stream socket")]
    NotTcp,
    /// Its route does not lead through this interface adapter.
    #[error("the socket is not routed through this interface adapter")]
    NotRouted,
    /// A service point, a request, an attempt to connect or a connection has the socket already,
    /// under this number or another one.
    #[error("the socket is used by a service point or a connection already")]
    InUse,
    /// The final streaming message could not be sent whole; the socket is of no use any more.
    #[error("the final streaming message could not be sent")]
    FinalMessage,
    /// The queue pair is not idle.
    #[error("the queue pair is not idle")]
    QpNotIdle,
    /// Descriptors or memory ran out.
    #[error("out of descriptors or memory")]
    NoResources,
    /// This RNIC cannot take a consumer's socket.
    #[error("this interface adapter cannot take a consumer's socket")]
    NotSupported,
}
