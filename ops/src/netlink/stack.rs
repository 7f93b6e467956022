//! The entry point of this module: routes, addresses, devices and their changes.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use host::locks::IgnorePoison as _;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::netlink::accepting::AcceptingEnd;
use crate::netlink::address::LocalAddress;
use crate::netlink::device::Device;
use crate::netlink::events::{Change, Events};
use crate::netlink::neighbour::{self, LinkAddress};
use crate::netlink::rdma::{RdmaDevices, RdmaPort};
use crate::netlink::request::{self, LocalRequest, Receiver};
use crate::netlink::route::{Reach, Route, RouteQuery};
use host::netlink::Error;
use host::netlink::channel::Channel;
use netlink_packet_sock_diag::SockDiagMessage;
use rustix::net::netlink::SOCK_DIAG;

/// The maximum number of cached routes; a program with more peers asks the kernel again.
const ROUTES_MAX: usize = 4096;

/// The maximum number of devices with a recorded change. A host makes new devices for its
/// containers all the time.
const DEVICES_MAX: usize = 1024;

/// The maximum number of changes that are kept until a caller takes them.
const CHANGES_MAX: usize = 1024;

/// The time for which the list of RDMA devices is used without reading it again.
const RDMA_FRESH: Duration = Duration::from_secs(1);

/// The network stack of the namespace in which it was opened.
#[derive(Debug)]
pub struct NetStack {
    inner: Mutex<Inner>,
}

/// A local address from which a destination can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The address.
    pub ip: IpAddr,
    /// The device that sends packets with this address.
    pub device: Device,
    /// True if that device can do RDMA.
    pub rdma: bool,
}

#[derive(Debug)]
struct Inner {
    channel: Channel,
    /// The channel to the table of sockets; `None` if the kernel does not report sockets. It is
    /// opened with the others, because a program may lose the right to open sockets later.
    sockets: Option<Channel<SockDiagMessage>>,
    events: Events,
    /// The process that opened the sockets. The two processes of a fork would receive each other's
    /// answers.
    owner: Pid,
    generation: u64,
    routes: BTreeMap<RouteQuery, Result<Route, Error>>,
    changes: Vec<Change>,
    device_changes: DeviceChanges,
    rdma: RdmaDevices,
    /// The time at which `rdma` was read; `None` if it must be read again. Some kernels do not
    /// report RDMA devices that appear or disappear.
    rdma_read_at: Option<Instant>,
}

/// The number of the last change of each device: appeared, removed, started or stopped running. All
/// devices share one counter.
#[derive(Debug, Default, Clone)]
struct DeviceChanges {
    count: u64,
    by_device: BTreeMap<u32, u64>,
    /// The number of the last change that may concern any device.
    of_any: u64,
}

impl DeviceChanges {
    fn note(&mut self, change: &Change) {
        match change {
            Change::Device { device, .. } | Change::DeviceGone { device }
                if self.by_device.len() < DEVICES_MAX =>
            {
                self.count += 1;
                self.by_device.insert(*device, self.count);
            }
            Change::Device { .. } | Change::DeviceGone { .. } | Change::Lost => self.note_any(),
            Change::Mtu { .. } | Change::Address { .. } | Change::Routing => {}
        }
    }

    fn note_any(&mut self) {
        self.by_device.clear();
        self.count += 1;
        self.of_any = self.count;
    }

    fn of(&self, device: u32) -> u64 {
        *self.by_device.get(&device).unwrap_or(&self.of_any)
    }
}

impl NetStack {
    /// Opens the stack of the calling thread's namespace.
    ///
    /// # Errors
    /// Fails if netlink sockets cannot be opened, for instance because a filter forbids them.
    pub fn open() -> Result<Self, Error> {
        Ok(Self {
            inner: Mutex::new(Inner::open()?),
        })
    }

    /// Returns the route to a destination.
    ///
    /// # Errors
    /// [`Error::Refused`] with the error of `connect` if there is no route.
    pub fn route(&self, query: &RouteQuery) -> Result<Route, Error> {
        self.lock()?.route(query)
    }

