//! Names and messages.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The version that is spoken.
pub(crate) const VERSION: u8 = 1;

/// Length of a HELLO: version, family, address, port.
pub(crate) const HELLO_LEN: usize = 20;

/// The accepting end is willing.
pub(crate) const WELCOME: u8 = b'W';

/// It is not.
pub(crate) const REFUSE: u8 = b'R';

/// It speaks another version.
pub(crate) const VERSION_NO: u8 = b'V';

/// The connecting end goes through with it.
pub(crate) const COMMIT: u8 = b'C';

/// The abstract name of a service.
pub(crate) fn name(protocol: &str, address: SocketAddr) -> Result<SocketAddrUnix, Errno> {
    let ip = address.ip().to_canonical();
    let port = address.port();
    let name = if ip.is_unspecified() {
        format!("ops-{protocol}/*:{port}")
    } else {
        format!("ops-{protocol}/{ip}:{port}")
    };
    SocketAddrUnix::new_abstract_name(name.as_bytes())
}

/// A stream socket that does not block.
pub(crate) fn socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// HELLO from `local` to `service`.
pub(crate) fn hello(local: SocketAddr) -> [u8; HELLO_LEN] {
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

/// The address in a HELLO; `None` if it is none of this version.
pub(crate) fn address_in(hello: &[u8; HELLO_LEN]) -> Option<SocketAddr> {
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
