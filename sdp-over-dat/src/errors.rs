//! From DAT's failures to those of a socket.

use std::io::{self, ErrorKind};

use dat_api::{ConnectionKind, Error};
use rustix::io::Errno;
use sdp_proto::wire::{HelloAck, WireError};

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

/// Whether the answer to a Hello, given with a refusal, says which version is spoken there: that is
/// what it was refused for.
pub(crate) fn names_version(private_data: &[u8]) -> bool {
    matches!(
        HelloAck::parse(private_data),
        Ok(_) | Err(WireError::Version { .. })
    )
}

/// What the protocol calls a failure, as `errno`.
pub(crate) fn of_protocol(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        ErrorKind::BrokenPipe => Errno::PIPE,
        ErrorKind::ConnectionAborted => Errno::CONNABORTED,
        ErrorKind::Unsupported => Errno::PROTONOSUPPORT,
        _ => Errno::CONNRESET,
    }
}
