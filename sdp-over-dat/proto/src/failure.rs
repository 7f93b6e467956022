//! The reasons for which a connection ends other than by two half closes.

use std::io::ErrorKind;

use crate::{ProtocolError, wire::WireError};

/// The reason why a connection ended, and the error that a socket user sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer did not accept the connection.
    #[error("the peer refused the connection")]
    Refused,
    /// The transport ended before both halves had ended.
    #[error("the transport was lost")]
    Reset,
    /// The peer sent AbortConn.
    #[error("the peer aborted the connection")]
    PeerAborted,
    /// The peer sent AbortConn, and this end no longer receives.
    #[error("the peer aborted a connection that this end no longer read")]
    PeerAbortedUnread,
    /// Bytes were received after this end had stopped receiving.
    #[error("the peer sent to an end that no longer receives")]
    ReceivedAfterShutdown,
    /// This end aborted.
    #[error("this end aborted the connection")]
    Aborted,
    /// The peer violated the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
}

impl Failure {
    /// The error that a socket call returns.
    ///
    /// A violation is reported as ECONNRESET too: a stream socket has no error for it, and programs
    /// can handle a reset. The log has the cause. A peer of another version is reported as
    /// EPROTONOSUPPORT, because its connection was never established and no data is lost.
    #[must_use]
    pub const fn error_kind(self) -> ErrorKind {
        match self {
            Self::Refused => ErrorKind::ConnectionRefused,
            Self::PeerAbortedUnread => ErrorKind::BrokenPipe,
            Self::Aborted => ErrorKind::ConnectionAborted,
            Self::Protocol(ProtocolError::Wire(WireError::Version { .. })) => {
                ErrorKind::Unsupported
            }
            Self::Reset | Self::PeerAborted | Self::ReceivedAfterShutdown | Self::Protocol(_) => {
                ErrorKind::ConnectionReset
            }
        }
    }
}
