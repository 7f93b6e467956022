//! Listening TCP sockets and their owners.

use std::net::{IpAddr, SocketAddr};

use host::netlink::Error;
use host::netlink::channel::Channel;
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use rustix::net::netlink::SOCK_DIAG;

/// A TCP socket in the state LISTEN, as reported by `sock_diag(7)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListeningSocket {
    /// User id of the socket's creator. A user that this user namespace does not map has the
    /// kernel's overflow number.
    pub user: u32,
    /// Index of the device to which the socket is bound; 0 for all devices.
    pub device: u32,
    /// True if the socket's address is an IPv6 address and accepts connections over IPv6 only.
    pub ipv6_only: bool,
}

impl ListeningSocket {
    /// Returns the sockets that listen at exactly this address in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// Fails if this process cannot read the table of sockets: the kernel was built without it, or
    /// a filter of system calls denies access.
    pub fn at(service: SocketAddr) -> Result<Vec<Self>, Error> {
        let mut channel = Channel::of(Some(SOCK_DIAG))?;
        let mut found = Vec::new();
        // An IPv6 socket may listen at an IPv4 address too.
        let families = [AF_INET, AF_INET6];
        for family in families.into_iter().skip(usize::from(service.is_ipv6())) {
            let answers = channel.dump(&request(family, service.port()))?;
            found.extend(answers.iter().filter_map(|answer| match answer {
                SockDiagMessage::InetResponse(answer) => Self::of(answer, service),
                _ => None,
            }));
        }
        Ok(found)
    }

    fn of(answer: &InetResponse, service: SocketAddr) -> Option<Self> {
        let id = &answer.header.socket_id;
        let is_it = id.source_port == service.port() && ip_of(id) == service.ip().to_canonical();
        is_it.then_some(Self {
            user: answer.header.uid,
            device: id.interface_id,
            ipv6_only: answer.nlas.contains(&Nla::SkV6Only(true)),
        })
    }
}

fn ip_of(id: &SocketId) -> IpAddr {
    id.source_address.to_canonical()
}

/// Returns the request for the listening sockets at a port.
fn request(family: u8, port: u16) -> SockDiagMessage {
    let mut socket_id = if family == AF_INET {
        SocketId::new_v4()
    } else {
        SocketId::new_v6()
    };
    socket_id.source_port = port;
    SockDiagMessage::InetRequest(InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::LISTEN,
        socket_id,
    })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_listener_is_found_and_its_connections_are_not() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let service = listener.local_addr().unwrap();
        let _client = TcpStream::connect(service).unwrap();
        let (server, _) = listener.accept().unwrap();
        let found = match ListeningSocket::at(service) {
            Ok(found) => found,
            // Skipped on a kernel without a table of sockets; the suites report tests that were not
            // run.
            Err(error) => return eprintln!("not run: {error}"),
        };
        let own = ListeningSocket {
            user: rustix::process::geteuid().as_raw(),
            device: 0,
            ipv6_only: false,
        };
        assert_eq!(found, [own]);
        assert_eq!(
            ListeningSocket::at(([127, 0, 0, 2], service.port()).into()),
            Ok(Vec::new())
        );
        drop(listener);
        assert_eq!(server.local_addr().unwrap(), service);
        assert_eq!(ListeningSocket::at(service), Ok(Vec::new()));
    }

    #[test]
    fn a_listener_of_both_families_differs_from_one_of_ipv6_only() {
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket, sockopt};
        for ipv6_only in [false, true] {
            let Ok(made) = socket(AddressFamily::INET6, SocketType::STREAM, None) else {
                return eprintln!("not run: no IPv6");
            };
            sockopt::set_ipv6_v6only(&made, ipv6_only).unwrap();
            let any: SocketAddr = "[::]:0".parse().unwrap();
            bind(&made, &any).unwrap();
            listen(&made, 1).unwrap();
            let listener = TcpListener::from(made);
            let service = listener.local_addr().unwrap();
            let found = match ListeningSocket::at(service) {
                Ok(found) => found,
                Err(error) => return eprintln!("not run: {error}"),
            };
            let families: Vec<_> = found.iter().map(|own| own.ipv6_only).collect();
            assert_eq!(families, [ipv6_only]);
        }
    }
}
