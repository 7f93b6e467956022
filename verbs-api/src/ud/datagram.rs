//! The datagrams of UD queue pairs, and the header of the network that a receive shows.
//!
//! ```text
//!  0 magic, "dRu1"          4
//!  4 destination number     4
//!  8 source number          4
//! 12 Q_Key                  4
//! 16 immediate data         4
//! 20 flags                  1
//! 21 zero                   3
//! ```
//!
//! (offset, name, bytes; numbers in the byte order of the network)

use std::net::IpAddr;

/// The length of the header in bytes.
pub(super) const HEADER_LEN: usize = 24;
/// The longest payload, which is the MTU of the port.
pub(super) const PAYLOAD_MAX: usize = 4096;
/// The length of the header of the network in a receive (`struct ibv_grh`).
pub(crate) const GRH_LEN: usize = 40;

const MAGIC: [u8; 4] = *b"dRu1";
const HAS_IMMEDIATE: u8 = 1;
const IS_SOLICITED: u8 = 2;

/// The bytes that a RoCE v2 packet has between its IP header and its payload, and after it: the
/// headers of UDP, of the base transport and of datagrams, and the invariant CRC.
const BETWEEN: usize = 8 + 12 + 8 + 4;
const UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) to: u32,
    pub(super) from: u32,
    pub(super) key: u32,
    pub(super) immediate: Option<u32>,
    pub(super) solicited: bool,
}

impl Header {
    pub(super) fn bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let immediate = self.immediate.unwrap_or(0);
        bytes[..4].copy_from_slice(&MAGIC);
        for (at, number) in [
            (4, self.to),
            (8, self.from),
            (12, self.key),
            (16, immediate),
        ] {
            bytes[at..at + 4].copy_from_slice(&number.to_be_bytes());
        }
        if self.immediate.is_some() {
            bytes[20] |= HAS_IMMEDIATE;
        }
        if self.solicited {
            bytes[20] |= IS_SOLICITED;
        }
        bytes
    }

    /// Returns the header and the payload of a datagram; `None` if it is not one of this protocol.
    pub(super) fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, payload) = datagram.split_first_chunk::<HEADER_LEN>()?;
        if bytes[..4] != MAGIC || payload.len() > PAYLOAD_MAX {
            return None;
        }
        let [to, from, key, immediate] = [4, 8, 12, 16].map(|at| {
            let number = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            u32::from_be_bytes(number)
        });
        let header = Self {
            to,
            from,
            key,
            immediate: (bytes[20] & HAS_IMMEDIATE != 0).then_some(immediate),
            solicited: bytes[20] & IS_SOLICITED != 0,
        };
        Some((header, payload))
    }
}

/// Returns the header of the network of a message with `len` bytes of payload, as a RoCE v2 device
/// stores it: that of IPv6, or that of IPv4 in the last 20 bytes.
pub(super) fn network_header(from: IpAddr, to: IpAddr, len: usize) -> [u8; GRH_LEN] {
    let mut bytes = [0; GRH_LEN];
    let below = (BETWEEN + len) as u16;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let v4 = &mut bytes[20..];
            v4[0] = 0x45;
            v4[2..4].copy_from_slice(&(below + 20).to_be_bytes());
            v4[6] = 0x40;
            v4[8] = HOP_LIMIT;
            v4[9] = UDP;
            v4[12..16].copy_from_slice(&from.octets());
            v4[16..20].copy_from_slice(&to.octets());
            let sum = checksum(v4);
            v4[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (from, to) => {
            bytes[0] = 0x60;
            bytes[4..6].copy_from_slice(&below.to_be_bytes());
            bytes[6] = UDP;
            bytes[7] = HOP_LIMIT;
            for (at, address) in [(8, from), (24, to)] {
                let octets = match address {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                    IpAddr::V6(v6) => v6.octets(),
                };
                bytes[at..at + 16].copy_from_slice(&octets);
            }
        }
    }
    bytes
}

/// Returns the service level of a received message. Ethernet has none; RoCE v2 devices report the
/// type of the header of the network (2 for IPv4, 1 for IPv6) and a bit for UDP, by which UCX finds
/// the addresses in it.
pub(super) fn service_level(from: IpAddr) -> u8 {
    const HAS_UDP: u8 = 8;
    HAS_UDP | if from.is_ipv4() { 2 } else { 1 }
}

/// Returns the addresses of the sender and of the receiver in a header of the network.
pub(crate) fn addresses(header: &[u8; GRH_LEN]) -> Option<(IpAddr, IpAddr)> {
    let v4 = &header[20..];
    let is_v4 = v4[0] == 0x45 && checksum(v4) == 0;
    if is_v4 {
        let at = |at: usize| IpAddr::from([v4[at], v4[at + 1], v4[at + 2], v4[at + 3]]);
        return Some((at(12), at(16)));
    }
    let is_v6 = header[0] >> 4 == 6;
    let at = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = header.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(octets).to_canonical())
    };
    is_v6.then(|| Some((at(8)?, at(24)?))).flatten()
}

/// The checksum of an IPv4 header, whose own field counts as it is: 0 for a header that is valid.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_parsed_as_it_was_made() {
        let header = Header {
            to: 0x12_34ff,
            from: 0x56_78ff,
            key: 0x1111_1111,
            immediate: Some(7),
            solicited: true,
        };
        let mut datagram = header.bytes().to_vec();
        datagram.extend_from_slice(b"payload");
        assert_eq!(Header::parse(&datagram), Some((header, &b"payload"[..])));
        assert_eq!(Header::parse(&datagram[..HEADER_LEN - 1]), None);
        datagram.resize(HEADER_LEN + PAYLOAD_MAX + 1, 0);
        assert_eq!(Header::parse(&datagram), None);
        datagram.truncate(HEADER_LEN);
        datagram[0] ^= 1;
        assert_eq!(Header::parse(&datagram), None);
    }

    #[test]
    fn the_header_of_the_network_names_both_ends() {
        for (from, to) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
            let header = network_header(from, to, 64);
            assert_eq!(addresses(&header), Some((from, to)));
        }
        assert_eq!(addresses(&[0; GRH_LEN]), None);
    }
}
