//! The layout of one record of a ring.
//!
//! A record begins at a multiple of a cache line and is a whole number of lines long. Its first
//! eight bytes are its word ([`Word`]), which is 0 until the record is published. So a consumer
//! that polls reads one line only, and this line also contains the header.
//!
//! ```text
//! inline       word | header, to a multiple of 8 | payload
//! reference    word | state (4) | number of pieces (4) | header, to a multiple of 8 | pieces
//! skip         word                                      up to the end of the data area
//! ```
//!
//! A payload that does not fit into the first line begins at the second line. So a Send of 64 bytes
//! (header 18) and an RDMA Write of 64 bytes (header 14) are two lines long, the first line is
//! written at once, and long payloads are aligned for the fastest copy. Numbers have the byte order
//! of this host, because only this host reads them.

use iwarp_proto::HEADER_MAX;

use super::segment::LINE;

/// Bytes of the word of a record.
const WORD_LEN: usize = 8;
/// The offset of the state of a reference.
pub(super) const STATE_AT: usize = WORD_LEN;
/// The offset of the number of pieces of a reference.
pub(super) const COUNT_AT: usize = STATE_AT + 4;
/// Bytes of a piece: its address and its length.
pub(super) const PIECE_LEN: usize = 16;

/// Pieces of the longest reference.
pub(crate) const PIECES_MAX: usize = 32;

/// A position in the sequence of all bytes that a ring ever carries. It never wraps: 2^64 bytes
/// take decades.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position(pub(crate) u64);

/// A value that a correct peer never writes. The connection ends; the process continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Corrupt {
    /// The kind of a record is unknown.
    Kind(u8),
    /// The tag of a record is that of another position.
    Tag { found: u16, expected: u16 },
    /// A header is longer than the maximum.
    HeaderLen(u8),
    /// A payload does not fit between its record and the end of the data area.
    PayloadLen(u32),
    /// A skip ends elsewhere than at the end of the data area.
    SkipLen(u32),
    /// A reference has no pieces or too many.
    PieceCount(u32),
    /// The pieces of a reference are not as long as the reference.
    PieceLen(u64),
    /// A reference has a state that is impossible at this moment.
    State(u32),
    /// The consumer has released bytes that were not produced, or has moved its index back.
    Released(u64),
    /// The consumer has released a reference that it did not pull.
    NotPulled,
}

impl std::fmt::Display for Corrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "record of kind {kind}"),
            Self::Tag { found, expected } => {
                write!(f, "record with tag {found:#x} instead of {expected:#x}")
            }
            Self::HeaderLen(len) => write!(f, "header of {len} bytes"),
            Self::PayloadLen(len) => write!(f, "payload of {len} bytes"),
            Self::SkipLen(len) => write!(f, "skip of {len} bytes"),
            Self::PieceCount(count) => write!(f, "reference of {count} pieces"),
            Self::PieceLen(len) => write!(f, "pieces of {len} bytes"),
            Self::State(state) => write!(f, "reference in state {state}"),
            Self::Released(position) => write!(f, "release up to byte {position}"),
            Self::NotPulled => f.write_str("release of a reference that was not pulled"),
        }
    }
}

impl std::error::Error for Corrupt {}

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The payload is in the record.
    Inline = 1,
    /// The record describes the payload in the memory of the producer's process.
    Reference = 2,
    /// The next record is at the front of the data area.
    Skip = 3,
}

/// The first eight bytes of a record. Never 0, because no kind is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) kind: Kind,
    pub(super) header_len: u8,
    /// The length of the payload, or of the whole skip, in bytes.
    pub(super) len: u32,
}

impl Word {
    /// Encodes the word. Its bits, from the lowest on: kind (8), header length (8), tag (16),
    /// length (32).
    #[inline]
    pub(super) fn emit(self, position: Position) -> u64 {
        let tag = tag(position);
        u64::from(self.kind as u8)
            | u64::from(self.header_len) << 8
            | u64::from(tag) << 16
            | u64::from(self.len) << 32
    }

    /// Decodes the word of a record at `position`. The length is not checked.
    #[inline]
    pub(super) fn parse(word: u64, position: Position) -> Result<Self, Corrupt> {
        let kind = match word as u8 {
            1 => Kind::Inline,
            2 => Kind::Reference,
            3 => Kind::Skip,
            kind => return Err(Corrupt::Kind(kind)),
        };
        let header_len = (word >> 8) as u8;
        let (found, expected) = ((word >> 16) as u16, tag(position));
        if found != expected {
            return Err(Corrupt::Tag { found, expected });
        }
        if usize::from(header_len) > HEADER_MAX {
            return Err(Corrupt::HeaderLen(header_len));
        }
        Ok(Self {
            kind,
            header_len,
            len: (word >> 32) as u32,
        })
    }
}

/// The number of the line at which a record begins. It distinguishes a new record from a record of
/// an earlier round.
#[inline]
fn tag(position: Position) -> u16 {
    (position.0 / LINE as u64) as u16
}

