//! Connection management: listening, connecting, accepting and ending.

use std::net::SocketAddr;
use std::time::Duration;

/// Address on which a service listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress {
    /// TCP port, or 0 to let the RNIC choose.
    pub port: u16,
}

/// Parameters of a connect.
#[derive(Debug, Clone, Copy)]
pub struct ConnectParams<'a> {
    /// Address and port of the service.
    pub remote: SocketAddr,
    /// Timeout of the whole attempt; `None` for no limit.
    pub timeout: Option<Duration>,
    /// Private data for the peer's consumer, of at most `RnicAttr::private_data_len_max` bytes.
    pub private_data: &'a [u8],
}

/// Parameters of an accept.
#[derive(Debug, Clone, Copy)]
pub struct AcceptParams<'a> {
    /// Private data for the peer's consumer, of at most `RnicAttr::private_data_len_max` bytes.
    pub private_data: &'a [u8],
}

/// Content of a connection request.
#[derive(Debug, Clone, Copy)]
pub struct RequestInfo<'a> {
    /// Address of this end.
    pub local: SocketAddr,
    /// Address of the peer.
    pub remote: SocketAddr,
    /// Private data of the peer's consumer.
    pub private_data: &'a [u8],
    /// True if the private data was longer than `RnicAttr::private_data_len_max` and has been
    /// truncated.
    pub truncated: bool,
}

/// Events of one connection. The RNIC has finished the queue pair's work before it reports that a
/// connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The connection is established: both sides may send.
    Established {
        /// Address of this end.
        local: SocketAddr,
        /// Address of the peer.
        remote: SocketAddr,
        /// Private data that the peer passed to its accept; empty at the accepting side.
        private_data: Vec<u8>,
    },
    /// The peer's consumer rejected the request.
    PeerRejected {
        /// Private data that the peer passed to its reject.
        private_data: Vec<u8>,
    },
    /// No listener exists, the peer does not speak MPA, or the start-up parameters do not match.
    NonPeerRejected,
    /// No route, or no answer from the network.
    Unreachable,
    /// The consumer's timeout expired.
    TimedOut,
    /// The peer closed an accepted connection before it was usable.
    AcceptFailed,
    /// Either side closed an established or pending connection in an orderly way.
    Disconnected,
    /// The connection failed: reset, Terminate, protocol error, failed work request.
    Broken,
}

impl ConnectionEvent {
    /// True if the connection was established and has ended.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        matches!(self, Self::Disconnected | Self::Broken)
    }
}

/// Reasons for which the RNIC refuses a consumer's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SocketFault {
    /// The number is not an open descriptor, or the descriptor is not a socket.
    #[error("not an open socket descriptor")]
    NotASocket,
    /// The socket is not a TCP stream socket that this RNIC can use.
    #[error("not a TCP stream socket")]
    NotTcp,
    /// The socket's route does not lead through this interface adapter.
    #[error("the socket is not routed through this interface adapter")]
    NotRouted,
    /// A service point, a request, an attempt to connect or a connection already uses the socket,
    /// under this descriptor or a duplicate.
    #[error("the socket is used by a service point or a connection already")]
    InUse,
    /// The final streaming message could not be sent completely. The socket is returned, and a part
    /// of the message may be in the stream.
    #[error("the final streaming message could not be sent")]
    FinalMessage,
    /// The queue pair is not idle.
    #[error("the queue pair is not idle")]
    QpNotIdle,
    /// Out of descriptors or memory.
    #[error("out of descriptors or memory")]
    NoResources,
}
