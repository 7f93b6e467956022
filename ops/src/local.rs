//! The address at which a service listens.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// The address of a listening socket on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    /// The address; the unspecified address means every address of the host.
    pub address: SocketAddr,
    /// `IPV6_V6ONLY`: the unspecified address of IPv6 does not include IPv4.
    pub ipv6_only: bool,
}

impl Local {
    /// Returns `address`, to which the program's socket is or will be bound, with the socket's
    /// `IPV6_V6ONLY`.
    pub fn of(socket: impl AsFd, address: SocketAddr) -> Self {
        Self {
            address,
            ipv6_only: address.is_ipv6() && sockopt::ipv6_v6only(socket) == Ok(true),
        }
    }
}

impl From<SocketAddr> for Local {
    /// Converts the address of a socket whose program has set no option.
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            ipv6_only: false,
        }
    }
}
