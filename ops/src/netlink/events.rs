//! Change notifications of the kernel.

use std::collections::BTreeMap;
use std::net::IpAddr;

use host::descriptors::OwnDescriptor;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::netlink::address::LocalAddress;
use crate::netlink::device::Device;
use host::netlink::Error;
use host::netlink::channel::{messages, open_socket, retry};

/// Multicast groups, as bits of the mask that a socket is bound to.
pub(super) mod group {
    const fn bit(number: u32) -> u32 {
        1 << (number - 1)
    }

    pub(in crate::netlink) const NEIGHBOUR: u32 = bit(3);

    /// Everything that a route depends on: links, addresses, routes, rules and next-hop objects.
    pub(in crate::netlink) const ROUTING: u32 =
        bit(1) | bit(5) | bit(7) | bit(8) | bit(9) | bit(11) | bit(19) | bit(32);
}

/// The size of the receive buffer for one datagram of notifications, in bytes.
const BUFFER_LEN: usize = 32 << 10;

/// A change that may invalidate an earlier answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The MTU of a device changed.
    Mtu {
        /// Index of the device.
        device: u32,
        /// Name of the device.
        name: String,
        /// The new MTU in bytes.
        mtu: u32,
    },
    /// A device appeared, was renamed, or started or stopped running.
    Device {
        /// Index of the device.
        device: u32,
        /// Name of the device.
        name: String,
        /// True if the device runs.
        running: bool,
    },
    /// A device was removed.
    DeviceGone {
        /// Index of the device.
        device: u32,
    },
    /// An address was added, removed or updated.
    Address {
        /// The address.
        ip: IpAddr,
        /// Index of its device.
        device: u32,
        /// True if the address exists now.
        present: bool,
    },
    /// A route, a rule or a next-hop object changed.
    Routing,
    /// Notifications were lost, so anything may have changed.
    Lost,
}

/// A socket that receives the change notifications of this namespace.
#[derive(Debug)]
pub(super) struct Events {
    socket: OwnDescriptor,
    buffer: Vec<u8>,
    /// The last state of each device. The kernel reports the whole device and not the change, so
    /// the change is found by comparison.
    devices: BTreeMap<u32, Device>,
}

impl Events {
    /// Starts to receive notifications. The caller reads the devices after this, so no change is
    /// missed.
    pub(super) fn open() -> Result<Self, Error> {
        Ok(Self {
            socket: open_socket(None, group::ROUTING)?.into(),
            buffer: vec![0; BUFFER_LEN],
            devices: BTreeMap::new(),
        })
    }

    pub(super) fn set_devices(&mut self, devices: Vec<Device>) {
        self.devices = devices
            .into_iter()
            .map(|device| (device.index, device))
            .collect();
    }

    pub(super) fn socket(&self) -> &OwnDescriptor {
        &self.socket
    }

    /// Returns the changes since the last call; never waits.
    pub(super) fn take(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        loop {
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
            match retry(|| rustix::net::recv(&self.socket, &mut self.buffer, flags)) {
                Ok((len, whole)) if len == whole => self.read(len, &mut changes),
                Ok(_) => changes.push(Change::Lost),
                Err(Errno::AGAIN) => return changes,
                Err(Errno::NOBUFS) => changes.push(Change::Lost),
                Err(_) => {
                    changes.push(Change::Lost);
                    return changes;
                }
            }
        }
    }

    fn read(&mut self, len: usize, changes: &mut Vec<Change>) {
        let parsed: Vec<_> = messages(&self.buffer[..len])
            .map(NetlinkMessage::<RouteNetlinkMessage>::deserialize)
            .collect();
        for message in parsed {
            match message.map(|message| message.payload) {
                Ok(NetlinkPayload::InnerMessage(inner)) => self.note(&inner, changes),
                Ok(NetlinkPayload::Noop) => {}
                // A notification that cannot be parsed may be about anything.
                _ => changes.push(Change::Lost),
            }
        }
    }

