//! The messages of a client to the process that answers for its namespace.
//!
//! Each packet holds one record: the operation, the service, the mapped address. No descriptor is
//! passed. A process with a copy of a listening socket could accept on it, and a copy in flight
//! would keep the address in use after the server has ended. Any local user may be at the other
//! end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::portmap::mappings::Offering;

/// Family, address, port.
const ADDRESS_LEN: usize = 1 + 16 + 2;

/// The operation, the service, the mapped address.
const RECORD_LEN: usize = 1 + 2 * ADDRESS_LEN;

/// The packet of a server that refuses a client. It is not a record of a client.
const REFUSAL: u8 = 0;

/// A message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    Offer(Offering),
    Withdraw {
        service: SocketAddr,
        mapped: SocketAddr,
    },
}

/// The result of reading a link.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Received {
    Record(Record),
    /// A packet that is not a record. From a server, this is its refusal.
    Nonsense,
    /// No packet is queued.
    Nothing,
    /// The other end is closed.
    Gone,
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD_LEN] {
        let (word, service, mapped) = match self {
            Self::Offer(offering) if offering.ipv6_only => (3, offering.service, offering.mapped),
            Self::Offer(offering) => (1, offering.service, offering.mapped),
            Self::Withdraw { service, mapped } => (2, service, mapped),
        };
        let mut bytes = [0; RECORD_LEN];
        bytes[0] = word;
        bytes[1..1 + ADDRESS_LEN].copy_from_slice(&address_bytes(service));
        bytes[1 + ADDRESS_LEN..].copy_from_slice(&address_bytes(mapped));
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (word, addresses) = bytes.split_first()?;
        let (service, mapped) = addresses.split_first_chunk()?;
        let service = address_of(service)?;
        let mapped = address_of(mapped.try_into().ok()?)?;
        match word {
            1 | 3 => Some(Self::Offer(Offering {
                service,
                mapped,
                ipv6_only: *word == 3,
            })),
            2 => Some(Self::Withdraw { service, mapped }),
            _ => None,
        }
    }
}

fn address_bytes(address: SocketAddr) -> [u8; ADDRESS_LEN] {
    let mut bytes = [0; ADDRESS_LEN];
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes[0] = 4;
            bytes[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[0] = 6;
            bytes[1..17].copy_from_slice(&ip.octets());
        }
    }
    bytes[17..].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

fn address_of(bytes: &[u8; ADDRESS_LEN]) -> Option<SocketAddr> {
    let [family, ip @ .., high, low] = bytes;
    let ip: &[u8; 16] = ip.first_chunk()?;
    let [a, b, c, d, ..] = *ip;
    let ip = match family {
        4 => Ipv4Addr::new(a, b, c, d).into(),
        6 => Ipv6Addr::from(*ip).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([*high, *low])))
}

/// Sends a record; never waits.
pub(super) fn send(link: BorrowedFd<'_>, record: Record) -> Result<(), Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::send(link, &record.to_bytes(), flags).map(drop)
}

/// Notifies a client that it is refused, before its link is closed. A link that ends without this
/// packet shows that the server has ended.
pub(super) fn refuse(link: BorrowedFd<'_>) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // If the packet cannot be sent, the client tries again sooner.
    let _ = rustix::net::send(link, &[REFUSAL], flags);
}

/// Receives one record; never waits. The kernel closes descriptors that were sent with it, because
/// the call passes no buffer for them.
pub(super) fn receive(link: BorrowedFd<'_>) -> Received {
    let mut bytes = [0; RECORD_LEN + 1];
    let len = loop {
        match rustix::net::recv(link, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((len, _)) => break len,
            Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
            // The other end has closed without reading all records. The kernel reports this once,
            // before the packets that the other end has sent.
            Err(Errno::CONNRESET) => {}
            Err(_) => return Received::Gone,
        }
    };
    match Record::parse(&bytes[..len]) {
        _ if len == 0 => Received::Gone,
        Some(record) if len == RECORD_LEN => Received::Record(record),
        _ => Received::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn records_arrive_as_they_were_sent() {
        let (near, far) = pair();
        let service = "[2001:db8::1]:80".parse().unwrap();
        let mapped = "192.0.2.1:65535".parse().unwrap();
        let offering = Offering::new(service, mapped);
        let records = [
            Record::Offer(offering),
            Record::Offer(Offering {
                ipv6_only: true,
                ..offering
            }),
            Record::Withdraw { service, mapped },
        ];
        for record in records {
            send(near.as_fd(), record).unwrap();
        }
        for record in records {
            assert_eq!(receive(far.as_fd()), Received::Record(record));
        }
        assert_eq!(receive(far.as_fd()), Received::Nothing);
        drop(near);
        assert_eq!(receive(far.as_fd()), Received::Gone);
    }

    #[test]
    fn malformed_records_are_refused() {
        let good = Record::Withdraw {
            service: "10.0.0.1:1".parse().unwrap(),
            mapped: "10.0.0.1:2".parse().unwrap(),
        }
        .to_bytes();
        for at in [0, 1, 1 + ADDRESS_LEN] {
            let mut bytes = good;
            bytes[at] = 9;
            assert_eq!(Record::parse(&bytes), None, "byte {at}");
        }
        let (near, far) = pair();
        for bytes in [&good[..5], &[&good[..], &[0]].concat()] {
            rustix::io::write(&near, bytes).unwrap();
            assert_eq!(receive(far.as_fd()), Received::Nonsense);
        }
    }
}
