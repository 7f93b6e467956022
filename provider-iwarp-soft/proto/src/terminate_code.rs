//! The one number space of stream errors: layer, type and code of a Terminate message.
//!
//! RFC 5040 section 4.8, RFC 5041 section 7.2, RFC 5044 section 8, and the three MPA codes that RFC
//! 6581 adds. Each variant has exactly one triple. [`TerminateCode::Other`] keeps any other triple
//! of a peer.

use crate::{InvalidateFault, ProtectionFault};

/// The reason why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum TerminateCode {
    /// RDMAP local catastrophic error (0/0/00): the fault is with the sender of the Terminate.
    #[error("RDMAP local catastrophic error")]
    RdmapCatastrophic,
    /// RDMAP remote protection error (layer 0, type 1): a Read Request, an atomic, or an
    /// invalidation.
    #[error("RDMAP remote protection error: {0:?}")]
    RemoteProtection(RemoteProtection),
    /// RDMAP remote operation error (layer 0, type 2).
    #[error("RDMAP remote operation error: {0:?}")]
    RemoteOperation(RemoteOperation),
    /// DDP local catastrophic error (1/0/00).
    #[error("DDP local catastrophic error")]
    DdpCatastrophic,
    /// DDP tagged buffer error (layer 1, type 1).
    #[error("DDP tagged buffer error: {0:?}")]
    Tagged(TaggedError),
    /// DDP untagged buffer error (layer 1, type 2).
    #[error("DDP untagged buffer error: {0:?}")]
    Untagged(UntaggedError),
    /// MPA error (layer 2, type 0).
    #[error("MPA error: {0}")]
    Mpa(MpaError),
    /// A triple that this crate does not name.
    #[error("unknown error {layer}/{etype}/{code:#04x}")]
    Other {
        /// 4 bits.
        layer: u8,
        /// 4 bits.
        etype: u8,
        /// 8 bits.
        code: u8,
    },
}

/// Codes of RDMAP remote protection errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RemoteProtection {
    /// The STag is not valid.
    InvalidStag = 0x00,
    /// Base or bounds violation.
    Bounds = 0x01,
    /// The STag does not grant the access.
    AccessViolation = 0x02,
    /// The STag is not associated with the stream.
    NotAssociated = 0x03,
    /// The tagged offset wraps.
    Wrap = 0x04,
    /// The STag cannot be invalidated.
    NotInvalidatable = 0x09,
    /// Any other error.
    Unspecified = 0xFF,
}

/// Codes of RDMAP remote operation errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RemoteOperation {
    /// The RDMAP version is not 1.
    Version = 0x05,
    /// The opcode is unknown, or not expected here.
    UnexpectedOpcode = 0x06,
    /// Catastrophic, this stream: more reads than IRD, a misaligned atomic.
    CatastrophicStream = 0x07,
    /// Catastrophic, all streams.
    CatastrophicGlobal = 0x08,
    /// The STag cannot be invalidated.
    NotInvalidatable = 0x09,
    /// Any other error.
    Unspecified = 0xFF,
}

/// Codes of DDP tagged buffer errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TaggedError {
    /// The STag is not valid, or does not allow placement.
    InvalidStag = 0x00,
    /// Base or bounds violation.
    Bounds = 0x01,
    /// The STag is not associated with the stream.
    NotAssociated = 0x02,
    /// The tagged offset wraps.
    Wrap = 0x03,
    /// The DDP version is not 1.
    Version = 0x04,
}

/// Codes of DDP untagged buffer errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum UntaggedError {
    /// The queue number is not valid.
    InvalidQn = 0x01,
    /// No buffer is available.
    NoBuffer = 0x02,
    /// The message sequence number is out of range.
    MsnRange = 0x03,
    /// The message offset is not the expected one.
    InvalidMo = 0x04,
    /// The message is longer than the buffer.
    TooLong = 0x05,
    /// The DDP version is not 1.
    Version = 0x06,
}

/// MPA error codes (RFC 5044 section 8; the last three are RFC 6581's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum MpaError {
    /// The TCP connection was lost or closed.
    #[error("the TCP connection was lost or closed")]
    Closed = 1,
    /// The CRC of an FPDU is wrong.
    #[error("CRC mismatch")]
    Crc = 2,
    /// A marker and the ULPDU length disagree, or the length is impossible.
    #[error("the FPDU length is impossible or disagrees with a marker")]
    Length = 3,
    /// A start-up frame is invalid.
    #[error("invalid MPA start-up frame")]
    Startup = 4,
    /// RFC 6581: local catastrophic.
    #[error("local catastrophic error")]
    LocalCatastrophic = 5,
    /// RFC 6581: our IRD cannot serve the peer's ORD.
    #[error("insufficient IRD resources")]
    InsufficientIrd = 6,
    /// RFC 6581: the Reply contains no ready-to-receive message that we could send.
    #[error("no matching RTR option")]
    NoMatchingRtr = 7,
}

