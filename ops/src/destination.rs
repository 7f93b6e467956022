//! The forms of addresses to which a socket can connect.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// Returns true if a socket that is bound to `bound`, an address of its own family, can connect to
/// `remote` as the program names it.
///
/// The kernel fails for an address of another family, and for an IPv4-mapped address if the socket
/// has `IPV6_V6ONLY`. For a bound socket it replaces the unspecified address by another one than
/// loopback. Such connections are left to the kernel.
pub fn is_destination(socket: impl AsFd, bound: SocketAddr, remote: SocketAddr) -> bool {
    let is_unspecified = |address: SocketAddr| address.ip().to_canonical().is_unspecified();
    if is_unspecified(remote) && !is_unspecified(bound) {
        return false;
    }
    match (bound, remote) {
        (SocketAddr::V4(_), SocketAddr::V4(_)) => true,
        (SocketAddr::V6(_), SocketAddr::V6(v6)) => {
            v6.ip().to_ipv4_mapped().is_none() || sockopt::ipv6_v6only(socket) == Ok(false)
        }
        _ => false,
    }
}