    /// Returns the facts about a TCP connection within this host, from which the kernel would
    /// accept or refuse it. If the address of `from` is unspecified, the kernel's choice replaces
    /// it. Neither address may be an IPv4-mapped address.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub fn local_request(&self, from: SocketAddr, to: SocketAddr) -> Result<LocalRequest, Error> {
        self.lock()?.local_request(from, to)
    }

    /// Returns the state of the accepting end of a TCP connection from `client` to `server`. Both
    /// are on this host.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub fn accepting_end(
        &self,
        client: SocketAddr,
        server: SocketAddr,
    ) -> Result<AcceptingEnd, Error> {
        let mut inner = self.lock()?;
        AcceptingEnd::of(inner.sockets()?, client, server)
    }

    /// Returns true if the kernel delivers packets to this address to this host.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        let route = self.route(&RouteQuery::to(ip));
        route.is_ok_and(|route| route.reach == Reach::Local)
    }

    /// Returns true if [`NetStack::local_request`] can ask about sockets.
    #[must_use]
    pub fn reports_sockets(&self) -> bool {
        self.lock().is_ok_and(|inner| inner.sockets.is_some())
    }

    /// Returns every local address from which `to` can be reached, the best first: the kernel's own
    /// choice, other addresses of the same device, those whose packets are sent by a device that
    /// can do RDMA, the rest.
    ///
    /// # Errors
    /// As [`NetStack::route`].
    pub fn sources_to(&self, to: IpAddr) -> Result<Vec<Source>, Error> {
        self.lock()?.sources_to(&RouteQuery::to(to))
    }

    /// Returns the link-layer address of the next hop of `route`. If the kernel does not know it,
    /// the call makes the kernel resolve it and waits until `within` has passed.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub fn link_address(&self, route: &Route, within: Duration) -> Result<LinkAddress, Error> {
        let mut inner = self.lock()?;
        if route.reach == Reach::Local || !inner.device(route.device)?.resolves {
            return Ok(LinkAddress::NotNeeded);
        }
        match neighbour::known(&mut inner.channel, route.device, route.next_hop())? {
            LinkAddress::Unknown if !within.is_zero() => {
                // The lock is released, because other threads need not wait for a neighbour that
                // may never answer.
                drop(inner);
                neighbour::resolve(&mut Channel::open()?, route, within)
            }
            found => Ok(found),
        }
    }

    /// Returns the MTU to a destination in bytes: the smaller of the route's, if it has one, and
    /// the device's.
    ///
    /// # Errors
    /// As [`NetStack::route`].
    pub fn mtu_to(&self, to: IpAddr) -> Result<u32, Error> {
        let mut inner = self.lock()?;
        let route = inner.route(&RouteQuery::to(to))?;
        let device = inner.device(route.device)?.mtu;
        Ok(route.mtu.map_or(device, |mtu| mtu.min(device)))
    }

    /// Returns the device with this index.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn device(&self, index: u32) -> Result<Device, Error> {
        self.lock()?.device(index)
    }

    /// Returns every device.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        Device::all(&mut self.lock()?.channel)
    }

    /// Returns every address of this host.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub fn addresses(&self) -> Result<Vec<LocalAddress>, Error> {
        LocalAddress::all(&mut self.lock()?.channel)
    }

    /// Returns the active RDMA ports behind the network device that has this address.
    ///
    /// # Errors
    /// Fails if the kernel cannot be asked.
    pub fn rdma_ports_at(&self, ip: IpAddr) -> Result<Vec<RdmaPort>, Error> {
        let mut inner = self.lock()?;
        inner.refresh_rdma();
        if inner.rdma.active_ports(None).is_empty() {
            return Ok(Vec::new());
        }
        let addresses = LocalAddress::all(&mut inner.channel)?;
        let Some(own) = addresses.iter().find(|own| own.ip == ip) else {
            return Ok(Vec::new());
        };
        let name = inner.device(own.device)?.name;
        Ok(inner.rdma.active_ports(Some(&name)))
    }

    /// Returns the network devices that can do RDMA.
    ///
    /// # Errors
    /// Fails if sockets cannot be opened again after a fork.
    pub fn rdma(&self) -> Result<RdmaDevices, Error> {
        let mut inner = self.lock()?;
        inner.refresh_rdma();
        Ok(inner.rdma.clone())
    }

    /// Marks a device that a software RNIC uses.
    ///
    /// # Errors
    /// Fails if sockets cannot be opened again after a fork.
    pub fn mark_rdma(&self, network_device: &str) -> Result<(), Error> {
        let mut inner = self.lock()?;
        inner.rdma.mark(network_device);
        inner.forget();
        Ok(())
    }

    /// Returns a number that changes with each event that may invalidate earlier answers.
    ///
    /// # Errors
    /// Fails if sockets cannot be opened again after a fork.
    pub fn generation(&self) -> Result<u64, Error> {
        Ok(self.lock()?.generation)
    }

    /// Returns a number that changes whenever the device may have appeared, been removed, or
    /// started or stopped running.
    ///
    /// # Errors
    /// Fails if sockets cannot be opened again after a fork.
    pub fn device_changes(&self, device: u32) -> Result<u64, Error> {
        Ok(self.lock()?.device_changes.of(device))
    }

    /// Returns the changes since the last call.
    ///
    /// # Errors
    /// Fails if sockets cannot be opened again after a fork.
    pub fn changes(&self) -> Result<Vec<Change>, Error> {
        Ok(std::mem::take(&mut self.lock()?.changes))
    }

    /// Returns a descriptor that is readable when a change is queued.
    ///
    /// # Errors
    /// Fails if no descriptor is free.
    pub fn watch(&self) -> Result<OwnedFd, Error> {
        let inner = self.lock()?;
        let socket = inner.events.socket().as_fd();
        host::descriptors::copy(socket).map_err(Error::Socket)
    }

    /// Returns the state after all queued notifications. The child of a fork opens its own sockets
    /// first.
    fn lock(&self) -> Result<MutexGuard<'_, Inner>, Error> {
        let mut inner = self.inner.lock().ignore_poison();
        if inner.owner != rustix::process::getpid() {
            let marks = inner.rdma.clone();
            let generation = inner.generation;
            let mut device_changes = std::mem::take(&mut inner.device_changes);
            device_changes.note_any();
            *inner = Inner::open()?;
            inner.rdma = marks;
            inner.generation = generation + 1;
            inner.device_changes = device_changes;
        }
        inner.take_notifications();
        Ok(inner)
    }
}

