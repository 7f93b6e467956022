//! A violation of the protocol, with what a Terminate message reports about it.

use crate::{TerminateCode, wire::terminate::Offender};

/// The error that ends a stream.
///
/// Made when it is detected, because the Terminate message quotes the headers of the offending
/// segment (RFC 5040 section 4.8). Hand it to [`crate::Connection::terminate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
pub struct ProtocolError {
    /// What went wrong.
    pub code: TerminateCode,
    /// The offending segment, when there is one and the rules let the message quote it.
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
