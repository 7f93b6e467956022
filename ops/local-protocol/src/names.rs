//! Abstract names of services and connections.
//!
//! Names are text, so that `ss -x` shows them: `ops1at4 127.0.0.1:80`, `ops1at6 [::]:80`,
//! `ops1only6 [::]:80` for a listener with `IPV6_V6ONLY`, and
//! `ops1from4 127.0.0.1:40000 127.0.0.1:80` for a connection, the connecting end first. The
//! number after the word is the address family of the program's socket. `ops1` is the version. The
//! name of a service for one PID namespace ends with the inode of that: `ops1at6 [::]:80 pid 7`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;

use ops::Local;
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketAddrUnix, getpeername, getsockname};

const AT_4: &str = "ops1at4 ";
const AT_6: &str = "ops1at6 ";
const ONLY_6: &str = "ops1only6 ";
const PID_SPACE: &str = " pid ";
const FROM_4: &str = "ops1from4 ";
const FROM_6: &str = "ops1from6 ";

/// The addresses of a connection, from the names of its socket. IPv4 addresses are not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// True if the program's socket was of `AF_INET6`.
    pub is_ipv6: bool,
    /// The local address.
    pub local: SocketAddr,
    /// The peer's address.
    pub peer: SocketAddr,
}

impl Addresses {
    /// Returns the addresses of a connected socket; `None` if it is no connection of this protocol.
    ///
    /// A connecting end is bound to the name of the connection. An accepting end has the name of
    /// its listener, and the addresses are in the peer's name. The peer's name is used only in this
    /// case, because a process can choose any name when it connects to another listener.
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        Self::of_accepted(socket, None)
    }

    /// As [`Addresses::of`]. If the caller has accepted the socket with the addresses `known`, the
    /// name of the peer is not read.
    #[must_use]
    pub fn of_accepted(socket: BorrowedFd<'_>, known: Option<Self>) -> Option<Self> {
        let own = getsockname(socket).ok()?;
        match Name::of(&own)? {
            Name::Connection(of) => Some(of),
            Name::Service { is_ipv6, at, .. } => {
                if let Some(known) = known.filter(|it| it.local.port() == at.address.port()) {
                    return Some(known);
                }
                let peer = getpeername(socket).ok()??;
                let Name::Connection(peer) = Name::of(&peer)? else {
                    return None;
                };
                Some(peer.seen_from_service(is_ipv6))
            }
        }
    }

    /// Returns the addresses from the view of the accepting end. `is_ipv6`: the accepting socket is
    /// of `AF_INET6`.
    #[must_use]
    pub(crate) fn seen_from_service(self, is_ipv6: bool) -> Self {
        Self {
            is_ipv6,
            local: self.peer,
            peer: self.local,
        }
    }

    /// Returns the name of the connecting end's socket.
    pub(crate) fn name(&self) -> Result<SocketAddrUnix, Errno> {
        abstract_name(&self.text())
    }

    fn text(&self) -> String {
        let prefix = if self.is_ipv6 { FROM_6 } else { FROM_4 };
        format!("{prefix}{} {}", self.local, self.peer)
    }
}

/// A parsed name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// The name of a listener.
    Service {
        /// True if the listener is of `AF_INET6`.
        is_ipv6: bool,
        /// The address at which the service listens.
        at: Local,
        /// The PID namespace of its peers; `None` for peers of any.
        pid_space: Option<u64>,
    },
    /// The name of a connecting end.
    Connection(Addresses),
}

impl Name {
    pub(crate) fn of(address: &SocketAddrAny) -> Option<Self> {
        let unix = SocketAddrUnix::try_from(address.clone()).ok()?;
        Self::parse(unix.abstract_name()?)
    }

    pub(crate) fn parse(name: &[u8]) -> Option<Self> {
        let name = std::str::from_utf8(name).ok()?;
        for (prefix, is_ipv6) in [(AT_4, false), (AT_6, true), (ONLY_6, true)] {
            if let Some(address) = name.strip_prefix(prefix) {
                let (address, pid_space) = match address.split_once(PID_SPACE) {
                    Some((address, number)) => (address, Some(number.parse().ok()?)),
                    None => (address, None),
                };
                let at = Local {
                    address: address.parse().ok()?,
                    ipv6_only: prefix == ONLY_6,
                };
                return Some(Self::Service {
                    is_ipv6,
                    at,
                    pid_space,
                });
            }
        }
        let (rest, is_ipv6) = match name.strip_prefix(FROM_4) {
            Some(rest) => (rest, false),
            None => (name.strip_prefix(FROM_6)?, true),
        };
        let (local, peer) = rest.split_once(' ')?;
        let addresses = Addresses {
            is_ipv6,
            local: local.parse().ok()?,
            peer: peer.parse().ok()?,
        };
        // One connection has one name, so that no other name can claim its addresses.
        (addresses.text() == name).then_some(Self::Connection(addresses))
    }
}

