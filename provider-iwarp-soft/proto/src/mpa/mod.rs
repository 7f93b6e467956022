//! Start-up of MPA: request, reply, and the agreement of both sides (RFC 5044 section 7, RFC 6581).
//!
//! Both sides are pure functions over the bytes at the front of the stream. The caller peeks, or
//! reads exactly as many bytes as [`Progress::NeedMore`] asks for. Nothing is consumed unless
//! [`Progress::Frame`] says so. A socket that turns out to speak another protocol can therefore be
//! returned with its bytes intact.

mod initiator;
mod responder;
#[cfg(test)]
mod tables;
#[cfg(test)]
mod tests;

pub use initiator::{Initiator, InitiatorConfig, Refusal, ReplyOutcome};
pub use responder::{AcceptParams, RequestInfo, Responder, ResponderConfig};

use core::ops::Range;

use crate::Peer;
use crate::wire::mpa::{
    ENHANCED_LEN, Enhanced, FrameKind, HEADER_LEN, Header, Key, PD_LENGTH_MAX, RtrKind,
};

/// The parameters on which both sides agreed; the base of a [`crate::Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The revision of the reply.
    pub rev: u8,
    /// CRC in both directions.
    pub crc: bool,
    /// The peer wants markers in the stream that it receives.
    pub markers_tx: bool,
    /// We want markers in the stream that we receive.
    pub markers_rx: bool,
    /// The number of the peer's reads and atomics that we must be able to hold.
    pub ird: u16,
    /// The number of reads and atomics that we may have outstanding.
    pub ord: u16,
    /// In peer-to-peer mode, the kind of the initiator's first FPDU.
    pub rtr: Option<RtrKind>,
    /// The implementation of the peer, as far as it is known.
    pub peer: Peer,
}

/// The result of evaluating the bytes at the front of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// Call again when there are this many bytes in all. A stream that ends first is
    /// [`crate::MpaError::Closed`].
    NeedMore(usize),
    /// The bytes are not an MPA start-up frame; none of them was consumed.
    NotMpa,
    /// An MPA frame that must not be answered: close the connection (RFC 5044 section 7.1,
    /// error code 4).
    Malformed(Malformed),
    /// A complete frame.
    Frame {
        /// The length of the frame in bytes; bytes after it belong to the next frame.
        consumed: usize,
        /// The consumer's private data, as a range of the bytes; without the enhanced words.
        private_data: Range<usize>,
        /// The content of the frame.
        value: T,
    },
}

/// The reason why a start-up frame is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Both sides are initiators, or both responders.
    #[error("a start-up frame of the wrong side")]
    WrongSide,
    /// PD_Length exceeds 512.
    #[error("private data of {0} bytes announced")]
    PrivateDataLength(u16),
    /// A revision that this implementation does not support.
    #[error("MPA revision {0}")]
    Revision(u8),
    /// Flag S without room for the enhanced words. A known implementation sends such a Request for
    /// 252 or more bytes of private data; the bytes that follow are then not FPDUs.
    #[error("enhanced start-up frame with {0} bytes of private data")]
    NoEnhancedWords(u16),
}

/// The reason why a frame could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartupError {
    /// More private data than the frame holds, or than the configuration allows.
    #[error("private data of {len} bytes where {max} fit")]
    PrivateDataTooLong {
        /// The length of the private data in bytes.
        len: usize,
        /// The greatest length that fits, in bytes.
        max: usize,
    },
    /// The peer wants markers and the configuration says that we cannot insert them; reject.
    #[error("the peer requires markers")]
    MarkersRequired,
}

/// A complete frame, whose revision is not checked.
#[derive(Clone, Copy, Debug)]
struct Found {
    header: Header,
    /// The length of the frame in bytes.
    len: usize,
    /// The first bytes after the header, if there are enough. They are the enhanced words in a
    /// frame with flag S, and private data in all others.
    words: Option<Enhanced>,
}

impl Found {
    /// The frame with `value` as its content. The private data begins after the enhanced words if
    /// `is_enhanced`.
    fn with<T>(self, is_enhanced: bool, value: T) -> Progress<T> {
        let words = if is_enhanced { ENHANCED_LEN } else { 0 };
        Progress::Frame {
            consumed: self.len,
            private_data: HEADER_LEN + words..self.len,
            value,
        }
    }
}

/// Finds a complete frame of `kind` at the front of the stream. If there is none, returns the
/// result for the caller to pass on.
fn find_frame<T>(front: &[u8], kind: FrameKind) -> Result<Found, Progress<T>> {
    match Key::detect(front) {
        Key::Undecided => return Err(Progress::NeedMore(HEADER_LEN)),
        Key::Neither => return Err(Progress::NotMpa),
        Key::Complete(found) if found != kind => {
            return Err(Progress::Malformed(Malformed::WrongSide));
        }
        Key::Complete(_) => {}
    }
    let (bytes, rest) = front
        .split_first_chunk::<HEADER_LEN>()
        .ok_or(Progress::NeedMore(HEADER_LEN))?;
    let header = Header::parse(bytes);
    let pd_length = usize::from(header.pd_length);
    if pd_length > PD_LENGTH_MAX {
        let why = Malformed::PrivateDataLength(header.pd_length);
        return Err(Progress::Malformed(why));
    }
    let len = HEADER_LEN + pd_length;
    let data = rest.get(..pd_length).ok_or(Progress::NeedMore(len))?;
    let words = data.first_chunk().map(Enhanced::parse);
    Ok(Found { header, len, words })
}
