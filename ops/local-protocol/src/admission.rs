//! The rule for connections within the host: a connection is carried only if TCP would connect the
//! same two sockets at this moment, with exactly these addresses.
//!
//! Both ends decide by [`listener_of`]. The connecting end decides before it connects, and uses TCP
//! if the answer is no. The accepting end repeats the decision, because any user can bind an
//! abstract name with any text in it. The facts are the kernel's own ([`LocalRequest`]): the type
//! of route to each address, and the socket to which TCP would deliver the request. The answer is
//! never kept, because another user may listen at the port by the next connection.
//!
//! The rule refuses a few connections that TCP would make: those from a port that only privileged
//! programs may bind, because the capability of the peer is unknown, and those between an address
//! of one link and an address of the host. Both ends agree on it, so these use TCP.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ops::Local;
use ops::netlink::{LocalRequest, Receiver};

/// The listener that TCP would connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    /// The address at which it listens.
    pub(crate) at: Local,
    /// The user who made it.
    pub(crate) user: u32,
}

/// The reason why TCP would not connect, or why the protocol does not carry the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// An address is none that a connection of this host shows.
    Address,
    /// The source port is one that only privileged programs may bind.
    PrivilegedPort,
    /// A TCP connection has these two addresses.
    InUse,
    /// No TCP socket listens.
    NotListening,
    /// The listener is bound to a device.
    Device,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "TCP makes no connection within the host between the addresses",
            Self::PrivilegedPort => "only privileged programs may bind the source port",
            Self::InUse => "a TCP connection has these addresses",
            Self::NotListening => "no TCP socket listens there",
            Self::Device => "the TCP listener is bound to a device",
        })
    }
}

/// Returns the listener to which TCP would connect. `unprivileged` is the lowest port that a
/// program without privileges may bind.
pub(crate) fn listener_of(request: &LocalRequest, unprivileged: u16) -> Result<Listener, Refusal> {
    let (from, to) = (request.from, request.to);
    if !(is_shown(from, to) && request.is_from_local && request.is_to_local) {
        return Err(Refusal::Address);
    }
    if from.port() < unprivileged {
        return Err(Refusal::PrivilegedPort);
    }
    match request.receiver {
        Receiver::Nobody => Err(Refusal::NotListening),
        Receiver::Connection => Err(Refusal::InUse),
        Receiver::Listener { at, user, device } if [0, scope_of(to)].contains(&device) => {
            Ok(Listener { at, user })
        }
        Receiver::Listener { .. } => Err(Refusal::Device),
    }
}

/// Returns true if a connection can show these two addresses: they are unicast addresses of one
/// family in the form of their own family, with ports, and with the scope of one link or without
/// one.
pub(crate) fn is_shown(from: SocketAddr, to: SocketAddr) -> bool {
    from.is_ipv4() == to.is_ipv4()
        && scope_of(from) == scope_of(to)
        && [from, to]
            .into_iter()
            .all(|address| address.port() != 0 && is_unicast(address))
}

/// Returns true for the address of a connection whose facts cannot be asked for, but that every
/// host has.
pub(crate) fn is_always_own(address: SocketAddr) -> bool {
    [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ]
    .contains(&address.ip())
}

/// Returns true if a listener at `at` receives connections to the address `to`.
pub(crate) fn receives(at: Local, to: SocketAddr) -> bool {
    let is_addressed = match at.address.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => to.is_ipv6() || !at.ipv6_only,
        IpAddr::V4(ip) if ip.is_unspecified() => to.is_ipv4(),
        ip => ip.to_canonical() == to.ip(),
    };
    is_addressed && at.address.port() == to.port()
}

fn is_unicast(address: SocketAddr) -> bool {
    match address {
        SocketAddr::V4(v4) => {
            let ip = v4.ip();
            !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast()
        }
        SocketAddr::V6(v6) => {
            let ip = v6.ip();
            !ip.is_unspecified()
                && !ip.is_multicast()
                && ip.to_ipv4_mapped().is_none()
                && v6.flowinfo() == 0
                && ip.is_unicast_link_local() == (v6.scope_id() != 0)
        }
    }
}

fn scope_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(v6) => v6.scope_id(),
    }
}
