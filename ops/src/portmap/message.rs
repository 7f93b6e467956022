//! The datagrams of the port mapper protocol.
//!
//! ```text
//!  0  version (2 bits), kind (2 bits), IP version (4 bits)      1  map time
//!  2  in a Request the mapped port of the connecting peer       4  accepting peer's port
//!  6  connecting peer's port                                    8  association handle
//! 16  connecting peer's IP                                     32  accepting peer's IP
//! 48  mapped IP of the connecting peer, in a Request only
//! ```
//!
//! Numbers are in network order; an IPv4 address fills the first 4 of its 16 bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Length of every message but a Request.
const SHORT_LEN: usize = 48;

const LONG_LEN: usize = 64;

/// The kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Asks whether a service is offered over RDMA.
    Request,
    /// The service is offered, at the address in the message.
    Accept,
    /// The Accept was received.
    Ack,
    /// The service is not offered.
    Reject,
}

/// A message. All its addresses are of one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    kind: Kind,
    map_time: u8,
    mapped_port: u16,
    accepting: SocketAddr,
    connecting: SocketAddr,
    handle: u64,
    mapped_ip: Option<IpAddr>,
}

/// The reason why bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// No message has this length.
    #[error("{0} bytes are not a port mapper message")]
    Length(usize),
    /// A later version of the protocol.
    #[error("version {0} of the port mapper protocol is not supported, only 0 is")]
    Version(u8),
    /// Neither IPv4 nor IPv6.
    #[error("IP version {0} is neither 4 nor 6")]
    IpVersion(u8),
}

impl Message {
    /// Returns a Request about the service at `accepting` from `connecting`, whose mapped address
    /// is its own. `None` if the addresses are of two families.
    #[must_use]
    pub fn request(accepting: SocketAddr, connecting: SocketAddr, handle: u64) -> Option<Self> {
        let (accepting, connecting) = (plain(accepting), plain(connecting));
        (accepting.is_ipv4() == connecting.is_ipv4()).then_some(Self {
            kind: Kind::Request,
            map_time: 0,
            mapped_port: connecting.port(),
            accepting,
            connecting,
            handle,
            mapped_ip: Some(connecting.ip()),
        })
    }

    /// Returns the Accept for this Request: the service is at `mapped`. `None` if `mapped` is of
    /// the other family.
    #[must_use]
    pub fn accept(&self, mapped: SocketAddr) -> Option<Self> {
        let mapped = plain(mapped);
        (mapped.is_ipv4() == self.accepting.is_ipv4()).then(|| Self {
            accepting: mapped,
            ..self.reply(Kind::Accept)
        })
    }

    /// Returns the Reject for this Request.
    #[must_use]
    pub fn reject(&self) -> Self {
        self.reply(Kind::Reject)
    }

    /// Returns the Ack for this Accept.
    #[must_use]
    pub fn ack(&self) -> Self {
        self.reply(Kind::Ack)
    }

    fn reply(&self, kind: Kind) -> Self {
        Self {
            kind,
            mapped_port: 0,
            mapped_ip: None,
            ..self.clone()
        }
    }

    /// Returns the kind of the message.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The address of the service; in an Accept, its address over RDMA.
    #[must_use]
    pub fn accepting(&self) -> SocketAddr {
        self.accepting
    }

    /// The address of the process that asks.
    #[must_use]
    pub fn connecting(&self) -> SocketAddr {
        self.connecting
    }

    /// The number that associates answers with their question.
    #[must_use]
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Reads a datagram.
    ///
    /// # Errors
    /// Fails if the bytes are not a message. A Request may omit the mapped address.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed::Length(bytes.len());
        let (head, rest) = bytes.split_first_chunk::<SHORT_LEN>().ok_or(malformed)?;
        let (version, kind, ip_version) = (head[0] >> 6, head[0] >> 4 & 3, head[0] & 0xF);
        if version != 0 {
            return Err(Malformed::Version(version));
        }
        let is_v4 = match ip_version {
            4 => true,
            6 => false,
            other => return Err(Malformed::IpVersion(other)),
        };
        let kind = match kind {
            0 => Kind::Request,
            1 => Kind::Accept,
            2 => Kind::Ack,
            _ => Kind::Reject,
        };
        let mapped_ip = match (kind, rest) {
            (_, []) => None,
            (Kind::Request, rest) => {
                let last: &[u8; 16] = rest.try_into().map_err(|_| malformed)?;
                Some(ip_of(last, is_v4))
            }
            _ => return Err(malformed),
        };
        let [_, map_time, m0, m1, a0, a1, c0, c1, ..] = *head;
        let ip_at = |at: usize| {
            let field: &[u8; 16] = head[at..].first_chunk().ok_or(malformed)?;
            Ok(ip_of(field, is_v4))
        };
        let handle = head[8..].first_chunk().ok_or(malformed)?;
        Ok(Self {
            kind,
            map_time,
            mapped_port: u16::from_be_bytes([m0, m1]),
            accepting: SocketAddr::new(ip_at(32)?, u16::from_be_bytes([a0, a1])),
            connecting: SocketAddr::new(ip_at(16)?, u16::from_be_bytes([c0, c1])),
            handle: u64::from_be_bytes(*handle),
            mapped_ip,
        })
    }

    /// Writes the datagram.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Request => 0,
            Kind::Accept => 1,
            Kind::Ack => 2,
            Kind::Reject => 3,
        };
        let ip_version = if self.accepting.is_ipv4() { 4 } else { 6 };
        let mut bytes = Vec::with_capacity(LONG_LEN);
        bytes.extend([kind << 4 | ip_version, self.map_time]);
        bytes.extend(self.mapped_port.to_be_bytes());
        bytes.extend(self.accepting.port().to_be_bytes());
        bytes.extend(self.connecting.port().to_be_bytes());
        bytes.extend(self.handle.to_be_bytes());
        bytes.extend(field_of(self.connecting.ip()));
        bytes.extend(field_of(self.accepting.ip()));
        bytes.extend(self.mapped_ip.into_iter().flat_map(field_of));
        bytes
    }
}

