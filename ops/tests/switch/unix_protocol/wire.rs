//! The names and the handshake messages of the protocol.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use ops::Local;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, recv};

pub(super) const VERSION: u8 = 1;

/// The length of a HELLO in bytes: version, family, address, port.
pub(super) const HELLO_LEN: usize = 20;

/// The accepting end accepts the connection.
pub(super) const WELCOME: u8 = b'W';

/// The accepting end refuses the connection.
pub(super) const REFUSE: u8 = b'R';

/// The accepting end has another version.
pub(super) const OTHER_VERSION: u8 = b'V';

/// The connecting end commits itself to the connection.
pub(super) const COMMIT: u8 = b'C';

/// Returns the abstract name of a service: with its address, or with a star and its families.
pub(super) fn name(protocol: &str, local: Local) -> Result<SocketAddrUnix, Errno> {
    let port = local.address.port();
    let name = match local.address.ip().to_canonical() {
        ip if !ip.is_unspecified() => format!("ops-{protocol}/{ip}:{port}"),
        IpAddr::V4(_) => format!("ops-{protocol}/*4:{port}"),
        IpAddr::V6(_) if local.ipv6_only => format!("ops-{protocol}/*6:{port}"),
        IpAddr::V6(_) => format!("ops-{protocol}/*46:{port}"),
    };
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// Returns a message socket that does not block.
pub(super) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Returns the HELLO of a connecting end at `local`.
pub(super) fn hello(local: SocketAddr) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[0] = VERSION;
    match local.ip() {
        IpAddr::V4(ip) => {
            bytes[1] = 4;
            bytes[2..6].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[1] = 6;
            bytes[2..18].copy_from_slice(&ip.octets());
        }
    }
    bytes[18..].copy_from_slice(&local.port().to_be_bytes());
    bytes
}

/// Returns the address in a HELLO; `None` if the HELLO is not of this version.
pub(super) fn address_in(hello: &[u8; HELLO_LEN]) -> Option<SocketAddr> {
    let [version, family, ip @ .., high, low] = hello;
    let ip: [u8; 16] = *ip;
    let [a, b, c, d, ..] = ip;
    let ip: IpAddr = match (*version, family) {
        (VERSION, 4) => [a, b, c, d].into(),
        (VERSION, 6) => ip.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([*high, *low])))
}

/// Receives a message, if there is one. Returns length 0 if the other end is closed and all its
/// messages were received.
pub(super) fn receive(from: impl AsFd, into: &mut [u8]) -> Result<usize, Errno> {
    let receive = |into: &mut [u8]| {
        let (_, len) = recv(&from, into, RecvFlags::DONTWAIT)?;
        Ok(len)
    };
    match receive(into)? {
        // The kernel checks for a message first and for the end afterwards. The other end may send
        // a message and close between the two checks. The second call finds that message, and no
        // other message can follow it.
        0 => receive(into),
        len => Ok(len),
    }
}
