//! Port numbers that TCP and offload protocols share.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

/// A TCP port that is reserved by a socket which is bound and does not listen. No other socket gets
/// the port meanwhile, and to TCP clients it appears closed.
#[derive(Debug)]
pub struct PortReservation {
    socket: OwnedFd,
    local: SocketAddr,
}

impl PortReservation {
    /// Reserves a port.
    ///
    /// Port 0 reserves an unused port. An address of zeros reserves the port for every address of
    /// the host, including those of RDMA devices; the zeros of IPv6 reserve it for both families.
    ///
    /// # Errors
    /// The error of `bind`: the port is taken, the address does not belong to this host, or the
    /// port needs privileges.
    pub fn new(address: SocketAddr) -> Result<Self, Errno> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified())?;
        }
        rustix::net::bind(&socket, &address)?;
        let local = rustix::net::getsockname(&socket)?.try_into()?;
        Ok(Self { socket, local })
    }

    /// Returns the reserved address and port.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Ends the reservation and returns the bound socket, for TCP to use.
    #[must_use]
    pub fn into_socket(self) -> OwnedFd {
        self.socket
    }
}

impl AsFd for PortReservation {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn an_unused_port_is_found_and_reserved() {
        let held = PortReservation::new(([127, 0, 0, 1], 0).into()).unwrap();
        assert_ne!(held.local().port(), 0);
        let again = PortReservation::new(held.local()).unwrap_err();
        assert_eq!(again, Errno::ADDRINUSE);
        assert!(TcpListener::bind(held.local()).is_err());
        let local = held.local();
        drop(held);
        PortReservation::new(local).unwrap();
    }

    #[test]
    fn a_reserved_port_looks_closed() {
        let held = PortReservation::new(([127, 0, 0, 1], 0).into()).unwrap();
        let error = TcpStream::connect(held.local()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn the_unspecified_address_reserves_every_address() {
        let held = PortReservation::new(([0, 0, 0, 0], 0).into()).unwrap();
        let one = ([127, 0, 0, 1], held.local().port()).into();
        assert_eq!(PortReservation::new(one).unwrap_err(), Errno::ADDRINUSE);
    }

    #[test]
    fn a_foreign_address_is_refused() {
        let error = PortReservation::new(([192, 0, 2, 77], 0).into()).unwrap_err();
        assert_eq!(error, Errno::ADDRNOTAVAIL);
    }
}
