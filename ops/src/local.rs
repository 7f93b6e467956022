//! Where a service listens.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// An address of this host, as a listening socket has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    /// The address; zeros stand for every address of the host.
    pub address: SocketAddr,
    /// `IPV6_V6ONLY`: the zeros of IPv6 do not stand for those of IPv4 as well.
    pub ipv6_only: bool,
}

impl Local {
    /// An address that the program's socket has or is about to get.
    pub fn of(socket: impl AsFd, address: SocketAddr) -> Self {
        Self {
            address,
            ipv6_only: address.is_ipv6() && sockopt::ipv6_v6only(socket) == Ok(true),
        }
    }
}

impl From<SocketAddr> for Local {
    /// As a socket has it whose program has set nothing.
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            ipv6_only: false,
        }
    }
}
