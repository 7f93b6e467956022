//! The start-up frames of MPA (RFC 5044 section 7.1, RFC 6581 section 9).
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ~    Key: "MPA ID Req Frame" or "MPA ID Rep Frame" (16 octets)  ~
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |M|C|R|S|  Res  |      Rev      |          PD_Length            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |A|B|          IRD              |C|D|          ORD              |  if S
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ~                       Private Data                            ~
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! Start-up frames carry no CRC, no pad and no markers. PD_Length counts the enhanced words.

use core::fmt;

/// Bytes of a key.
pub const KEY_LEN: usize = 16;
/// Bytes before the private data.
pub const HEADER_LEN: usize = 20;
/// Bytes of the enhanced words.
pub const ENHANCED_LEN: usize = 4;
/// RFC 5044 section 7.1.1: the largest PD_Length.
pub const PD_LENGTH_MAX: usize = 512;
/// The longest start-up frame.
pub const FRAME_MAX: usize = HEADER_LEN + PD_LENGTH_MAX;
/// RFC 6581 section 9.1: the sender does not negotiate this depth.
pub const DEPTH_UNSPECIFIED: u16 = 0x3FFF;
/// The largest IRD or ORD that is a number.
pub const DEPTH_MAX: u16 = DEPTH_UNSPECIFIED - 1;

mod flag {
    pub(super) const MARKERS: u8 = 0x80;
    pub(super) const CRC: u8 = 0x40;
    pub(super) const REJECT: u8 = 0x20;
    pub(super) const ENHANCED: u8 = 0x10;
}

mod word {
    pub(super) const HIGH: u16 = 0x8000;
    pub(super) const SECOND: u16 = 0x4000;
    pub(super) const DEPTH: u16 = 0x3FFF;
}

/// The kind of a start-up frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// From the initiator.
    Request,
    /// From the responder.
    Reply,
}

impl FrameKind {
    /// The first 16 bytes of the frame.
    #[must_use]
    pub const fn key(self) -> &'static [u8; KEY_LEN] {
        match self {
            Self::Request => b"MPA ID Req Frame",
            Self::Reply => b"MPA ID Rep Frame",
        }
    }
}

/// The result of comparing the first bytes of a stream with the keys of start-up frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The bytes agree with the key of a frame so far, but do not determine which.
    Undecided,
    /// The key is complete.
    Complete(FrameKind),
    /// The bytes differ from both keys.
    Neither,
}

impl Key {
    /// Compares as many bytes as there are, so that the first differing byte shows another
    /// protocol.
    #[must_use]
    pub fn detect(front: &[u8]) -> Self {
        let len = front.len().min(KEY_LEN);
        for kind in [FrameKind::Request, FrameKind::Reply] {
            if front[..len] == kind.key()[..len] {
                return if len == KEY_LEN {
                    Self::Complete(kind)
                } else {
                    Self::Undecided
                };
            }
        }
        Self::Neither
    }
}

/// The kinds of first FPDU with which an initiator shows that it is ready (RFC 6581 section 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RtrKind {
    /// Flag B: an untagged Send of length 0.
    Send,
    /// Flag C: an RDMA Write of length 0.
    Write,
    /// Flag D: an RDMA Read of length 0.
    Read,
}

/// A set of [`RtrKind`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RtrKinds {
    /// Flag B.
    pub send: bool,
    /// Flag C.
    pub write: bool,
    /// Flag D.
    pub read: bool,
}

impl RtrKinds {
    /// The kinds that unknown hardware accepts: Write and Read.
    pub const WRITE_READ: Self = Self {
        send: false,
        write: true,
        read: true,
    };

    /// The set of one kind.
    #[must_use]
    pub const fn only(kind: RtrKind) -> Self {
        Self {
            send: matches!(kind, RtrKind::Send),
            write: matches!(kind, RtrKind::Write),
            read: matches!(kind, RtrKind::Read),
        }
    }

    /// True if `kind` is in the set.
    #[must_use]
    pub const fn contains(self, kind: RtrKind) -> bool {
        match kind {
            RtrKind::Send => self.send,
            RtrKind::Write => self.write,
            RtrKind::Read => self.read,
        }
    }

    /// The kinds that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self {
            send: self.send && other.send,
            write: self.write && other.write,
            read: self.read && other.read,
        }
    }

    /// The first of `preference` that is in the set.
    #[must_use]
    pub fn first_of(self, preference: &[RtrKind]) -> Option<RtrKind> {
        preference.iter().copied().find(|kind| self.contains(*kind))
    }
}

impl fmt::Debug for RtrKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [RtrKind::Send, RtrKind::Write, RtrKind::Read];
        f.debug_set()
            .entries(kinds.into_iter().filter(|kind| self.contains(*kind)))
            .finish()
    }
}

/// The enhanced words (RFC 6581 section 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enhanced {
    /// Flag A with the flags B, C, D that go with it; `None` when A is 0, and then B, C, D are 0
    /// on send and ignored on receive.
    pub peer_to_peer: Option<RtrKinds>,
    /// IRD of the sender of the frame, or [`DEPTH_UNSPECIFIED`].
    pub ird: u16,
    /// ORD of the sender of the frame, or [`DEPTH_UNSPECIFIED`].
    pub ord: u16,
}

impl Enhanced {
    /// Parses the words.
    #[must_use]
    pub fn parse(bytes: &[u8; ENHANCED_LEN]) -> Self {
        let first = u16::from_be_bytes([bytes[0], bytes[1]]);
        let second = u16::from_be_bytes([bytes[2], bytes[3]]);
        let kinds = RtrKinds {
            send: first & word::SECOND != 0,
            write: second & word::HIGH != 0,
            read: second & word::SECOND != 0,
        };
        Self {
            peer_to_peer: (first & word::HIGH != 0).then_some(kinds),
            ird: first & word::DEPTH,
            ord: second & word::DEPTH,
        }
    }

