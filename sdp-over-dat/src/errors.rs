//! From DAT's failures to those of a socket.

use std::io::{self, ErrorKind};

use dat_api::{ConnectionKind, Error};
use rustix::io::Errno;

/// A failed DAT call as a socket call reports it.
pub(crate) fn of_dat(error: &Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// Why a connection did not come about, or ended.
pub(crate) fn of_connection(kind: ConnectionKind) -> Errno {
    match kind {
        ConnectionKind::PeerRejected | ConnectionKind::NonPeerRejected => Errno::CONNREFUSED,
        ConnectionKind::TimedOut => Errno::TIMEDOUT,
        ConnectionKind::Unreachable => Errno::HOSTUNREACH,
        ConnectionKind::Established
        | ConnectionKind::AcceptCompletionError
        | ConnectionKind::Disconnected
        | ConnectionKind::Broken => Errno::CONNRESET,
    }
}

/// What the protocol calls a failure, as `errno`.
pub(crate) fn of_protocol(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        ErrorKind::BrokenPipe => Errno::PIPE,
        ErrorKind::ConnectionAborted => Errno::CONNABORTED,
        _ => Errno::CONNRESET,
    }
}
