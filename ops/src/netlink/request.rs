//! A connection request within this host, judged by the kernel.
//!
//! `sock_diag(7)` looks up the socket that would receive a segment, with the function that TCP
//! itself uses: an established connection first, then the listener that fits best. So nothing here
//! repeats the kernel's rules for families, devices, `SO_REUSEPORT` and overlapping addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use host::netlink::Error;
use host::netlink::channel::Channel;
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use rustix::io::Errno;

use crate::local::Local;

/// The index of the loopback device in every network namespace.
const LOOPBACK: u32 = 1;

/// Accepts a socket of any cookie.
const ANY_COOKIE: [u8; 8] = [0xff; 8];

/// `TCP_LISTEN` of `tcp_states.h`.
const LISTEN: u8 = 10;

/// A request for a TCP connection from one address of this host to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalRequest {
    /// The address of the connecting socket.
    pub from: SocketAddr,
    /// The address to which it connects.
    pub to: SocketAddr,
    /// True if the kernel delivers packets to `from` to this host.
    pub is_from_local: bool,
    /// True if the kernel delivers packets to `to` to this host.
    pub is_to_local: bool,
    /// The socket that receives the request.
    pub receiver: Receiver,
}

/// The socket that receives a connection request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receiver {
    /// No socket.
    Nobody,
    /// A connection, or the rest of one, that has these two addresses.
    Connection,
    /// A listener.
    Listener {
        /// Its address in the form of its own family. `IPV6_V6ONLY` is reported for the unspecified
        /// address only.
        at: Local,
        /// User id of its creator, as in [`ListeningSocket`](super::ListeningSocket).
        user: u32,
        /// Index of the device to which it is bound; 0 for all devices.
        device: u32,
    },
}

impl Receiver {
    /// Returns the socket to which TCP delivers a segment that device `device` has received.
    pub(super) fn of(
        channel: &mut Channel<SockDiagMessage>,
        from: SocketAddr,
        to: SocketAddr,
        device: u32,
    ) -> Result<Self, Error> {
        match channel.get(question(from, to, device)) {
            Ok(SockDiagMessage::InetResponse(answer)) => Ok(Self::in_answer(&answer)),
            Ok(_) => Err(Error::Garbled),
            Err(Error::Refused(Errno::NOENT)) => Ok(Self::Nobody),
            Err(error) => Err(error),
        }
    }

    fn in_answer(answer: &InetResponse) -> Self {
        let header = &answer.header;
        if header.state != LISTEN {
            return Self::Connection;
        }
        let id = &header.socket_id;
        let address = with_scope(id.source_address, id.source_port, id.interface_id);
        Self::Listener {
            at: Local {
                address,
                ipv6_only: address.ip() == Ipv6Addr::UNSPECIFIED
                    && answer.nlas.contains(&Nla::SkV6Only(true)),
            },
            user: header.uid,
            device: id.interface_id,
        }
    }
}

/// Returns the device that is to have received a segment for `to`. IPv4 packets within the host are
/// received by the loopback device, IPv6 packets by the device of their destination.
pub(super) fn receiving_device(to: SocketAddr, of_route: u32) -> u32 {
    match to {
        SocketAddr::V4(_) => LOOPBACK,
        SocketAddr::V6(v6) if v6.scope_id() != 0 => v6.scope_id(),
        SocketAddr::V6(_) => of_route,
    }
}

/// Returns an address, with a scope if it is a link-local address.
pub(super) fn with_scope(ip: IpAddr, port: u16, device: u32) -> SocketAddr {
    match ip {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, device).into()
        }
        ip => SocketAddr::new(ip, port),
    }
}

/// Returns the unspecified address of the family of `address`.
pub(super) fn unspecified_like(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn question(from: SocketAddr, to: SocketAddr, device: u32) -> SockDiagMessage {
    // The kernel's point of view: the source is the receiving socket.
    let socket_id = SocketId {
        source_port: to.port(),
        destination_port: from.port(),
        source_address: to.ip(),
        destination_address: from.ip(),
        interface_id: device,
        cookie: ANY_COOKIE,
    };
    SockDiagMessage::InetRequest(InetRequest {
        family: if to.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use netlink_packet_sock_diag::constants::SOCK_DIAG_BY_FAMILY;
    use rustix::net::netlink::SOCK_DIAG;

    use super::*;

    fn receiver(from: SocketAddr, to: SocketAddr) -> Receiver {
        let mut channel = Channel::of(Some(SOCK_DIAG)).unwrap();
        Receiver::of(&mut channel, from, to, LOOPBACK).unwrap()
    }

    #[test]
    fn a_request_is_received_by_the_connection_the_listener_or_nobody() {
        assert_eq!(SOCK_DIAG_BY_FAMILY, 20);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let client = TcpStream::connect(to).unwrap();
        let from = client.local_addr().unwrap();
        assert_eq!(receiver(from, to), Receiver::Connection);
        let other = SocketAddr::new([127, 0, 0, 2].into(), from.port());
        let found = Receiver::Listener {
            at: to.into(),
            user: rustix::process::geteuid().as_raw(),
            device: 0,
        };
        assert_eq!(receiver(other, to), found);
        let elsewhere = SocketAddr::new([127, 0, 0, 2].into(), to.port());
        assert_eq!(receiver(from, elsewhere), Receiver::Nobody);
    }
}
