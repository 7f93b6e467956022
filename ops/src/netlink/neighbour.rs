//! Link-layer addresses of next hops.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::netlink::events::group;
use crate::netlink::route::{Route, family_of};
use host::netlink::Error;
use host::netlink::channel::{Channel, open_socket, retry};

/// The link-layer destination of packets to a next hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkAddress {
    /// This address: six bytes on Ethernet, twenty on IP over InfiniBand.
    Known(Vec<u8>),
    /// The device does not use link-layer addresses.
    NotNeeded,
    /// The neighbour has not been resolved.
    Unknown,
}

/// The port of the service that discards its input (RFC 863). A datagram to it makes the kernel
/// resolve the link-layer address and has no other effect.
const DISCARD: u16 = 9;

/// Returns the kernel's entry for `ip` on that device.
pub(super) fn known(channel: &mut Channel, device: u32, ip: IpAddr) -> Result<LinkAddress, Error> {
    let mut question = NeighbourMessage::default();
    question.header.family = family_of(ip);
    question.header.ifindex = device;
    question
        .attributes
        .push(NeighbourAttribute::Destination(ip.into()));
    match channel.get(RouteNetlinkMessage::GetNeighbour(question)) {
        Ok(RouteNetlinkMessage::NewNeighbour(answer)) => Ok(of(&answer)),
        Ok(_) => Err(Error::Garbled),
        Err(Error::Refused(Errno::NOENT)) => Ok(LinkAddress::Unknown),
        Err(error) => Err(error),
    }
}

fn of(answer: &NeighbourMessage) -> LinkAddress {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    match answer.header.state {
        Noarp => LinkAddress::NotNeeded,
        Reachable | Stale | Delay | Probe | Permanent => answer
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                NeighbourAttribute::LinkLayerAddress(bytes) => {
                    Some(LinkAddress::Known(bytes.clone()))
                }
                _ => None,
            })
            .unwrap_or(LinkAddress::Unknown),
        _ => LinkAddress::Unknown,
    }
}

/// Makes the kernel resolve the address of the route's next hop, and waits for the result, for
/// `within` at most.
pub(super) fn resolve(
    channel: &mut Channel,
    route: &Route,
    within: Duration,
) -> Result<LinkAddress, Error> {
    let end = Instant::now() + within;
    // The notifications are enabled before the request, so that none is missed.
    let events = open_socket(None, group::NEIGHBOUR)?;
    let triggered = trigger(route);
    loop {
        let found = known(channel, route.device, route.next_hop())?;
        let left = end.saturating_duration_since(Instant::now());
        if found != LinkAddress::Unknown || left.is_zero() || triggered.is_err() {
            return Ok(found);
        }
        wait_for_event(&events, left)?;
    }
}

/// Sends an empty datagram toward the next hop.
fn trigger(route: &Route) -> Result<(), Errno> {
    let ip = route.next_hop();
    let (family, scope) = match ip {
        IpAddr::V4(_) => (AddressFamily::INET, 0),
        IpAddr::V6(_) => (AddressFamily::INET6, route.device),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    let mut to = SocketAddr::new(ip, DISCARD);
    if let (SocketAddr::V6(v6), true) = (&mut to, is_link_local(ip)) {
        v6.set_scope_id(scope);
    }
    rustix::net::sendto(&socket, &[], SendFlags::NOSIGNAL, &to).map(drop)
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Waits for a notification about any neighbour and discards it.
fn wait_for_event(events: &OwnedFd, within: Duration) -> Result<(), Error> {
    let mut polled = [PollFd::new(events, PollFlags::IN)];
    let timeout = Timespec::try_from(within).map_err(|_| Error::Garbled)?;
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(Error::Socket(error)),
    }
    let mut bytes = [0_u8; 4096];
    while retry(|| rustix::net::recv(events, &mut bytes, RecvFlags::DONTWAIT)).is_ok() {}
    Ok(())
}
