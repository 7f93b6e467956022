//! Network devices.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkHeader, LinkMessage};

use host::netlink::Error;
use host::netlink::channel::Channel;

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Index of the device in this namespace.
    pub index: u32,
    /// Name of the device.
    pub name: String,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// True if the device is up and has a carrier.
    pub running: bool,
    /// True for the loopback device.
    pub loopback: bool,
    /// True if neighbours of the device have link-layer addresses that the kernel must resolve.
    pub resolves: bool,
}

impl Device {
    pub(super) fn of(message: &LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut device = Self {
            index: message.header.index,
            name: String::new(),
            mtu: 0,
            running: flags.contains(LinkFlags::Up | LinkFlags::Running),
            loopback: flags.contains(LinkFlags::Loopback),
            resolves: !flags.intersects(LinkFlags::Noarp | LinkFlags::Loopback),
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => device.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => device.mtu = *mtu,
                _ => {}
            }
        }
        device
    }

    pub(super) fn by_index(channel: &mut Channel, index: u32) -> Result<Self, Error> {
        let mut question = LinkMessage::default();
        question.header = LinkHeader {
            index,
            ..LinkHeader::default()
        };
        match channel.get(RouteNetlinkMessage::GetLink(question))? {
            RouteNetlinkMessage::NewLink(answer) => Ok(Self::of(&answer)),
            _ => Err(Error::Garbled),
        }
    }

    pub(super) fn all(channel: &mut Channel) -> Result<Vec<Self>, Error> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = channel.dump(&question)?;
        let of = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewLink(message) => Some(Self::of(message)),
            _ => None,
        };
        Ok(answers.iter().filter_map(of).collect())
    }
}
