//! The question whether a program has accepted a TCP connection.

use std::net::SocketAddr;

use host::netlink::Error;
use host::netlink::channel::Channel;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use rustix::io::Errno;

/// The states of a connection that a program may not have accepted yet, from the kernel's
/// `tcp_states.h`.
const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;
const CLOSE_WAIT: u8 = 8;
/// The state of a listening socket, which the kernel reports for an unknown connection.
const LISTEN: u8 = 10;

/// The state of the accepting end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptingEnd {
    /// The listener has not answered the request yet, because its queue is full or the kernel has
    /// not processed the request.
    Requested,
    /// The connection is not yet in the queue of its listener, because that is full or has
    /// `TCP_DEFER_ACCEPT` and no byte was received.
    Beginning,
    /// The connection is in the queue of its listener.
    Queued,
    /// A program has accepted the connection.
    Accepted,
    /// There is no such connection.
    Absent,
}

impl AcceptingEnd {
    /// Returns the state of the connection from `client` to `server`, both of this host.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub(super) fn of(
        channel: &mut Channel<SockDiagMessage>,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<Self, Error> {
        // A socket has an inode from the accept to the close.
        let found = match look_up(channel, client, server)? {
            None => Self::Absent,
            Some((SYN_RECEIVED, _)) => Self::Beginning,
            Some((ESTABLISHED | CLOSE_WAIT, 0)) => Self::Queued,
            Some(_) => Self::Accepted,
        };
        // The connection may have been established between the two requests.
        match found {
            Self::Absent => match look_up(channel, server, client)? {
                Some((SYN_SENT | ESTABLISHED, _)) => Ok(Self::Requested),
                _ => Ok(Self::Absent),
            },
            found => Ok(found),
        }
    }
}

/// Returns the state and the inode of the end at `to` of a connection. `None`: there is no such
/// connection.
fn look_up(
    channel: &mut Channel<SockDiagMessage>,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<Option<(u8, u32)>, Error> {
    match channel.get(request(from, to)) {
        Ok(SockDiagMessage::InetResponse(answer)) => {
            let found = (answer.header.state, answer.header.inode);
            Ok(Some(found).filter(|(state, _)| *state != LISTEN))
        }
        Ok(_) => Err(Error::Garbled),
        Err(Error::Refused(Errno::NOENT)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the request for one connection, seen from the end at `to`.
fn request(from: SocketAddr, to: SocketAddr) -> SockDiagMessage {
    SockDiagMessage::InetRequest(InetRequest {
        family: if to.is_ipv4() { AF_INET } else { AF_INET6 },
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: to.port(),
            destination_port: from.port(),
            source_address: to.ip(),
            destination_address: from.ip(),
            interface_id: 0,
            // No cookie is known.
            cookie: [0xff; 8],
        },
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

    use super::*;
    use crate::netlink::NetStack;

    #[test]
    fn a_connection_is_queued_until_a_program_accepts_it() {
        let stack = NetStack::open().unwrap();
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(at) else {
                // The line is written past the capture of the test harness.
                let why = b"\nNOT RUN: no IPv6\n";
                std::io::stderr().write_all(why).unwrap();
                continue;
            };
            let server = listener.local_addr().unwrap();
            let client = TcpStream::connect(server).unwrap();
            let of = || stack.accepting_end(client.local_addr().unwrap(), server);
            if let Err(error) = of() {
                let why = format!("\nNOT RUN: {error}\n");
                std::io::stderr().write_all(why.as_bytes()).unwrap();
                return;
            }
            assert_eq!(of(), Ok(AcceptingEnd::Queued));
            let accepted = listener.accept().unwrap();
            assert_eq!(of(), Ok(AcceptingEnd::Accepted));
            drop(accepted);
            assert_eq!(of(), Ok(AcceptingEnd::Accepted), "it was closed");
            let other = SocketAddr::new(server.ip(), 1);
            assert_eq!(stack.accepting_end(other, server), Ok(AcceptingEnd::Absent));
        }
    }

    #[test]
    fn a_connection_of_ipv4_to_a_listener_of_both_families_is_found() {
        let stack = NetStack::open().unwrap();
        let Ok(listener) = TcpListener::bind("[::]:0") else {
            let why = b"\nNOT RUN: no IPv6\n";
            return std::io::stderr().write_all(why).unwrap();
        };
        let server = SocketAddr::new([127, 0, 0, 1].into(), listener.local_addr().unwrap().port());
        let client = TcpStream::connect(server).unwrap();
        let of = || stack.accepting_end(client.local_addr().unwrap(), server);
        if let Err(error) = of() {
            let why = format!("\nNOT RUN: {error}\n");
            return std::io::stderr().write_all(why.as_bytes()).unwrap();
        }
        assert_eq!(of(), Ok(AcceptingEnd::Queued));
        let _accepted = listener.accept().unwrap();
        assert_eq!(of(), Ok(AcceptingEnd::Accepted));
    }

    #[test]
    fn a_request_to_a_full_queue_is_not_absent() {
        let stack = NetStack::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let server = listener.local_addr().unwrap();
        let connect = || {
            let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
            let client = socket_with(family, kind, SocketFlags::NONBLOCK, None).unwrap();
            let begun = rustix::net::connect(&client, &server);
            assert!(matches!(begun, Ok(()) | Err(Errno::INPROGRESS)));
            TcpStream::from(client)
        };
        // The queue has room for one connection more than the backlog.
        let clients = [connect(), connect(), connect()];
        let last = clients[2].local_addr().unwrap();
        match stack.accepting_end(last, server) {
            Ok(found) => assert_eq!(found, AcceptingEnd::Requested),
            Err(error) => {
                let why = format!("\nNOT RUN: {error}\n");
                std::io::stderr().write_all(why.as_bytes()).unwrap();
            }
        }
    }
}
