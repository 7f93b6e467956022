//! The Terminate message (RFC 5040 section 4.8).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! | Layer | EType |  Error Code   |M|D|R|        reserved         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  DDP Segment Length  (if D)   |                               |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+                               +
//! |         Terminated DDP Header (14 or 18 octets, if D)         |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |      Terminated RDMAP Header (28 octets, Read Request, if R)  |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! The Linux `siw` driver on little-endian hosts swaps the nibbles of byte 0 and counts M, D, R
//! from the other end of byte 2. This crate sends the layout of the RFC only, and parses both.

use crate::{Msn, TerminateCode};

use super::{
    ddp::{self, TAGGED_LEN, UNTAGGED_LEN, Untagged, qn},
    rdmap::{self, Opcode, READ_REQUEST_LEN},
};

/// Bytes of the fixed part.
pub const CONTROL_LEN: usize = 4;
/// Bytes of the segment length that precedes quoted headers.
const SEGMENT_LEN: usize = 2;
/// The longest quotation: untagged DDP header and Read Request header.
const QUOTE_MAX: usize = UNTAGGED_LEN + READ_REQUEST_LEN;
/// The longest Terminate message.
pub const LEN_MAX: usize = CONTROL_LEN + SEGMENT_LEN + QUOTE_MAX;

mod bit {
    pub(super) const LENGTH_VALID: u8 = 0x80;
    pub(super) const DDP_HEADER: u8 = 0x40;
    pub(super) const RDMAP_HEADER: u8 = 0x20;
    pub(super) const ALL: u8 = LENGTH_VALID | DDP_HEADER | RDMAP_HEADER;
    /// The bits M, D and R in the layout of siw.
    pub(super) const ALL_SIW: u8 = 0x07;
    pub(super) const DDP_HEADER_SIW: u8 = 0x02;
}

/// The quotation of the segment that caused a Terminate message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Offender {
    segment_len: u16,
    quote: [u8; QUOTE_MAX],
    quote_len: u8,
}

impl Offender {
    /// Quotes the headers at the front of `ulpdu`, a segment of `len` bytes, as the rules for
    /// `code` demand. Returns `None` if the rules forbid it or the segment is too short to hold a
    /// header.
    #[must_use]
    pub fn capture(code: TerminateCode, ulpdu: &[u8], len: usize) -> Option<Self> {
        let rdmap_allowed = match code {
            TerminateCode::Mpa(_)
            | TerminateCode::RdmapCatastrophic
            | TerminateCode::Other { .. } => return None,
            TerminateCode::RemoteProtection(_) => true,
            TerminateCode::RemoteOperation(_)
            | TerminateCode::DdpCatastrophic
            | TerminateCode::Tagged(_)
            | TerminateCode::Untagged(_) => false,
        };
        let [control, rdmap_control] = *ulpdu.first_chunk()?;
        let is_read_request = rdmap::Control(rdmap_control).opcode() == Some(Opcode::ReadRequest);
        let quote_len = if ddp::Control(control).is_tagged() {
            TAGGED_LEN
        } else if rdmap_allowed && is_read_request {
            QUOTE_MAX
        } else {
            UNTAGGED_LEN
        };
        let mut quote = [0; QUOTE_MAX];
        quote[..quote_len].copy_from_slice(ulpdu.get(..quote_len)?);
        let segment_len = u16::try_from(len).unwrap_or(u16::MAX);
        Some(Self {
            segment_len,
            quote,
            quote_len: quote_len as u8,
        })
    }

    /// The quoted headers.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        &self.quote[..usize::from(self.quote_len)]
    }

    /// The length of the quoted DDP segment in bytes.
    #[must_use]
    pub const fn segment_len(&self) -> u16 {
        self.segment_len
    }

    fn has_rdmap_header(&self) -> bool {
        usize::from(self.quote_len) == QUOTE_MAX
    }
}

impl core::fmt::Debug for Offender {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Offender")
            .field("segment_len", &self.segment_len)
            .field("headers", &self.headers())
            .finish()
    }
}