/// Removes scope and flow, which messages do not have. Turns an IPv4-mapped address into IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn ip_of(field: &[u8; 16], is_v4: bool) -> IpAddr {
    let [a, b, c, d, ..] = *field;
    if is_v4 {
        Ipv4Addr::new(a, b, c, d).into()
    } else {
        Ipv6Addr::from(*field).into()
    }
}

fn field_of(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => {
            let mut field = [0; 16];
            field[..4].copy_from_slice(&v4.octets());
            field
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn request() -> Message {
        let (service, own) = (address("192.0.2.2:6379"), address("192.0.2.1:40000"));
        Message::request(service, own, 0x0102_0304_0506_0708).unwrap()
    }

    #[test]
    fn a_request_has_the_bytes_of_the_protocol() {
        let mut expected = vec![0x04, 0, 0x9c, 0x40, 0x18, 0xeb, 0x9c, 0x40];
        expected.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        for ip in [[192, 0, 2, 1], [192, 0, 2, 2], [192, 0, 2, 1]] {
            expected.extend(ip);
            expected.extend([0; 12]);
        }
        assert_eq!(request().to_bytes(), expected);
        assert_eq!(Message::parse(&expected), Ok(request()));
    }

    #[test]
    fn answers_repeat_the_question() {
        let accept = request().accept(address("192.0.2.2:41000")).unwrap();
        for (message, first, port) in [
            (accept.clone(), 0x14, 41000),
            (accept.ack(), 0x24, 41000),
            (request().reject(), 0x34, 6379),
        ] {
            let bytes = message.to_bytes();
            assert_eq!((bytes.len(), bytes[0]), (48, first));
            assert_eq!(bytes[2..4], [0, 0]);
            assert_eq!(message.accepting().port(), port);
            assert_eq!(message.connecting(), request().connecting());
            assert_eq!(message.handle(), request().handle());
            assert_eq!(Message::parse(&bytes), Ok(message));
        }
    }

    #[test]
    fn ipv6_fills_its_fields() {
        let (service, own) = (address("[2001:db8::2]:80"), address("[2001:db8::1]:9"));
        let request = Message::request(service, own, 1).unwrap();
        assert_eq!(request.to_bytes()[0], 0x06);
        assert_eq!(Message::parse(&request.to_bytes()), Ok(request));
        assert_eq!(Message::request(service, address("10.0.0.1:9"), 1), None);
        // An IPv4-mapped IPv6 address counts as IPv4.
        let dressed = Message::request(address("[::ffff:10.0.0.1]:80"), address("10.0.0.2:9"), 1);
        assert_eq!(dressed.unwrap().to_bytes()[0], 0x04);
    }

    #[test]
    fn what_is_no_message_is_named() {
        let good = request().to_bytes();
        for (len, malformed) in [(0, 0), (47, 47), (49, 49), (63, 63), (65, 65)] {
            let mut bytes = good.clone();
            bytes.resize(len, 0);
            assert_eq!(Message::parse(&bytes), Err(Malformed::Length(malformed)));
        }
        let with_first = |first: u8| {
            let mut bytes = good.clone();
            bytes[0] = first;
            Message::parse(&bytes)
        };
        assert_eq!(with_first(0x44), Err(Malformed::Version(1)));
        assert_eq!(with_first(0x05), Err(Malformed::IpVersion(5)));
        // Only a Request is that long.
        assert_eq!(with_first(0x14), Err(Malformed::Length(64)));
        // The mapped address may be left out.
        assert!(Message::parse(&good[..48]).is_ok());
    }
}