    /// Writes the words.
    pub fn emit(&self, bytes: &mut [u8; ENHANCED_LEN]) {
        let mut first = self.ird & word::DEPTH;
        let mut second = self.ord & word::DEPTH;
        if let Some(kinds) = self.peer_to_peer {
            first |= word::HIGH;
            first |= if kinds.send { word::SECOND } else { 0 };
            second |= if kinds.write { word::HIGH } else { 0 };
            second |= if kinds.read { word::SECOND } else { 0 };
        }
        bytes[..2].copy_from_slice(&first.to_be_bytes());
        bytes[2..].copy_from_slice(&second.to_be_bytes());
    }
}

/// The fixed part of a start-up frame after its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// M: the sender wants markers in the stream that it receives.
    pub markers: bool,
    /// C: the sender wants CRC.
    pub crc: bool,
    /// R: rejected; meaningful in a Reply only.
    pub reject: bool,
    /// S: the private data begins with the enhanced words.
    pub enhanced: bool,
    /// The revision.
    pub rev: u8,
    /// The number of bytes after the header, enhanced words included. Not checked against
    /// [`PD_LENGTH_MAX`].
    pub pd_length: u16,
}

impl Header {
    /// Parses the header; [`Key::detect`] checks the key.
    #[must_use]
    pub fn parse(header: &[u8; HEADER_LEN]) -> Self {
        let flags = header[16];
        Self {
            markers: flags & flag::MARKERS != 0,
            crc: flags & flag::CRC != 0,
            reject: flags & flag::REJECT != 0,
            enhanced: flags & flag::ENHANCED != 0,
            rev: header[17],
            pd_length: u16::from_be_bytes([header[18], header[19]]),
        }
    }

    /// Writes key and header.
    pub fn emit(&self, kind: FrameKind, header: &mut [u8; HEADER_LEN]) {
        header[..KEY_LEN].copy_from_slice(kind.key());
        header[16] = if self.markers { flag::MARKERS } else { 0 }
            | if self.crc { flag::CRC } else { 0 }
            | if self.reject { flag::REJECT } else { 0 }
            | if self.enhanced { flag::ENHANCED } else { 0 };
        header[17] = self.rev;
        header[18..].copy_from_slice(&self.pd_length.to_be_bytes());
    }
}

/// A start-up frame, which must be transmitted with one call: some hardware wants it in one TCP
/// segment.
#[derive(Clone, PartialEq, Eq)]
pub struct StartupFrame {
    bytes: [u8; FRAME_MAX],
    len: u16,
}

impl StartupFrame {
    /// Builds a frame, and sets `header.pd_length` and `header.enhanced` to match the content.
    /// Returns `None` if the private data does not fit into [`PD_LENGTH_MAX`].
    #[must_use]
    pub fn build(
        kind: FrameKind,
        header: Header,
        enhanced: Option<Enhanced>,
        private_data: &[u8],
    ) -> Option<Self> {
        let words = if enhanced.is_some() { ENHANCED_LEN } else { 0 };
        let pd_length = words + private_data.len();
        if pd_length > PD_LENGTH_MAX {
            return None;
        }
        let mut frame = Self {
            bytes: [0; FRAME_MAX],
            len: (HEADER_LEN + pd_length) as u16,
        };
        let (head, rest) = frame
            .bytes
            .split_first_chunk_mut::<HEADER_LEN>()
            .expect("a frame has a header");
        Header {
            enhanced: enhanced.is_some(),
            pd_length: pd_length as u16,
            ..header
        }
        .emit(kind, head);
        if let Some(enhanced) = enhanced {
            enhanced.emit(
                rest.first_chunk_mut()
                    .expect("a frame has room for the words"),
            );
        }
        rest[words..pd_length].copy_from_slice(private_data);
        Some(frame)
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for StartupFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Private data belongs to the consumer and is not logged.
        f.debug_struct("StartupFrame")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REV1_CRC: Header = Header {
        markers: false,
        crc: true,
        reject: false,
        enhanced: false,
        rev: 1,
        pd_length: 0,
    };

    #[test]
    fn emit_overwrites_every_byte() {
        let mut header = [0xFF; HEADER_LEN];
        REV1_CRC.emit(FrameKind::Request, &mut header);
        assert_eq!(header[16..], [0x40, 0x01, 0, 0]);
        let mut words = [0xFF; ENHANCED_LEN];
        Enhanced {
            peer_to_peer: None,
            ird: 1,
            ord: 2,
        }
        .emit(&mut words);
        assert_eq!(words, [0, 1, 0, 2]);
    }

    #[test]
    fn keys_are_distinguished_at_the_first_different_byte() {
        let request = FrameKind::Request.key();
        for len in 0..KEY_LEN {
            assert_eq!(Key::detect(&request[..len]), Key::Undecided);
        }
        assert_eq!(Key::detect(b"G"), Key::Neither);
        assert_eq!(Key::detect(b"MPA ID Rex"), Key::Neither);
        for at in 0..KEY_LEN {
            let mut bytes = *request;
            bytes[at] ^= 0x20;
            assert_eq!(Key::detect(&bytes[..=at]), Key::Neither);
        }
    }

    #[test]
    fn private_data_beyond_the_limit_does_not_build() {
        let build =
            |words, len| StartupFrame::build(FrameKind::Request, REV1_CRC, words, &vec![1; len]);
        let words = Some(Enhanced {
            peer_to_peer: None,
            ird: 0,
            ord: 0,
        });
        assert!(build(None, 512).is_some() && build(words, 508).is_some());
        assert!(build(None, 513).is_none() && build(words, 509).is_none());
    }
}
