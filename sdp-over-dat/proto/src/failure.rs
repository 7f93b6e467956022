//! How a connection ends other than by two half closes.

use std::io::ErrorKind;

use crate::{ProtocolError, wire::WireError};

/// Why a connection ended, and what a socket user sees of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The peer did not take the connection.
    #[error("the peer refused the connection")]
    Refused,
    /// The transport went away before both halves had ended.
    #[error("the transport was lost")]
    Reset,
    /// The peer said AbortConn.
    #[error("the peer aborted the connection")]
    PeerAborted,
    /// The peer said AbortConn, and nobody here wants to receive any more.
    #[error("the peer aborted a connection that was only written to")]
    PeerAbortedUnread,
    /// Bytes came that nobody will read.
    #[error("the peer sent to an end that no longer receives")]
    NobodyReads,
    /// This end gave up.
    #[error("this end aborted the connection")]
    Aborted,
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
}

impl Failure {
    /// What a socket call reports.
    ///
    /// A violation is ECONNRESET too: a stream socket has no word for it, and programs know how to
    /// take a reset. The log has the cause. Only a peer of another version is told apart,
    /// because nothing is lost with a connection that never stood.
    #[must_use]
    pub const fn error_kind(self) -> ErrorKind {
        match self {
            Self::Refused => ErrorKind::ConnectionRefused,
            Self::PeerAbortedUnread => ErrorKind::BrokenPipe,
            Self::Aborted => ErrorKind::ConnectionAborted,
            Self::Protocol(ProtocolError::Wire(WireError::Version { .. })) => {
                ErrorKind::Unsupported
            }
            Self::Reset | Self::PeerAborted | Self::NobodyReads | Self::Protocol(_) => {
                ErrorKind::ConnectionReset
            }
        }
    }
}