impl Inner {
    fn open() -> Result<Self, Error> {
        let mut channel = Channel::open()?;
        // The notifications are enabled before the devices are read, so that no change is missed.
        let mut events = Events::open()?;
        events.set_devices(Device::all(&mut channel)?);
        Ok(Self {
            channel,
            sockets: Channel::of(Some(SOCK_DIAG)).ok(),
            events,
            owner: rustix::process::getpid(),
            generation: 0,
            routes: BTreeMap::new(),
            changes: Vec::new(),
            device_changes: DeviceChanges::default(),
            rdma: RdmaDevices::default(),
            rdma_read_at: None,
        })
    }

    fn take_notifications(&mut self) {
        let events = self.events.take();
        if events.is_empty() {
            return;
        }
        let lost = events.contains(&Change::Lost);
        if lost && let Ok(devices) = Device::all(&mut self.channel) {
            self.events.set_devices(devices);
        }
        let of_device = |change: &Change| {
            matches!(
                change,
                Change::Device { .. } | Change::DeviceGone { .. } | Change::Lost
            )
        };
        if events.iter().any(of_device) {
            self.rdma_read_at = None;
        }
        events
            .iter()
            .for_each(|change| self.device_changes.note(change));
        self.changes.extend(events);
        if self.changes.len() > CHANGES_MAX {
            self.changes = vec![Change::Lost];
        }
        self.forget();
    }

    /// Reads the RDMA devices again if the last read is older than `RDMA_FRESH`, or if devices have
    /// changed since.
    fn refresh_rdma(&mut self) {
        let is_fresh = |read_at: Instant| read_at.elapsed() < RDMA_FRESH;
        if !self.rdma_read_at.is_some_and(is_fresh) {
            self.rdma = RdmaDevices::read().with_marks_of(&self.rdma);
            self.rdma_read_at = Some(Instant::now());
        }
    }

    fn forget(&mut self) {
        self.generation += 1;
        self.routes.clear();
    }

    fn route(&mut self, query: &RouteQuery) -> Result<Route, Error> {
        if let Some(known) = self.routes.get(query) {
            return known.clone();
        }
        let found = Route::look_up(&mut self.channel, query);
        // A failure for lack of memory, for example, says nothing about the route and is not
        // cached.
        if matches!(found, Ok(_) | Err(Error::Refused(_))) {
            if self.routes.len() >= ROUTES_MAX {
                self.routes.clear();
            }
            self.routes.insert(query.clone(), found.clone());
        }
        found
    }

