//! Addresses of this host.

use std::net::IpAddr;

use host::netlink::Error;
use host::netlink::channel::Channel;
use host::netlink::interfaces::local_address;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressHeaderFlags, AddressMessage, AddressScope};

/// An address of this host, with its device and scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub ip: IpAddr,
    /// Index of the device.
    pub device: u32,
    /// True if the address is valid on its link only.
    pub link_local: bool,
    /// True if the address is valid on this host only.
    pub host_local: bool,
    /// True if new connections may use the address: it is known to be unique and is not deprecated.
    pub usable: bool,
}

impl LocalAddress {
    pub(super) fn of(message: &AddressMessage) -> Option<Self> {
        let flags = message.header.flags;
        let unusable = AddressHeaderFlags::Tentative
            | AddressHeaderFlags::Dadfailed
            | AddressHeaderFlags::Deprecated;
        Some(Self {
            ip: local_address(message)?,
            device: message.header.index,
            link_local: message.header.scope == AddressScope::Link,
            host_local: message.header.scope == AddressScope::Host,
            usable: !flags.intersects(unusable),
        })
    }

    pub(super) fn all(channel: &mut Channel) -> Result<Vec<Self>, Error> {
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = channel.dump(&question)?;
        let of = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewAddress(message) => Self::of(message),
            _ => None,
        };
        Ok(answers.iter().filter_map(of).collect())
    }
}
