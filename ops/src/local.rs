//! The address at which a service listens.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// The address of a listening socket on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Local {
    /// The address; zeros stand for every address of the host.
    pub address: SocketAddr,
    /// `IPV6_V6ONLY`: the zeros of IPv6 do not stand for those of IPv4 as well.
    pub ipv6_only: bool,
}

impl Local {
    /// Returns the address that the program's socket has or is about to get, with `IPV6_V6ONLY` as
    /// set.
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