    /// Returns the route to an address, or `None` if the kernel has none.
    fn route_to_address(
        &mut self,
        address: SocketAddr,
        from: Option<IpAddr>,
    ) -> Result<Option<Route>, Error> {
        let mut query = RouteQuery::to(address.ip()).from(from);
        if let SocketAddr::V6(v6) = address {
            query.device = Some(v6.scope_id()).filter(|scope| *scope != 0);
        }
        match self.route(&query) {
            Ok(route) => Ok(Some(route)),
            Err(Error::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn local_request(&mut self, from: SocketAddr, to: SocketAddr) -> Result<LocalRequest, Error> {
        let is_local = |route: &Route| route.reach == Reach::Local;
        let way = self.route_to_address(to, Some(from.ip()))?;
        let way = way
            .filter(is_local)
            .filter(|_| from.is_ipv4() == to.is_ipv4());
        let mut found = LocalRequest {
            from,
            to,
            is_from_local: false,
            is_to_local: way.is_some(),
            receiver: Receiver::Nobody,
        };
        let Some(way) = way else {
            return Ok(found);
        };
        if from.ip().is_unspecified() {
            let scope = request::receiving_device(to, 0);
            let chosen = way.source.unwrap_or(request::unspecified_like(to.ip()));
            found.from = request::with_scope(chosen, from.port(), scope);
        }
        let back = self.route_to_address(found.from, None)?;
        found.is_from_local = back.as_ref().is_some_and(is_local);
        let device = request::receiving_device(to, way.device);
        found.receiver = Receiver::of(self.sockets()?, found.from, to, device)?;
        Ok(found)
    }

    fn sockets(&mut self) -> Result<&mut Channel<SockDiagMessage>, Error> {
        let unsupported = Error::Socket(Errno::PROTONOSUPPORT);
        self.sockets.as_mut().ok_or(unsupported)
    }

    fn device(&mut self, index: u32) -> Result<Device, Error> {
        Device::by_index(&mut self.channel, index)
    }

    fn sources_to(&mut self, query: &RouteQuery) -> Result<Vec<Source>, Error> {
        self.refresh_rdma();
        let best = self.route(query)?;
        let to = query.to;
        let addresses = LocalAddress::all(&mut self.channel)?;
        let candidates = addresses.iter().filter(|address| {
            let same_family = address.ip.is_ipv4() == to.is_ipv4();
            // An address that is valid on this host or on one link only does not reach further.
            let wide_enough = best.reach == Reach::Local
                || !address.host_local && (!address.link_local || address.device == best.device);
            same_family && address.usable && wide_enough
        });
        let mut sources = Vec::new();
        for address in candidates {
            let route = match self.route(&query.clone().from(Some(address.ip))) {
                Ok(route) => route,
                Err(Error::Refused(_)) => continue,
                Err(error) => return Err(error),
            };
            let device = match self.device(route.device) {
                Ok(device) => device,
                // The device was removed between the two requests.
                Err(Error::Refused(Errno::NODEV)) => continue,
                Err(error) => return Err(error),
            };
            let rdma = self.rdma.can(&device.name);
            let rank = if Some(address.ip) == best.source {
                0
            } else if address.device == best.device {
                1
            } else {
                3 - u8::from(rdma)
            };
            sources.push((
                rank,
                Source {
                    ip: address.ip,
                    device,
                    rdma,
                },
            ));
        }
        sources.sort_by_key(|(rank, _)| *rank);
        Ok(sources.into_iter().map(|(_, source)| source).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(device: u32) -> Change {
        Change::Device {
            device,
            name: "eth".to_owned(),
            running: true,
        }
    }

    #[test]
    fn a_change_of_one_device_is_not_one_of_another() {
        let mut device_changes = DeviceChanges::default();
        let (one, other) = (device_changes.of(1), device_changes.of(2));
        device_changes.note(&added(2));
        assert_eq!(device_changes.of(1), one);
        let added_once = device_changes.of(2);
        assert_ne!(added_once, other);
        device_changes.note(&Change::DeviceGone { device: 2 });
        assert_ne!(device_changes.of(2), added_once);
        for change in [
            Change::Routing,
            Change::Mtu {
                device: 1,
                name: "eth".to_owned(),
                mtu: 9000,
            },
        ] {
            device_changes.note(&change);
            assert_eq!(device_changes.of(1), one);
        }
        device_changes.note(&Change::Lost);
        assert_ne!(device_changes.of(1), one);
    }

    #[test]
    fn devices_without_end_take_no_memory_without_end() {
        let mut device_changes = DeviceChanges::default();
        let before = device_changes.of(1);
        for device in 0..10_000 {
            device_changes.note(&added(device));
            assert!(device_changes.by_device.len() <= DEVICES_MAX);
        }
        assert_ne!(device_changes.of(1), before);
    }
}
