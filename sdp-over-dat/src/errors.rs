//! Converts the failures of DAT and of the protocol to those of a socket.

use std::io::{self, ErrorKind};

use dat_api::{ConnectionKind, Error};
use rustix::io::Errno;
use sdp_proto::wire::{HelloAck, WireError};

/// A failed DAT call, as a socket call reports it.
pub(crate) fn of_dat(error: &Error) -> io::Error {
    io::Error::other(error.to_string())
}

/// The error of a connection that was not established, or has ended.
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

/// True if the private data of a refusal is a HelloAck that names the peer's version. The version
/// is then the reason for the refusal.
pub(crate) fn names_version(private_data: &[u8]) -> bool {
    matches!(
        HelloAck::parse(private_data),
        Ok(_) | Err(WireError::Version { .. })
    )
}

/// The `errno` of a protocol failure.
pub(crate) fn of_protocol(kind: ErrorKind) -> Errno {
    match kind {
        ErrorKind::ConnectionRefused => Errno::CONNREFUSED,
        ErrorKind::BrokenPipe => Errno::PIPE,
        ErrorKind::ConnectionAborted => Errno::CONNABORTED,
        ErrorKind::Unsupported => Errno::PROTONOSUPPORT,
        _ => Errno::CONNRESET,
    }
}