/// Writes the message after its DDP header, in the layout of the RFC; returns its length.
pub fn emit(
    code: TerminateCode,
    offender: Option<&Offender>,
    message: &mut [u8; LEN_MAX],
) -> usize {
    let (layer, etype, number) = code.to_triple();
    message[0] = layer << 4 | etype & 0x0F;
    message[1] = number;
    message[2] = 0;
    message[3] = 0;
    let Some(offender) = offender else {
        return CONTROL_LEN;
    };
    message[2] = bit::LENGTH_VALID
        | bit::DDP_HEADER
        | if offender.has_rdmap_header() {
            bit::RDMAP_HEADER
        } else {
            0
        };
    message[CONTROL_LEN..][..SEGMENT_LEN].copy_from_slice(&offender.segment_len.to_be_bytes());
    let headers = offender.headers();
    message[CONTROL_LEN + SEGMENT_LEN..][..headers.len()].copy_from_slice(headers);
    CONTROL_LEN + SEGMENT_LEN + headers.len()
}

/// The state of the receiver's stream. [`parse`] needs the state for the few byte patterns that
/// mean different things in the two layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The Terminate is the first FPDU of the peer.
    pub is_first_fpdu: bool,
    /// This end has sent at least one FPDU.
    pub sent_fpdu: bool,
}

/// The layout of a Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Rfc,
    Siw,
}

/// A received Terminate message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// The reason why the peer ended the stream.
    pub code: TerminateCode,
    /// The segment length field and the headers after it, as received; empty if absent.
    pub quote: &'a [u8],
    /// The kind of message to which the quoted segment belongs; `None` if nothing is quoted.
    pub opcode: Option<Opcode>,
    /// The MSN of the quoted read or atomic, if one is quoted.
    pub request: Option<Msn>,
}

/// Parses the message after its DDP header; `None` if it is too short for its fixed part.
#[must_use]
pub fn parse(message: &[u8], context: Context) -> Option<Received<'_>> {
    let (control, quote) = message.split_first_chunk::<CONTROL_LEN>()?;
    let [kind, code, bits, _] = *control;
    let (high, low) = (kind >> 4, kind & 0x0F);
    let (code, quotes) = match layout(kind, code, bits, context) {
        Layout::Rfc => (
            TerminateCode::from_triple(high, low, code),
            bits & bit::DDP_HEADER != 0,
        ),
        Layout::Siw => (
            TerminateCode::from_triple(low, high, code),
            bits & bit::DDP_HEADER_SIW != 0,
        ),
    };
    Some(Received {
        code,
        quote,
        opcode: if quotes { quoted_opcode(quote) } else { None },
        request: if quotes { quoted_request(quote) } else { None },
    })
}

fn quoted_opcode(quote: &[u8]) -> Option<Opcode> {
    let (_segment_len, headers) = quote.split_first_chunk::<SEGMENT_LEN>()?;
    let [_ddp_control, rdmap_control] = *headers.first_chunk()?;
    rdmap::Control(rdmap_control).opcode()
}

fn quoted_request(quote: &[u8]) -> Option<Msn> {
    let (_segment_len, headers) = quote.split_first_chunk::<SEGMENT_LEN>()?;
    let header: &[u8; UNTAGGED_LEN] = headers.first_chunk()?;
    let is_tagged = ddp::Control(header[0]).is_tagged();
    let header = Untagged::parse(header);
    (!is_tagged && header.qn == qn::REQUEST).then_some(header.msn)
}

