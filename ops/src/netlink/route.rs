//! The kernel's routing decision for a packet.

use std::net::IpAddr;

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use host::netlink::Error;
use host::netlink::channel::Channel;

/// A destination, and the other inputs of the kernel's routing decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RouteQuery {
    /// The destination.
    pub to: IpAddr,
    /// The local address of the packets, if it is fixed.
    pub from: Option<IpAddr>,
    /// Index of the device, if it is fixed; link-local destinations need it.
    pub device: Option<u32>,
    /// The mark of the socket.
    pub mark: Option<u32>,
}

impl RouteQuery {
    /// A query for `to` with all else unset. An IPv4-mapped IPv6 address counts as its IPv4
    /// address.
    #[must_use]
    pub fn to(to: IpAddr) -> Self {
        Self {
            to: to.to_canonical(),
            from: None,
            device: None,
            mark: None,
        }
    }

    /// Sets the local address.
    #[must_use]
    pub fn from(mut self, from: Option<IpAddr>) -> Self {
        self.from = from
            .map(|ip| ip.to_canonical())
            .filter(|ip| !ip.is_unspecified());
        self
    }
}

/// The location of a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// On this host.
    Local,
    /// On a link or behind a gateway.
    Remote,
    /// An address that no socket can connect to: multicast, broadcast.
    Other,
}

/// A route that the kernel chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The destination of the query.
    pub to: IpAddr,
    /// The location of the destination.
    pub reach: Reach,
    /// Index of the device that sends the packets.
    pub device: u32,
    /// The local address of the packets.
    pub source: Option<IpAddr>,
    /// The router that packets are sent to first; it may be of the other family.
    pub gateway: Option<IpAddr>,
    /// MTU of the route in bytes, if the route has its own.
    pub mtu: Option<u32>,
}

impl Route {
    /// Returns the neighbour that packets are sent to first: the router, or the destination itself.
    #[must_use]
    pub fn next_hop(&self) -> IpAddr {
        self.gateway.unwrap_or(self.to)
    }

    pub(super) fn look_up(channel: &mut Channel, query: &RouteQuery) -> Result<Self, Error> {
        match channel.get(RouteNetlinkMessage::GetRoute(question(query)))? {
            RouteNetlinkMessage::NewRoute(answer) => Self::of(query.to, &answer),
            _ => Err(Error::Garbled),
        }
    }

    fn of(to: IpAddr, answer: &RouteMessage) -> Result<Self, Error> {
        let reach = match answer.header.kind {
            RouteType::Local => Reach::Local,
            RouteType::Unicast => Reach::Remote,
            _ => Reach::Other,
        };
        let mut route = Self {
            to,
            reach,
            device: 0,
            source: None,
            gateway: None,
            mtu: None,
        };
        for attribute in &answer.attributes {
            match attribute {
                RouteAttribute::Oif(index) => route.device = *index,
                RouteAttribute::PrefSource(address) => route.source = ip_of(address),
                RouteAttribute::Gateway(address) => route.gateway = ip_of(address),
                RouteAttribute::Via(RouteVia::Inet(ip)) => route.gateway = Some((*ip).into()),
                RouteAttribute::Via(RouteVia::Inet6(ip)) => route.gateway = Some((*ip).into()),
                RouteAttribute::Metrics(metrics) => route.mtu = metrics.iter().find_map(mtu_of),
                _ => {}
            }
        }
        // Every route that a packet can take has a device.
        if route.device == 0 {
            Err(Error::Garbled)
        } else {
            Ok(route)
        }
    }
}

fn question(query: &RouteQuery) -> RouteMessage {
    let bits = |ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 };
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family_of(query.to),
        destination_prefix_length: bits(query.to),
        source_prefix_length: query.from.map_or(0, bits),
        ..RouteHeader::default()
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(query.to.into()));
    attributes.extend(query.from.map(|from| RouteAttribute::Source(from.into())));
    attributes.extend(query.device.map(RouteAttribute::Oif));
    attributes.extend(query.mark.map(RouteAttribute::Mark));
    message
}

pub(super) fn family_of(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn mtu_of(metric: &RouteMetric) -> Option<u32> {
    match metric {
        RouteMetric::Mtu(mtu) if *mtu > 0 => Some(*mtu),
        _ => None,
    }
}
