//! Addresses of this host, with their network devices.

use std::ffi::c_char;
use std::net::IpAddr;
use std::os::fd::AsFd;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::descriptors::{OwnDescriptor, out_of_the_way};
use crate::netlink::channel::Channel;
use crate::netlink::error::Error;

/// An address of a network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Network device.
    pub name: String,
    /// One of the device's addresses.
    pub address: IpAddr,
    /// The index of the device, if the address is ambiguous without it (RFC 4007: link-local IPv6);
    /// otherwise 0.
    pub scope_id: u32,
    /// True if the device is up.
    pub is_up: bool,
    /// True for a loopback device, also for its addresses that other hosts can reach.
    pub is_loopback: bool,
}

/// Returns every address of every device that is configured now: first those of IPv4, then those of
/// IPv6.
///
/// # Errors
/// Those of [`Channel::dump`].
pub fn interfaces() -> Result<Vec<Interface>, Error> {
    let mut channel = Channel::open()?;
    let answers = channel.dump(&RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let socket = device_socket().map_err(Error::Socket)?;
    let interface = |answer: &RouteNetlinkMessage| match answer {
        RouteNetlinkMessage::NewAddress(message) => interface_of(&socket, message),
        _ => None,
    };
    Ok(answers.iter().filter_map(interface).collect())
}

/// Returns `None` if the device has been removed meanwhile, or the message has no address.
fn interface_of(socket: impl AsFd, message: &AddressMessage) -> Option<Interface> {
    let index = message.header.index;
    let address = local_address(message)?;
    let name = index_to_name(&socket, index).ok()?;
    let flags = flags(&socket, &name).ok()?;
    Some(Interface {
        is_up: flags & libc::IFF_UP != 0,
        is_loopback: flags & libc::IFF_LOOPBACK != 0,
        name,
        address,
        scope_id: match is_link_local(&address) {
            true => index,
            false => 0,
        },
    })
}

/// Returns the address that a message reports.
pub fn local_address(message: &AddressMessage) -> Option<IpAddr> {
    let mut local = None;
    let mut address = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => address = Some(*ip),
            _ => {}
        }
    }
    // On a point-to-point link `Address` is the address of the other end.
    local.or(address)
}

/// Opens a socket for the requests of netdevice(7). They work on every socket of Linux, but not on
/// the netlink sockets of gVisor.
fn device_socket() -> Result<OwnDescriptor, Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::DGRAM);
    socket_with(family, kind, SocketFlags::CLOEXEC, None).map(out_of_the_way)
}

fn flags(socket: impl AsFd, name: &str) -> Result<i32, Errno> {
    const GET_FLAGS: Opcode = libc::SIOCGIFFLAGS as Opcode;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: 0 },
    };
    // The last byte of the field stays zero.
    for (to, byte) in request.ifr_name[..libc::IFNAMSIZ - 1]
        .iter_mut()
        .zip(name.bytes())
    {
        *to = c_char::from_ne_bytes([byte]);
    }
    // SAFETY: the request reads the name, and writes the flags of this structure.
    unsafe { ioctl(socket, Updater::<GET_FLAGS, _>::new(&mut request)) }?;
    // SAFETY: the field is plain data of which the request has written all bytes.
    Ok(unsafe { request.ifr_ifru.ifru_flags }.into())
}

/// Returns true if an address is valid on one link only.
pub fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_has_a_loopback_device_with_an_address() {
        let all = interfaces().unwrap();
        let mut loopback = all.iter().filter(|it| it.address.is_loopback());
        assert!(
            loopback.any(|it| it.name == "lo" && it.is_up && it.is_loopback && it.scope_id == 0)
        );
    }

    #[test]
    fn a_device_that_is_removed_has_no_flags() {
        let socket = device_socket().unwrap();
        assert_eq!(flags(&socket, "removed"), Err(Errno::NODEV));
        assert_eq!(flags(&socket, "a name that is too long"), Err(Errno::NODEV));
    }
}
