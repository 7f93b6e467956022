//! Hello: the parameters of the active side.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{BSDH_LEN, Bsdh, Flags, HEADER_MAX, Mid, WireError, array_at, u16_at, u32_at};
use crate::Seq;

/// The version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// 1 or 2. Both versions have the same messages.
    pub major: u8,
    /// The minor number, which has no effect on the messages.
    pub minor: u8,
}

impl Version {
    /// The version that this implementation sends.
    pub const OURS: Self = Self { major: 2, minor: 2 };

    pub(super) fn parse(byte: u8) -> Result<Self, WireError> {
        let (major, minor) = (byte >> 4, byte & 0x0f);
        if matches!(major, 1 | 2) {
            Ok(Self { major, minor })
        } else {
            Err(WireError::Version { major, minor })
        }
    }

    pub(super) const fn byte(self) -> u8 {
        self.major << 4 | self.minor & 0x0f
    }
}

/// The private data of the connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The number of receive buffers that the sender has posted.
    pub bufs: u16,
    /// The protocol version of the sender.
    pub version: Version,
    /// True if the sender can receive a Send with Invalidate.
    pub takes_invalidate: bool,
    /// The number of advertisements, of both kinds together, that the sender accepts at a time.
    pub adverts_max: u16,
    /// The receive buffer size that the sender would like at the peer, base header included.
    pub wanted_size: u32,
    /// The sender's own receive buffer size, base header included.
    pub own_size: u32,
    /// The sender's port in TCP's port space.
    pub port: u16,
    /// The sender's address.
    pub source: IpAddr,
    /// The address that the sender connects to. The port is in the transport's service identifier.
    pub destination: IpAddr,
}

/// The error of a provider whose private data is too short for a set-up message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the provider carries {available} bytes of private data, Hello needs {needed}")]
pub struct TrimError {
    /// The number of bytes that carry information.
    pub needed: usize,
    /// The number of bytes that the provider carries.
    pub available: usize,
}

/// Cap bit 0.
const TAKES_INVALIDATE: u8 = 0x01;
/// Cap bit 1.
const EXTENDED_ADVERTS: u8 = 0x02;

impl Hello {
    /// The length of the message in bytes.
    pub const LEN: usize = 92;

    /// Parses a Hello. A provider may have removed trailing zeros or added some.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let bsdh = setup_header(bytes, Mid::Hello, Self::LEN)?;
        let version = Version::parse(byte_at(bytes, 16))?;
        let family = byte_at(bytes, 17) >> 4;
        let cap = byte_at(bytes, 17) & 0x0f;
        let hello = Self {
            bufs: bsdh.bufs,
            version,
            takes_invalidate: cap & TAKES_INVALIDATE != 0,
            adverts_max: if cap & EXTENDED_ADVERTS != 0 {
                u16_at(bytes, 66)
            } else {
                u16::from(byte_at(bytes, 19))
            },
            wanted_size: u32_at(bytes, 20),
            own_size: u32_at(bytes, 24),
            port: u16_at(bytes, 28),
            source: address(family, array_at(bytes, 32))?,
            destination: address(family, array_at(bytes, 48))?,
        };
        check_limits(hello.bufs, hello.adverts_max, hello.own_size)?;
        Ok(hello)
    }

    /// The whole message as bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..BSDH_LEN].copy_from_slice(&setup_bsdh(Mid::Hello, self.bufs, Self::LEN).emit());
        let family = if self.source.is_ipv4() { 4 } else { 6 };
        let mut cap = u8::from(self.takes_invalidate) * TAKES_INVALIDATE;
        match u8::try_from(self.adverts_max) {
            Ok(adverts) => bytes[19] = adverts,
            Err(_) => {
                cap |= EXTENDED_ADVERTS;
                bytes[19] = u8::MAX;
                bytes[66..68].copy_from_slice(&self.adverts_max.to_be_bytes());
            }
        }
        bytes[16] = self.version.byte();
        bytes[17] = family << 4 | cap;
        bytes[20..24].copy_from_slice(&self.wanted_size.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.own_size.to_be_bytes());
        bytes[28..30].copy_from_slice(&self.port.to_be_bytes());
        bytes[32..48].copy_from_slice(&padded(self.source));
        bytes[48..64].copy_from_slice(&padded(self.destination));
        bytes
    }

    /// The number of bytes that carry information while MaxAdverts is at most 255.
    pub const NEEDED_LEN_MIN: usize = 64;

    /// The number of bytes that carry information; the rest is zero.
    #[must_use]
    pub fn needed_len(&self) -> usize {
        if self.adverts_max > u16::from(u8::MAX) {
            68
        } else {
            Self::NEEDED_LEN_MIN
        }
    }

    /// Returns the message, truncated to `available` bytes. Only zeros may be removed.
    pub fn trimmed(&self, available: usize) -> Result<Vec<u8>, TrimError> {
        let needed = self.needed_len();
        if available < needed {
            return Err(TrimError { needed, available });
        }
        Ok(self.emit()[..Self::LEN.min(available)].to_vec())
    }
}

/// Parses and checks the base header of a set-up message. `bytes` may be shorter than the message
/// if the missing bytes are zero, and longer by zeros.
pub(super) fn setup_header(bytes: &[u8], mid: Mid, len: usize) -> Result<Bsdh, WireError> {
    let bsdh = Bsdh::parse(bytes)?;
    if bsdh.mid != mid {
        return Err(WireError::Misplaced(bsdh.mid));
    }
    let padding_is_zero = bytes.iter().skip(len).all(|byte| *byte == 0);
    if bsdh.len as usize != len || !padding_is_zero {
        return Err(WireError::Length {
            stated: bsdh.len,
            received: bytes.len(),
        });
    }
    if bsdh.seq != Seq(0) || bsdh.ack != Seq(0) {
        return Err(WireError::Numbered);
    }
    Ok(bsdh)
}

/// The base header of a set-up message of `len` bytes.
pub(super) fn setup_bsdh(mid: Mid, bufs: u16, len: usize) -> Bsdh {
    Bsdh {
        mid,
        flags: Flags::default(),
        bufs,
        len: len as u32,
        seq: Seq(0),
        ack: Seq(0),
    }
}

/// Checks the limits without which no data can be sent. The longest header and one byte must fit
/// into a buffer.
pub(super) fn check_limits(bufs: u16, adverts: u16, size: u32) -> Result<(), WireError> {
    if adverts == 0 {
        return Err(WireError::NoAdverts);
    }
    if size <= HEADER_MAX as u32 {
        return Err(WireError::BufferSize(size));
    }
    if bufs < crate::BUFFERS_MIN {
        return Err(WireError::BufferCount(bufs));
    }
    Ok(())
}

/// The byte at `at`; zero if it was trimmed.
pub(super) fn byte_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

fn address(family: u8, bytes: [u8; 16]) -> Result<IpAddr, WireError> {
    match family {
        4 if bytes[..12] != [0; 12] => Err(WireError::Ipv4Padding),
        4 => Ok(Ipv4Addr::from(array_at::<4>(&bytes, 12)).into()),
        6 => Ok(Ipv6Addr::from(bytes).into()),
        other => Err(WireError::AddressFamily(other)),
    }
}

/// IPv4 addresses are in the last four bytes after zeros, not in the mapped form.
fn padded(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[12..].copy_from_slice(&address.octets());
            bytes
        }
    }
}