    fn note(&mut self, message: &RouteNetlinkMessage, changes: &mut Vec<Change>) {
        match message {
            RouteNetlinkMessage::NewLink(message) => self.note_device(Device::of(message), changes),
            // A device has left a bridge, and still exists.
            RouteNetlinkMessage::DelLink(message)
                if message.header.interface_family == AddressFamily::Bridge =>
            {
                changes.push(Change::Routing);
            }
            RouteNetlinkMessage::DelLink(message) => {
                let device = message.header.index;
                if self.devices.remove(&device).is_some() {
                    changes.push(Change::DeviceGone { device });
                }
            }
            RouteNetlinkMessage::NewAddress(message) => {
                changes.extend(address_change(LocalAddress::of(message), true));
            }
            RouteNetlinkMessage::DelAddress(message) => {
                changes.extend(address_change(LocalAddress::of(message), false));
            }
            _ => changes.push(Change::Routing),
        }
    }

    fn note_device(&mut self, new: Device, changes: &mut Vec<Change>) {
        let old = self.devices.insert(new.index, new.clone());
        let same = |of: fn(&Device, &Device) -> bool| old.as_ref().is_some_and(|old| of(old, &new));
        let is_mtu_same = old.is_none() || same(|old, new| old.mtu == new.mtu);
        let is_rest_same = same(|old, new| old.name == new.name && old.running == new.running);
        let device = new.index;
        if !is_mtu_same {
            changes.push(Change::Mtu {
                device,
                name: new.name.clone(),
                mtu: new.mtu,
            });
        }
        if !is_rest_same {
            changes.push(Change::Device {
                device,
                name: new.name.clone(),
                running: new.running,
            });
        } else if is_mtu_same {
            // Another property of the device changed, on which routes may depend.
            changes.push(Change::Routing);
        }
    }
}

fn address_change(address: Option<LocalAddress>, present: bool) -> Option<Change> {
    address.map(|address| Change::Address {
        ip: address.ip,
        device: address.device,
        present,
    })
}

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::LinkMessage;

    use super::*;

    fn device(index: u32, mtu: u32, running: bool) -> Device {
        Device {
            index,
            name: format!("eth{index}"),
            mtu,
            running,
            loopback: false,
            resolves: true,
        }
    }

    fn changed(name: &str, running: bool) -> Change {
        Change::Device {
            device: 7,
            name: name.to_owned(),
            running,
        }
    }

    fn noted(old: &[Device], new: Device) -> Vec<Change> {
        let mut events = Events::open().unwrap();
        events.set_devices(old.to_vec());
        let mut changes = Vec::new();
        events.note_device(new, &mut changes);
        changes
    }

    #[test]
    fn a_change_of_a_device_is_reported() {
        let mtu = Change::Mtu {
            device: 7,
            name: "eth7".to_owned(),
            mtu: 9000,
        };
        let (stopped, appeared) = (changed("eth7", false), changed("eth7", true));
        let known = [device(7, 1500, true)];
        assert_eq!(
            noted(&known, device(7, 9000, true)),
            std::slice::from_ref(&mtu)
        );
        assert_eq!(
            noted(&known, device(7, 1500, false)),
            std::slice::from_ref(&stopped)
        );
        assert_eq!(noted(&known, device(7, 9000, false)), [mtu, stopped]);
        assert_eq!(noted(&known, device(7, 1500, true)), [Change::Routing]);
        // The MTU of a new device is no change of its MTU.
        assert_eq!(noted(&[], device(7, 1500, true)), [appeared]);
    }

    #[test]
    fn a_device_that_leaves_a_bridge_still_exists() {
        let mut events = Events::open().unwrap();
        events.set_devices(vec![device(7, 1500, true)]);
        let mut removal = LinkMessage::default();
        removal.header.index = 7;
        for (family, expected) in [
            (AddressFamily::Bridge, Change::Routing),
            (AddressFamily::Unspec, Change::DeviceGone { device: 7 }),
        ] {
            removal.header.interface_family = family;
            let mut changes = Vec::new();
            events.note(&RouteNetlinkMessage::DelLink(removal.clone()), &mut changes);
            assert_eq!(changes, [expected]);
        }
    }

    #[test]
    fn a_renamed_device_is_reported() {
        let renamed = Device {
            name: "lan".to_owned(),
            ..device(7, 1500, true)
        };
        let reported = changed("lan", true);
        assert_eq!(noted(&[device(7, 1500, true)], renamed), [reported]);
    }

    #[test]
    fn no_change_is_lost_in_a_short_time() {
        // In a shared namespace there may be changes, but too few to fill the buffer.
        let mut events = Events::open().unwrap();
        assert!(!events.take().contains(&Change::Lost));
    }
}