impl TerminateCode {
    /// The error for a peer's tagged segment that memory refused (RFC 5041 section 7).
    ///
    /// DDP has no code for a missing right: it falls under "invalid STag", which lists "STag
    /// allows placement" among its conditions.
    #[must_use]
    pub const fn tagged(fault: ProtectionFault) -> Self {
        Self::Tagged(match fault {
            ProtectionFault::InvalidStag | ProtectionFault::AccessViolation => {
                TaggedError::InvalidStag
            }
            ProtectionFault::NotAssociated => TaggedError::NotAssociated,
            ProtectionFault::Wrap => TaggedError::Wrap,
            ProtectionFault::Bounds => TaggedError::Bounds,
        })
    }

    /// The error for a peer's Read Request or atomic that memory refused (RFC 5040 section 7.2).
    #[must_use]
    pub const fn remote(fault: ProtectionFault) -> Self {
        Self::RemoteProtection(match fault {
            ProtectionFault::InvalidStag => RemoteProtection::InvalidStag,
            ProtectionFault::AccessViolation => RemoteProtection::AccessViolation,
            ProtectionFault::NotAssociated => RemoteProtection::NotAssociated,
            ProtectionFault::Wrap => RemoteProtection::Wrap,
            ProtectionFault::Bounds => RemoteProtection::Bounds,
        })
    }

    /// The error for an invalidation that memory refused (RFC 5040 section 7.2).
    #[must_use]
    pub const fn invalidate(fault: InvalidateFault) -> Self {
        Self::RemoteProtection(match fault {
            InvalidateFault::InvalidStag => RemoteProtection::InvalidStag,
            InvalidateFault::NotAssociated => RemoteProtection::NotAssociated,
            InvalidateFault::NotInvalidatable => RemoteProtection::NotInvalidatable,
        })
    }

    /// Layer (4 bits), type (4 bits) and code of this error.
    #[must_use]
    pub const fn to_triple(self) -> (u8, u8, u8) {
        match self {
            Self::RdmapCatastrophic => (0, 0, 0),
            Self::RemoteProtection(code) => (0, 1, code as u8),
            Self::RemoteOperation(code) => (0, 2, code as u8),
            Self::DdpCatastrophic => (1, 0, 0),
            Self::Tagged(code) => (1, 1, code as u8),
            Self::Untagged(code) => (1, 2, code as u8),
            Self::Mpa(code) => (2, 0, code as u8),
            Self::Other { layer, etype, code } => (layer, etype, code),
        }
    }

    /// The error with this layer, type and code.
    #[must_use]
    pub fn from_triple(layer: u8, etype: u8, code: u8) -> Self {
        let known = match (layer, etype) {
            // RFC 5040 section 4.8: the code of a local catastrophic error has no meaning.
            (0, 0) => Some(Self::RdmapCatastrophic),
            (0, 1) => RemoteProtection::from_code(code).map(Self::RemoteProtection),
            (0, 2) => RemoteOperation::from_code(code).map(Self::RemoteOperation),
            (1, 0) => Some(Self::DdpCatastrophic),
            (1, 1) => TaggedError::from_code(code).map(Self::Tagged),
            (1, 2) => UntaggedError::from_code(code).map(Self::Untagged),
            (2, 0) => MpaError::from_code(code).map(Self::Mpa),
            _ => None,
        };
        known.unwrap_or(Self::Other { layer, etype, code })
    }
}

/// Implements the inverse of `as u8` for an error enum, from the list of its variants.
macro_rules! from_code {
    ($name:ident: $($variant:ident)+) => {
        impl $name {
            /// Every code, for tables.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The variant with this number on the wire.
            #[must_use]
            pub fn from_code(code: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| *known as u8 == code)
            }
        }
    };
}

from_code!(RemoteProtection:
    InvalidStag Bounds AccessViolation NotAssociated Wrap NotInvalidatable Unspecified);
from_code!(RemoteOperation:
    Version UnexpectedOpcode CatastrophicStream CatastrophicGlobal NotInvalidatable Unspecified);
from_code!(TaggedError: InvalidStag Bounds NotAssociated Wrap Version);
from_code!(UntaggedError: InvalidQn NoBuffer MsnRange InvalidMo TooLong Version);
from_code!(MpaError: Closed Crc Length Startup LocalCatastrophic InsufficientIrd NoMatchingRtr);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::VALUE_STEP;

    #[test]
    fn every_triple_maps_to_one_error_and_back() {
        for layer in 0..16 {
            for etype in 0..16 {
                for code in (0..=255).step_by(VALUE_STEP) {
                    let error = TerminateCode::from_triple(layer, etype, code);
                    let catastrophic = matches!(
                        error,
                        TerminateCode::RdmapCatastrophic | TerminateCode::DdpCatastrophic
                    );
                    let expected = if catastrophic { 0 } else { code };
                    assert_eq!(error.to_triple(), (layer, etype, expected));
                }
            }
        }
    }
}
