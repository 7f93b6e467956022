//! A violation of the protocol, and the data that a Terminate message reports about it.

use crate::{TerminateCode, wire::terminate::Offender};

/// The error that ends a stream.
///
/// The value is created when the error is detected, because the Terminate message quotes the
/// headers of the offending segment (RFC 5040 section 4.8). Pass it to
/// [`crate::Connection::terminate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
pub struct ProtocolError {
    /// The error.
    pub code: TerminateCode,
    /// The offending segment, if there is one and the rules allow the message to quote it.
    pub offender: Option<Offender>,
}

impl ProtocolError {
    /// An error that was not caused by an inbound segment, or whose segment must not be quoted
    /// because its bytes cannot be trusted (all MPA errors).
    #[must_use]
    pub const fn without_segment(code: TerminateCode) -> Self {
        Self {
            code,
            offender: None,
        }
    }

    /// An error found in a segment of `len` bytes, of which `ulpdu` has the headers at least.
    #[must_use]
    pub fn in_segment(code: TerminateCode, ulpdu: &[u8], len: usize) -> Self {
        Self {
            code,
            offender: Offender::capture(code, ulpdu, len),
        }
    }
}
