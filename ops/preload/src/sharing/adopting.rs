//! Names that identify a connection to a program that did not make it.
//!
//! A program that was started by `exec`, or that received a descriptor over a Unix socket, has an
//! end of a pair that carries bytes and no entry in its table. Before a process passes the
//! descriptor on, it binds that end to a name that holds the connection's addresses. The kernel
//! keeps the name as long as the end exists, even after the process has ended. When a program with
//! this library asks for the socket's name, or for an option that only a TCP socket has, the
//! library reads the name and adds the connection to the table. No other process can set such a
//! name on a socket of the program: a socket accepted from a Unix listener has the listener's name,
//! and a socket that the program connects has the name to which the program bound it.
//!
//! The options start as those of a new socket. Options that the former program set are in force in
//! the process that carries the connection, and are not reported here.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::fstat;
use rustix::net::{SocketAddrUnix, bind, getsockname};

use crate::fd::{self, Entry};
use crate::process::{self, guard};
use crate::socket::identity::Identity;
use crate::socket::relay_client::RelayClient;
use crate::tcp::names::Family;
use crate::tcp::options::Options;

/// The first bytes of the names, in the abstract namespace.
const MAGIC: &[u8; 8] = b"dat-ops\x01";
/// The length of an address: IPv4 flag, 16 bytes, port, scope.
const ADDRESS: usize = 1 + 16 + 2 + 4;
/// The length of a name: magic, the socket's inode, which makes names unique, family, addresses.
const LEN: usize = 8 + 8 + 1 + 2 * ADDRESS;

/// Binds the program's end to an abstract name that holds the family and addresses of the
/// connection, before another program gets the descriptor.
pub(super) fn sign(fd: BorrowedFd<'_>, identity: &Identity) {
    if identity.mark_signed() {
        return;
    }
    let Ok(status) = fstat(fd) else { return };
    let name = encode_name(
        status.st_ino,
        identity.family,
        identity.local,
        identity.peer,
    );
    if let Ok(name) = SocketAddrUnix::new_abstract_name(&name) {
        // Fails if the end has a name already. Without a name the new program sees a Unix socket.
        let _ = bind(fd, &name);
    }
}

/// Adds a descriptor to the table if it has such a name. Returns `None` if it has none.
pub(crate) fn adopt(fd: c_int) -> Option<Arc<RelayClient>> {
    if fd < 0 || guard::is_inside() || process::is_vforked() || !fd::is_plain(fd) {
        return None;
    }
    let _inside = guard::enter();
    // SAFETY: the number is not negative; if it is not open, the kernel returns EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let identity = read_name(borrowed)?;
    let client = Arc::new(RelayClient::carrying(Arc::new(identity), None));
    fd::store(fd, Arc::clone(&client) as Entry);
    Some(client)
}

fn read_name(fd: BorrowedFd<'_>) -> Option<Identity> {
    let name = SocketAddrUnix::try_from(getsockname(fd).ok()?).ok()?;
    let (family, local, peer) = parse_name(name.abstract_name()?)?;
    let options = Options::fresh(family).ok()?;
    Some(Identity::new(family, local, peer, options))
}

fn encode_name(number: u64, family: Family, local: SocketAddr, peer: SocketAddr) -> [u8; LEN] {
    let mut name = [0; LEN];
    name[..8].copy_from_slice(MAGIC);
    name[8..16].copy_from_slice(&number.to_ne_bytes());
    name[16] = u8::from(family == Family::V6);
    encode_address(&mut name[17..17 + ADDRESS], local);
    encode_address(&mut name[17 + ADDRESS..], peer);
    name
}

fn encode_address(into: &mut [u8], address: SocketAddr) {
    let (ip, scope) = match address {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
        SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
    };
    into[0] = u8::from(address.is_ipv4());
    into[1..17].copy_from_slice(&ip.octets());
    into[17..19].copy_from_slice(&address.port().to_ne_bytes());
    into[19..23].copy_from_slice(&scope.to_ne_bytes());
}

/// Parses a name. Returns `None` if this library has not written it.
fn parse_name(name: &[u8]) -> Option<(Family, SocketAddr, SocketAddr)> {
    let name: &[u8; LEN] = name.try_into().ok()?;
    if !name.starts_with(MAGIC) {
        return None;
    }
    let family = match name[16] {
        0 => Family::V4,
        1 => Family::V6,
        _ => return None,
    };
    let (local, peer) = name[17..].split_at(ADDRESS);
    Some((family, parse_address(local)?, parse_address(peer)?))
}

fn parse_address(from: &[u8]) -> Option<SocketAddr> {
    let octets: [u8; 16] = from.get(1..17)?.try_into().ok()?;
    let ip = Ipv6Addr::from(octets);
    let port = u16::from_ne_bytes(from.get(17..19)?.try_into().ok()?);
    let scope = u32::from_ne_bytes(from.get(19..23)?.try_into().ok()?);
    match from.first()? {
        0 => Some(SocketAddrV6::new(ip, port, 0, scope).into()),
        1 => Some((IpAddr::V4(ip.to_ipv4_mapped()?), port).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_were_written() {
        for (family, local, peer) in [
            (Family::V4, "127.0.0.1:80", "10.1.2.3:65535"),
            (Family::V6, "[fe80::1%7]:1", "[2001:db8::2]:2"),
            (Family::V6, "127.0.0.1:80", "127.0.0.2:81"),
        ] {
            let (local, peer) = (local.parse().unwrap(), peer.parse().unwrap());
            let name = encode_name(5, family, local, peer);
            assert_eq!(parse_name(&name), Some((family, local, peer)));
            assert_ne!(name, encode_name(6, family, local, peer));
        }
    }

    #[test]
    fn other_names_are_not_parsed() {
        let local = "127.0.0.1:80".parse().unwrap();
        let name = encode_name(5, Family::V4, local, local);
        for at in [0, 7, 16, 17, 17 + 11, 17 + ADDRESS] {
            let mut other = name;
            other[at] ^= 0x82;
            assert_eq!(parse_name(&other), None, "{at}");
        }
        for len in [0, 1, 16, LEN - 1] {
            assert_eq!(parse_name(&name[..len]), None, "{len}");
        }
    }
}