/// Distinguishes the layouts by the header bits, which never overlap. Without header bits, only one
/// layout has a possible code.
fn layout(kind: u8, code: u8, bits: u8, context: Context) -> Layout {
    if bits & bit::ALL != 0 {
        return Layout::Rfc;
    }
    if bits & bit::ALL_SIW != 0 {
        return Layout::Siw;
    }
    match (kind, code) {
        // Remote operation errors of RDMAP have no such codes. MPA errors have them.
        (0x02, 0x02..=0x04) => Layout::Siw,
        // siw is the initiator and aborts start-up: this Terminate is its first FPDU.
        (0x02, 0x06..=0x07) if context.is_first_fpdu => Layout::Siw,
        // siw rejects the version or opcode of an FPDU that this end sent. The MPA codes 5 and 6
        // occur only at start-up, before that.
        (0x20, 0x05..=0x06) if context.sent_fpdu => Layout::Siw,
        // MPA has no error type 1. The untagged errors of DDP are type 2 of layer 1.
        (0x21, _) => Layout::Siw,
        _ => Layout::Rfc,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        MpaError, RemoteOperation, RemoteProtection, TaggedError, UntaggedError, tests::hex,
    };

    const RUNNING: Context = Context {
        is_first_fpdu: false,
        sent_fpdu: true,
    };

    #[test]
    fn an_error_that_does_not_concern_a_read_quotes_no_rdmap_header() {
        let ulpdu = hex(
            "4141 00000000 00000001 00000003 00000000 0a0b0c01 00000000 00002000 00001000 \
             11223344 00000000 00fff000",
        );
        let code = TerminateCode::Untagged(UntaggedError::MsnRange);
        let offender = Offender::capture(code, &ulpdu, ulpdu.len());
        let mut message = [0xAA; LEN_MAX];
        let len = emit(code, offender.as_ref(), &mut message);
        let expected = hex("1203c000 002e4141 00000000 00000001 00000003 00000000");
        assert_eq!(message[..len], expected);
    }

    #[test]
    fn segments_too_short_for_a_header_are_not_quoted() {
        let code = TerminateCode::Untagged(UntaggedError::Version);
        for len in 0..UNTAGGED_LEN {
            assert_eq!(Offender::capture(code, &vec![0x41; len], len), None);
        }
    }

    #[test]
    fn captured_siw_messages_are_parsed() {
        let no_buffer = hex("21020300 00054143 00000000 00000000 00000001 00000000");
        let received = parse(&no_buffer, RUNNING).expect("long enough");
        assert_eq!(
            received.code,
            TerminateCode::Untagged(UntaggedError::NoBuffer)
        );
        let crc = parse(&hex("02020000"), RUNNING).map(|received| received.code);
        assert_eq!(crc, Some(TerminateCode::Mpa(MpaError::Crc)));
    }

    #[test]
    fn layouts_are_distinguished() {
        use TerminateCode::{
            DdpCatastrophic, Mpa, Other, RdmapCatastrophic, RemoteOperation as Operation,
            RemoteProtection as Protection, Tagged, Untagged,
        };
        let first = Context {
            is_first_fpdu: true,
            sent_fpdu: true,
        };
        let silent = Context {
            is_first_fpdu: true,
            sent_fpdu: false,
        };
        macro_rules! parses {
            ($($bytes:literal in $context:ident => $code:expr,)+) => {$(
                let received = parse(&hex($bytes), $context).map(|received| received.code);
                assert_eq!(received, Some($code), "{} in {:?}", $bytes, $context);
            )+};
        }
        parses! {
            // Rows of siw with header bits.
            "11000300" in RUNNING => Tagged(TaggedError::InvalidStag),
            "11010300" in RUNNING => Tagged(TaggedError::Bounds),
            "01000300" in RUNNING => DdpCatastrophic,
            "10010700" in RUNNING => Protection(RemoteProtection::Bounds),
            "20070300" in RUNNING => Operation(RemoteOperation::CatastrophicStream),
            "21040300" in RUNNING => Untagged(UntaggedError::InvalidMo),
            // Rows of siw without header bits.
            "21060000" in RUNNING => Untagged(UntaggedError::Version),
            "11040000" in RUNNING => Tagged(TaggedError::Version),
            "20050000" in RUNNING => Operation(RemoteOperation::Version),
            "20060000" in RUNNING => Operation(RemoteOperation::UnexpectedOpcode),
            "02030000" in RUNNING => Mpa(MpaError::Length),
            "02060000" in first => Mpa(MpaError::InsufficientIrd),
            "02070000" in silent => Mpa(MpaError::NoMatchingRtr),
            // The RFC.
            "02060000" in RUNNING => Operation(RemoteOperation::UnexpectedOpcode),
            "20060000" in silent => Mpa(MpaError::InsufficientIrd),
            "20020000" in RUNNING => Mpa(MpaError::Crc),
            "12010000" in RUNNING => Untagged(UntaggedError::InvalidQn),
            "10000000" in RUNNING => DdpCatastrophic,
            "0109c000" in RUNNING => Protection(RemoteProtection::NotInvalidatable),
            "0209c000" in RUNNING => Operation(RemoteOperation::NotInvalidatable),
            "00000000" in RUNNING => RdmapCatastrophic,
            "f3770000" in RUNNING => Other { layer: 15, etype: 3, code: 0x77 },
        }
    }

    #[test]
    fn short_messages_do_not_parse() {
        for len in 0..CONTROL_LEN {
            assert_eq!(parse(&[0x20; CONTROL_LEN][..len], RUNNING), None);
        }
    }
}
