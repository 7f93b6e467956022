//! Frames to transmit: frame bytes to copy, and a description of the payload.

use crate::{Stag, wire::fpdu};

/// Room for the longest frame without payload: the ULPDU length, the untagged DDP header and the
/// atomic request header (2 + 18 + 52).
pub const HEADER_MAX: usize = 72;

/// The longest DDP segment that a carrier other than MPA transmits or delivers, in bytes.
pub const SEGMENT_MAX: usize = (u32::MAX / 2) as usize;

/// An FPDU to transmit, or a segment for a carrier other than MPA.
///
/// MPA transmits [`header`](Self::header), the payload, [`pad`](Self::pad) zero bytes, and then the
/// CRC32C of all of it (least significant byte first), or four zero bytes without CRC.
///
/// Another carrier transmits [`segment_header`](Self::segment_header) and the payload. A segment
/// for it may be longer than the 16-bit length field of MPA can express. The field is 0 then, and
/// the parts of the frame that depend on it (`header`, `pad`, `wire_len`) have no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransmitFpdu {
    header: [u8; HEADER_MAX],
    header_len: u8,
    /// The bytes that follow the header.
    pub payload: TransmitPayload,
    /// The request or answer that is finished on our side once the transport has taken the last
    /// byte of this FPDU.
    pub ends: Option<Ends>,
}

/// The payload of one FPDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitPayload {
    /// Everything is in the header bytes.
    None,
    /// A range of the local memory that a work request describes.
    WorkRequest {
        /// The work request.
        token: u64,
        /// First byte, counted from the start of the request's memory.
        offset: u32,
        /// Number of bytes, at least 1.
        len: u32,
    },
    /// A range of registered memory that the peer reads. The range was checked when the request was
    /// received. If the registration has ended since, call [`crate::Connection::refuse_response`]
    /// instead of transmitting this FPDU.
    ReadResponse {
        /// The STag the peer reads from.
        stag: Stag,
        /// First byte.
        to: u64,
        /// Number of bytes, at least 1.
        len: u32,
    },
}

impl TransmitPayload {
    /// The number of bytes.
    #[must_use]
    pub const fn byte_len(self) -> usize {
        match self {
            Self::None => 0,
            Self::WorkRequest { len, .. } | Self::ReadResponse { len, .. } => len as usize,
        }
    }

    /// The `len` bytes from byte `skip` on, which are within the payload.
    #[must_use]
    pub fn part(self, skip: u32, len: u32) -> Self {
        match self {
            Self::None => Self::None,
            Self::WorkRequest { token, offset, .. } => Self::WorkRequest {
                token,
                offset: offset.wrapping_add(skip),
                len,
            },
            Self::ReadResponse { stag, to, .. } => Self::ReadResponse {
                stag,
                to: to.wrapping_add(u64::from(skip)),
                len,
            },
        }
    }
}

/// The unit whose last FPDU this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// A local work request. Count these, and report them with
    /// [`crate::Connection::on_sent`] when the transport has taken the bytes.
    WorkRequest {
        /// Its token.
        token: u64,
    },
    /// The answer to a read or atomic of the peer.
    Response,
    /// The stream: nothing may follow (RFC 5040 section 7).
    Stream,
}

impl TransmitFpdu {
    /// Creates an FPDU whose header bytes `emit` writes after the length field.
    pub(crate) fn new(header_len: usize, payload: TransmitPayload, ends: Option<Ends>) -> Self {
        debug_assert!(header_len <= HEADER_MAX);
        let mut fpdu = Self {
            header: [0; HEADER_MAX],
            header_len: header_len as u8,
            payload,
            ends,
        };
        let ulpdu_len = u16::try_from(fpdu.ulpdu_len()).unwrap_or(0);
        *fpdu.part(0) = ulpdu_len.to_be_bytes();
        fpdu
    }

    /// The `N` header bytes at a constant offset.
    pub(crate) fn part<const N: usize>(&mut self, at: usize) -> &mut [u8; N] {
        (&mut self.header[at..at + N])
            .try_into()
            .expect("the slice was made N bytes long")
    }

    /// The bytes before the payload: ULPDU length, DDP header, RDMAP header.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// The bytes before the payload without MPA's length field: DDP header, RDMAP header.
    #[must_use]
    pub fn segment_header(&self) -> &[u8] {
        &self.header()[fpdu::LENGTH_LEN..]
    }

    /// Bytes of payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.payload.byte_len()
    }

    /// The length of the DDP segment in bytes, payload included: the ULPDU length.
    #[must_use]
    pub fn ulpdu_len(&self) -> usize {
        usize::from(self.header_len) - fpdu::LENGTH_LEN + self.payload_len()
    }

    /// Zero bytes between payload and CRC, 0 to 3.
    #[must_use]
    pub fn pad(&self) -> usize {
        fpdu::pad(self.ulpdu_len())
    }

    /// The length of the FPDU in bytes, with CRC and without markers.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        fpdu::total_len(self.ulpdu_len())
    }
}