/// The offset of the header of a record.
#[inline]
pub(super) fn header_at(kind: Kind) -> usize {
    match kind {
        Kind::Inline | Kind::Skip => WORD_LEN,
        Kind::Reference => COUNT_AT + 4,
    }
}

/// The offset of the payload of an inline record.
#[inline]
pub(super) fn payload_at(header_len: usize, payload_len: usize) -> usize {
    let after = WORD_LEN + header_len.next_multiple_of(8);
    if after + payload_len <= LINE {
        after
    } else {
        after.next_multiple_of(LINE)
    }
}

/// The length of an inline record in bytes. The payload is at most as long as a data area.
#[inline]
pub(super) fn inline_len(header_len: usize, payload_len: usize) -> usize {
    (payload_at(header_len, payload_len) + payload_len).next_multiple_of(LINE)
}

/// The offset of the pieces of a reference.
#[inline]
pub(super) fn pieces_at(header_len: usize) -> usize {
    header_at(Kind::Reference) + header_len.next_multiple_of(8)
}

/// The length of a reference of at most [`PIECES_MAX`] pieces, in bytes.
#[inline]
pub(super) fn reference_len(header_len: usize, count: usize) -> usize {
    (pieces_at(header_len) + count * PIECE_LEN).next_multiple_of(LINE)
}

/// The length of the longest record of a data area, in bytes. A producer that waits for room gets
/// enough for such a record, although the consumer releases a quarter of the area at once and a
/// skip may waste some.
#[inline]
pub(super) fn record_max(data_len: usize) -> usize {
    data_len / 8 * 3 - 128
}

/// The state of a reference. The consumer begins and ends a pull. The producer revokes a reference
/// before the pull begins, or if the pull does not end. A consumer that cannot read the memory
/// declines the reference, and the producer then supplies the bytes ([`super::ring`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum State {
    Offered = 1,
    Pulling = 2,
    Done = 3,
    Revoked = 5,
    Declined = 6,
}

impl State {
    pub(super) fn parse(state: u32) -> Result<Self, Corrupt> {
        match state {
            1 => Ok(Self::Offered),
            2 => Ok(Self::Pulling),
            3 => Ok(Self::Done),
            5 => Ok(Self::Revoked),
            6 => Ok(Self::Declined),
            state => Err(Corrupt::State(state)),
        }
    }
}

/// A piece of the payload of a reference, in the memory of the producer's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    /// The length in bytes; never 0.
    pub(crate) len: u32,
}

/// A copy of a record. Later changes by the peer do not affect the copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(super) header: [u8; HEADER_MAX],
    pub(super) header_len: u8,
    pub(crate) body: Body,
}

impl Record {
    /// The bytes that the producer passed as header.
    #[inline]
    pub(crate) fn header(&self) -> &[u8] {
        &self.header[..usize::from(self.header_len)]
    }

    /// The length of the payload in bytes, for every kind of body.
    #[inline]
    pub(crate) fn payload_len(&self) -> usize {
        match self.body {
            Body::None => 0,
            Body::Inline { len, .. } => len,
            Body::Reference { total } => total as usize,
        }
    }
}

/// The location of the payload of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    /// There is no payload.
    None,
    /// In the data area, up to the next [`advance`](super::ring::Consumer::advance). The peer can
    /// change the bytes at any time, so they are copied from this pointer and never borrowed.
    Inline { ptr: *const u8, len: usize },
    /// In the memory of the peer, at [`pieces`](super::ring::Consumer::pieces), whose total length
    /// is `total` bytes.
    Reference { total: u32 },
}

// SAFETY: the record does not dereference the pointer. Code that does must guarantee, on any
// thread, that the consumer has not advanced.
unsafe impl Send for Body {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_are_two_cache_lines_long() {
        // Untagged and tagged DDP headers with their RDMAP control (RFC 5041 section 4).
        for header_len in [18, 14] {
            assert_eq!(inline_len(header_len, 64), 2 * LINE);
            assert_eq!(inline_len(header_len, 8), LINE);
            assert_eq!(inline_len(header_len, 0), LINE);
        }
        assert_eq!(inline_len(HEADER_MAX, 0), 2 * LINE);
        assert!(reference_len(18, 1) == LINE && reference_len(14, 2) == LINE);
    }

    #[test]
    fn words_are_valid_at_their_position_only() {
        let word = Word {
            kind: Kind::Inline,
            header_len: 18,
            len: 0x1234_5678,
        };
        let bits = word.emit(Position(640));
        assert_eq!(bits, 0x1234_5678_000a_1201);
        assert_eq!(Word::parse(bits, Position(640)), Ok(word));
        let (found, expected) = (10, 11);
        let fault = Corrupt::Tag { found, expected };
        assert_eq!(Word::parse(bits, Position(704)), Err(fault));
    }

    #[test]
    fn invalid_words_are_refused() {
        for kind in 0..=255 {
            for header_len in [0, 72, 73, 255] {
                let bits = kind | header_len << 8;
                let parsed = Word::parse(bits, Position(0));
                assert_eq!(parsed.is_ok(), (1..=3).contains(&kind) && header_len <= 72);
            }
        }
    }
}