/// Returns the name of a service, for peers of this PID namespace only or for all.
pub(crate) fn of_service(local: Local, pid_space: Option<u64>) -> Result<SocketAddrUnix, Errno> {
    let mut text = service_text(local);
    if let Some(number) = pid_space {
        text.push_str(&format!("{PID_SPACE}{number}"));
    }
    abstract_name(&text)
}

fn service_text(local: Local) -> String {
    let prefix = match local.address {
        SocketAddr::V4(_) => AT_4,
        // `IPV6_V6ONLY` matters only if the unspecified address would include IPv4.
        SocketAddr::V6(v6) if local.ipv6_only && v6.ip().is_unspecified() => ONLY_6,
        SocketAddr::V6(_) => AT_6,
    };
    format!("{prefix}{}", local.address)
}

/// Returns the addresses to which the listener of `service` may be bound: the address itself, as an
/// IPv4-mapped address too, and the unspecified addresses. `service` is not an IPv4-mapped address.
pub(crate) fn listener_addresses(service: SocketAddr) -> [Local; 4] {
    let port = service.port();
    let zeros: Local = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port).into();
    match service.ip() {
        IpAddr::V4(ip) => [
            service.into(),
            SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port).into(),
            zeros,
            // A socket of `AF_INET6` that is bound to a mapped address.
            SocketAddr::new(ip.to_ipv6_mapped().into(), port).into(),
        ],
        IpAddr::V6(_) => {
            let only = Local {
                ipv6_only: true,
                ..zeros
            };
            [service.into(), zeros, only, zeros]
        }
    }
}

/// Returns the names of these listeners in the format of `/proc/net/unix`.
pub(crate) fn listed_as(service: SocketAddr) -> [String; 4] {
    listener_addresses(service).map(|address| format!("@{}", service_text(address)))
}

fn abstract_name(text: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new_abstract_name(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &SocketAddrUnix) -> Option<Name> {
        Name::parse(name.abstract_name().unwrap())
    }

    #[test]
    fn names_are_parsed_as_they_were_written() {
        for (is_ipv6, local, peer) in [
            (false, "127.0.0.1:40000", "127.0.0.1:80"),
            (true, "10.1.2.3:65535", "10.1.2.3:1"),
            (true, "[fe80::1%7]:1", "[2001:db8::2]:2"),
            (
                true,
                "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535",
                "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:fffe]:65535",
            ),
        ] {
            let addresses = Addresses {
                is_ipv6,
                local: local.parse().unwrap(),
                peer: peer.parse().unwrap(),
            };
            let name = addresses.name().unwrap();
            assert_eq!(parsed(&name), Some(Name::Connection(addresses)), "{local}");
        }
    }

    #[test]
    fn the_listener_of_an_address_has_one_of_its_names() {
        for (address, ipv6_only, service, is_found) in [
            ("127.0.0.1:80", false, "127.0.0.1:80", true),
            ("0.0.0.0:80", false, "127.0.0.1:80", true),
            ("[::]:80", false, "127.0.0.1:80", true),
            ("[::]:80", true, "127.0.0.1:80", false),
            ("[::]:80", true, "[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", false, "127.0.0.1:80", true),
            ("0.0.0.0:80", false, "[::1]:80", false),
            ("127.0.0.2:80", false, "127.0.0.1:80", false),
            ("[::1]:80", true, "[::1]:80", true),
        ] {
            let address = address.parse().unwrap();
            let name = service_text(Local { address, ipv6_only });
            let names = listener_addresses(service.parse().unwrap()).map(service_text);
            assert_eq!(names.contains(&name), is_found, "{address} {service}");
        }
    }

    #[test]
    fn other_names_are_not_parsed() {
        for name in [
            "",
            "ops1",
            "ops1at4 ",
            "ops1at4 x",
            "ops1from4 127.0.0.1:1",
            "ops1from4 127.0.0.1:1 127.0.0.1:2 ",
            "ops1from4 127.0.0.1:01 127.0.0.1:2",
            "ops1from6 [0::1]:1 [::1]:2",
            "ops2at4 127.0.0.1:80",
            "/tmp/socket",
            "ops1at4 127.0.0.1:80 pid ",
            "ops1at4 127.0.0.1:80 pid x",
        ] {
            assert_eq!(Name::parse(name.as_bytes()), None, "{name}");
        }
    }
}
