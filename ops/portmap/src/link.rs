//! What a process tells the one that answers for its namespace.
//!
//! One record a packet: what to do, the service, where it is mapped. A service that is offered
//! comes with a descriptor of its TCP socket: whoever has that may speak for the address.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, ipproto, sockopt,
};

/// Family, address, port.
const ADDRESS_LEN: usize = 1 + 16 + 2;

/// What to do, service, mapped.
const RECORD_LEN: usize = 1 + 2 * ADDRESS_LEN;

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    Offer {
        service: SocketAddr,
        mapped: SocketAddr,
    },
    Withdraw {
        service: SocketAddr,
    },
}

/// What a link has for its reader.
#[derive(Debug)]
pub(crate) enum Received {
    /// A record, and the socket that came with it.
    Record(Record, Option<OwnedFd>),
    /// Something that no process of this project sends.
    Nonsense,
    /// Nothing now.
    Nothing,
    /// The other end is gone.
    Gone,
}

impl Record {
    fn to_bytes(self) -> [u8; RECORD_LEN] {
        let (word, service, mapped) = match self {
            Self::Offer { service, mapped } => (1, service, mapped),
            Self::Withdraw { service } => (2, service, service),
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
            1 => Some(Self::Offer { service, mapped }),
            2 => Some(Self::Withdraw { service }),
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

/// Sends a record, with the socket that proves it.
pub(crate) fn send(
    link: BorrowedFd<'_>,
    record: Record,
    proof: Option<&OwnedFd>,
) -> Result<(), Errno> {
    let bytes = record.to_bytes();
    let sockets = proof.map(AsFd::as_fd);
    let sockets = sockets.as_slice();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(Errno::NOBUFS);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(link, &[IoSlice::new(&bytes)], &mut ancillary, flags).map(drop)
}

/// Takes one record; never waits.
pub(crate) fn receive(link: BorrowedFd<'_>) -> Received {
    let mut bytes = [0; RECORD_LEN + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let len = match rustix::net::recvmsg(link, &mut parts, &mut ancillary, flags) {
        Ok(received) => received.bytes,
        Err(Errno::AGAIN | Errno::INTR) => return Received::Nothing,
        Err(_) => return Received::Gone,
    };
    // Every descriptor that came is taken, so that none stays open.
    let mut sockets = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            sockets.extend(rights);
        }
    }
    match Record::parse(&bytes[..len]) {
        _ if len == 0 => Received::Gone,
        Some(record) if len == RECORD_LEN => Received::Record(record, sockets.pop()),
        _ => Received::Nonsense,
    }
}

/// Whether `socket` is the TCP socket at `service`.
pub(crate) fn proves(socket: &OwnedFd, service: SocketAddr) -> bool {
    let local = rustix::net::getsockname(socket).and_then(SocketAddr::try_from);
    local.is_ok_and(|local| local.ip() == service.ip() && local.port() == service.port())
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, socketpair};
    use std::net::{TcpListener, UdpSocket};

    fn pair() -> (OwnedFd, OwnedFd) {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn records_arrive_as_they_were_sent() {
        let (near, far) = pair();
        let proof = TcpListener::bind("127.0.0.1:0").unwrap().into();
        let service = "[2001:db8::1]:80".parse().unwrap();
        let mapped = "192.0.2.1:65535".parse().unwrap();
        let offer = Record::Offer { service, mapped };
        let withdraw = Record::Withdraw { service };
        send(near.as_fd(), offer, Some(&proof)).unwrap();
        send(near.as_fd(), withdraw, None).unwrap();
        let Received::Record(first, Some(_)) = receive(far.as_fd()) else {
            panic!()
        };
        let Received::Record(second, None) = receive(far.as_fd()) else {
            panic!()
        };
        assert_eq!((first, second), (offer, withdraw));
        assert!(matches!(receive(far.as_fd()), Received::Nothing));
        drop(near);
        assert!(matches!(receive(far.as_fd()), Received::Gone));
    }

    #[test]
    fn what_is_no_record_is_nonsense() {
        let good = Record::Withdraw {
            service: "10.0.0.1:1".parse().unwrap(),
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
            assert!(matches!(receive(far.as_fd()), Received::Nonsense));
        }
    }

    #[test]
    fn only_the_tcp_socket_of_the_address_proves_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let datagrams = UdpSocket::bind(local).unwrap();
        let other = SocketAddr::new(local.ip(), local.port() ^ 1);
        assert!(proves(&listener.try_clone().unwrap().into(), local));
        assert!(!proves(&listener.into(), other));
        assert!(!proves(&datagrams.into(), local));
        assert!(!proves(&pair().0, local));
    }
}
