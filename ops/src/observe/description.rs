//! The properties of a socket that do not change during its life.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::observe::layout::WORDS;

const BYTES: usize = WORDS * 8;
const KIND: usize = 0;
const PORTS: usize = 2;
const SCOPES: usize = 8;
const ADDRESSES: usize = 16;
const PROTOCOL: usize = 48;
const PROTOCOL_LEN: usize = 16;
const DETAIL: usize = PROTOCOL + PROTOCOL_LEN;
/// The maximum length of a device's name or a reason, in bytes.
pub(super) const DETAIL_LEN: usize = BYTES - DETAIL;

/// The protocol name of TCP.
const TCP: &str = "tcp";

/// The purpose of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Has a peer, or is about to connect to one.
    Connection,
    /// Accepts connections.
    Listener,
}

/// The protocol that carries a socket's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// An offload protocol.
    Offload {
        /// Name of the protocol.
        protocol: String,
        /// Name of the device or of the interface adapter; empty without one.
        device: String,
    },
    /// TCP.
    Tcp {
        /// The reason for which no offload protocol carries it.
        reason: String,
    },
}

impl Carrier {
    /// Returns the name of the protocol.
    #[must_use]
    pub fn protocol(&self) -> &str {
        match self {
            Self::Offload { protocol, .. } => protocol,
            Self::Tcp { .. } => TCP,
        }
    }
}

/// The properties of a socket that do not change during its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// The purpose of the socket.
    pub kind: Kind,
    /// The address of this end; unspecified for a connection over TCP.
    pub local: SocketAddr,
    /// The address of the peer; unused for a listener.
    pub remote: SocketAddr,
    /// The protocol that carries the socket's bytes.
    pub carrier: Carrier,
}

impl Description {
    /// Encodes the description as words of a record. Text that is too long is truncated.
    #[must_use]
    pub fn encode(&self) -> [u64; WORDS] {
        let (protocol, detail) = match &self.carrier {
            Carrier::Offload { protocol, device } => (protocol.as_str(), device),
            Carrier::Tcp { reason } => (TCP, reason),
        };
        let detail = words(cut(detail, DETAIL_LEN));
        encode(self.kind, [self.local, self.remote], protocol, &detail)
    }

    /// Decodes the words of a record, which any program may have written. Returns `None` if they
    /// are no description.
    #[must_use]
    pub fn decode(words: &[u64; WORDS]) -> Option<Self> {
        let mut bytes = [0_u8; BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        let kind = match bytes[KIND] {
            1 => Kind::Connection,
            2 => Kind::Listener,
            _ => return None,
        };
        let protocol = text(&bytes[PROTOCOL..DETAIL]);
        let detail = text(&bytes[DETAIL..]);
        let carrier = if protocol == TCP {
            Carrier::Tcp { reason: detail }
        } else {
            Carrier::Offload {
                protocol,
                device: detail,
            }
        };
        Some(Self {
            kind,
            local: address(&bytes, 0),
            remote: address(&bytes, 1),
            carrier,
        })
    }
}

/// Encodes a socket on TCP. The reason is padded with zeros.
pub(super) fn encode_tcp(
    kind: Kind,
    ends: [SocketAddr; 2],
    reason: &[u64; DETAIL_LEN / 8],
) -> [u64; WORDS] {
    encode(kind, ends, TCP, reason)
}

fn encode(
    kind: Kind,
    ends: [SocketAddr; 2],
    protocol: &str,
    detail: &[u64; DETAIL_LEN / 8],
) -> [u64; WORDS] {
    let mut bytes = [0_u8; DETAIL];
    bytes[KIND] = match kind {
        Kind::Connection => 1,
        Kind::Listener => 2,
    };
    for (end, address) in ends.into_iter().enumerate() {
        let (ip, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        put(&mut bytes, PORTS + 2 * end, &address.port().to_ne_bytes());
        put(&mut bytes, SCOPES + 4 * end, &scope.to_ne_bytes());
        put(&mut bytes, ADDRESSES + 16 * end, &ip.octets());
    }
    put(&mut bytes, PROTOCOL, cut(protocol, PROTOCOL_LEN));
    let mut all = [0; WORDS];
    let (first, rest) = all.split_at_mut(DETAIL / 8);
    for (to, from) in first.iter_mut().zip(bytes.as_chunks().0) {
        *to = u64::from_ne_bytes(*from);
    }
    rest.copy_from_slice(detail);
    all
}

fn address(bytes: &[u8; BYTES], end: usize) -> SocketAddr {
    let port = u16::from_ne_bytes(array(bytes, PORTS + 2 * end));
    let scope = u32::from_ne_bytes(array(bytes, SCOPES + 4 * end));
    let ip = Ipv6Addr::from(array::<16>(bytes, ADDRESSES + 16 * end));
    match ip.to_canonical() {
        IpAddr::V4(ip) => (ip, port).into(),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

fn array<const N: usize>(bytes: &[u8; BYTES], at: usize) -> [u8; N] {
    std::array::from_fn(|index| bytes[at + index])
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

/// Returns the longest prefix of a text that fits into `room` bytes, in whole characters.
pub(super) fn cut(text: &str, room: usize) -> &[u8] {
    &text.as_bytes()[..text.floor_char_boundary(room)]
}

/// Returns the text up to the first zero. Control characters are replaced, so that printing it
/// cannot change a terminal.
pub(super) fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..len.unwrap_or(bytes.len())])
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Converts bytes to words. The last word is padded with zeros.
pub(super) fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|index| {
        let mut word = [0; 8];
        let part = bytes.get(8 * index..).unwrap_or_default();
        let len = part.len().min(8);
        word[..len].copy_from_slice(&part[..len]);
        u64::from_ne_bytes(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(local: &str, remote: &str, carrier: Carrier) -> Description {
        Description {
            kind: Kind::Connection,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            carrier,
        }
    }

    fn tcp(reason: &str) -> Carrier {
        Carrier::Tcp {
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let sdp = Carrier::Offload {
            protocol: "sdp".to_owned(),
            device: "iwarp-soft0".to_owned(),
        };
        for description in [
            sample("192.0.2.1:40000", "192.0.2.2:5001", sdp.clone()),
            sample("[2001:db8::1]:1", "[fe80::2%3]:65535", tcp("no route")),
            sample("0.0.0.0:0", "[::]:0", tcp("")),
        ] {
            assert_eq!(
                Description::decode(&description.encode()),
                Some(description)
            );
        }
        let mut listener = sample("[::]:80", "[::]:0", sdp);
        listener.kind = Kind::Listener;
        assert_eq!(Description::decode(&listener.encode()), Some(listener));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let long = sample("192.0.2.1:1", "192.0.2.2:2", tcp(&"ü".repeat(100)));
        let read = Description::decode(&long.encode()).unwrap();
        assert_eq!(read.carrier, tcp(&"ü".repeat(56)));
        let odd = sample("192.0.2.1:1", "192.0.2.2:2", tcp(&format!("x{long:?}")));
        assert!(Description::decode(&odd.encode()).is_some());
    }

    #[test]
    fn what_a_stranger_writes_reaches_no_terminal() {
        let hostile = sample("192.0.2.1:1", "192.0.2.2:2", tcp("\u{1b}[2J\nx"));
        let read = Description::decode(&hostile.encode()).unwrap();
        assert_eq!(read.carrier, tcp("?[2J?x"));
        assert_eq!(Description::decode(&[0; WORDS]), None);
        assert!(Description::decode(&[u64::MAX; WORDS]).is_none());
    }
}
