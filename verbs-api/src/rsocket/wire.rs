//! Private data, immediate data, and entries of tables, which both ends exchange.

/// The version of the protocol.
const VERSION: u8 = 1;
/// The flags of the private data: the sender stores numbers with the highest byte first; the sender
/// has a table of mapped buffers.
const BIG_ENDIAN: u8 = 1;
const HAS_IOMAPS: u8 = 2;

/// Memory of the peer, or of this process for the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Range {
    pub(super) addr: u64,
    pub(super) key: u32,
    pub(super) len: u32,
}

impl Range {
    /// The length of an entry of a table.
    pub(super) const LEN: usize = 16;

    /// An entry of a table in memory.
    pub(super) fn entry(self) -> [u8; Self::LEN] {
        joined(
            self.addr.to_ne_bytes(),
            self.key.to_ne_bytes(),
            self.len.to_ne_bytes(),
        )
    }

    fn private(self) -> [u8; Self::LEN] {
        joined(
            self.addr.to_be_bytes(),
            self.key.to_be_bytes(),
            self.len.to_be_bytes(),
        )
    }

    fn parse(bytes: &[u8; Self::LEN]) -> Self {
        let (addr, rest) = bytes.split_at(8);
        let (key, len) = rest.split_at(4);
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte))
        };
        Self {
            addr: number(addr),
            key: number(key) as u32,
            len: number(len) as u32,
        }
    }
}

fn joined(addr: [u8; 8], key: [u8; 4], len: [u8; 4]) -> [u8; Range::LEN] {
    let mut bytes = [0; Range::LEN];
    bytes[..8].copy_from_slice(&addr);
    bytes[8..12].copy_from_slice(&key);
    bytes[12..].copy_from_slice(&len);
    bytes
}

/// The length of an entry of a table of mapped buffers: an offset and a range.
pub(super) const IOMAP_LEN: usize = 8 + Range::LEN;

/// An entry of a table of mapped buffers.
pub(super) fn iomap_entry(offset: u64, range: Range) -> [u8; IOMAP_LEN] {
    let mut bytes = [0; IOMAP_LEN];
    bytes[..8].copy_from_slice(&offset.to_ne_bytes());
    bytes[8..].copy_from_slice(&range.entry());
    bytes
}

/// The private data of a connection, in both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hello {
    /// The number of messages that the peer may send.
    pub(super) credits: u16,
    /// The number of entries for buffers that the peer maps, which follow those of `table`.
    pub(super) iomaps: u8,
    /// The table in which the peer names its buffers. Its length is a number of entries.
    pub(super) table: Range,
    /// The first buffer.
    pub(super) buffer: Range,
}

impl Hello {
    const LEN: usize = 40;

    pub(super) fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[1] = if self.iomaps > 0 { HAS_IOMAPS } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = self.iomaps;
        bytes[8..24].copy_from_slice(&self.table.private());
        bytes[24..].copy_from_slice(&self.buffer.private());
        bytes
    }

    /// Parses private data. `None` for a peer with which no connection is possible.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<{ Self::LEN }>()?;
        let range = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(Range::parse(bytes))
        };
        let flags = bytes[1];
        let hello = Self {
            credits: u16::from_be_bytes([bytes[2], bytes[3]]),
            iomaps: if flags & HAS_IOMAPS != 0 { bytes[7] } else { 0 },
            table: range(8)?,
            buffer: range(24)?,
        };
        let is_usable = bytes[0] == VERSION && flags & BIG_ENDIAN == 0 && hello.table.len > 0;
        is_usable.then_some(hello)
    }
}

/// The immediate data of a Write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Message {
    /// As many bytes were written to the buffer.
    Data(u32),
    /// The peer may send messages up to this one; a buffer may have been named.
    Credits(u16),
    /// The entry of this number in the table of mapped buffers was written.
    Iomap(u32),
    /// The peer neither sends nor receives any more.
    Disconnect,
    Keepalive,
    /// The peer sends no more data.
    Shutdown,
}

/// The bits below the kind of a message.
const VALUE_BITS: u32 = 29;
/// The most bytes of one message.
pub(super) const DATA_MAX: u32 = (1 << VALUE_BITS) - 1;

const DATA: u32 = 0;
const CREDITS: u32 = 4;
const IOMAP: u32 = 6;
const CONTROL: u32 = 7;

impl Message {
    pub(super) fn encode(self) -> u32 {
        let (kind, value) = match self {
            Self::Data(len) => (DATA, len),
            Self::Credits(limit) => (CREDITS, limit.into()),
            Self::Iomap(index) => (IOMAP, index),
            Self::Disconnect => (CONTROL, 0),
            Self::Keepalive => (CONTROL, 1),
            Self::Shutdown => (CONTROL, 2),
        };
        kind << VALUE_BITS | value & DATA_MAX
    }

    pub(super) fn decode(number: u32) -> Option<Self> {
        let value = number & DATA_MAX;
        match (number >> VALUE_BITS, value) {
            (DATA, _) => Some(Self::Data(value)),
            (CREDITS, _) => Some(Self::Credits(value as u16)),
            (IOMAP, _) => Some(Self::Iomap(value)),
            (CONTROL, 0) => Some(Self::Disconnect),
            (CONTROL, 1) => Some(Self::Keepalive),
            (CONTROL, 2) => Some(Self::Shutdown),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        credits: 384,
        iomaps: 3,
        table: Range {
            addr: 0x0102_0304_0506_0708,
            key: 9,
            len: 2,
        },
        buffer: Range {
            addr: 1 << 40,
            key: 10,
            len: 65536,
        },
    };

    #[test]
    fn private_data_has_the_layout_of_the_protocol() {
        let bytes = HELLO.bytes();
        assert_eq!(bytes[..8], [1, 2, 1, 0x80, 0, 0, 0, 3]);
        assert_eq!(
            bytes[8..24],
            [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 2]
        );
        assert_eq!(Hello::parse(&bytes), Some(HELLO));
        let padded = [&bytes[..], &[0; 16]].concat();
        assert_eq!(Hello::parse(&padded), Some(HELLO));
    }

    #[test]
    fn private_data_of_other_programs_is_refused() {
        let good = HELLO.bytes();
        let with = |at: usize, value: u8| {
            let mut bytes = good;
            bytes[at] = value;
            Hello::parse(&bytes)
        };
        assert_eq!(with(0, 2), None, "another version");
        assert_eq!(with(1, BIG_ENDIAN), None, "another order of bytes");
        assert_eq!(with(23, 0), None, "no table");
        assert_eq!(Hello::parse(&good[..39]), None);
        assert_eq!(Hello::parse(&[]), None);
    }

    #[test]
    fn messages_are_decoded_as_they_were_encoded() {
        let messages = [
            Message::Data(DATA_MAX),
            Message::Credits(u16::MAX),
            Message::Iomap(7),
            Message::Disconnect,
            Message::Keepalive,
            Message::Shutdown,
        ];
        for message in messages {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        assert_eq!(Message::decode(1 << VALUE_BITS), None);
        assert_eq!(Message::decode(CONTROL << VALUE_BITS | 3), None);
    }
}
