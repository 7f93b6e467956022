//! Attributes of a network device, as the kernel reports them in the network namespace of the
//! calling thread. The files of sysfs may be those of another namespace.

use std::ffi::c_char;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// `ETHTOOL_GSET` of `linux/ethtool.h`, whose answer has the speed.
const ETHTOOL_GSET: u32 = 1;
/// The value of an unknown speed.
const SPEED_UNKNOWN: u32 = u32::MAX;

/// `struct ethtool_cmd`, as far as it is used.
#[repr(C)]
#[derive(Debug, Default)]
struct EthtoolCommand {
    command: u32,
    _modes: [u32; 2],
    speed: u16,
    _port: [u8; 6],
    _packets: [u32; 2],
    speed_high: u16,
    _control: [u8; 2],
    _partner: [u32; 3],
}

const _: () = {
    assert!(size_of::<EthtoolCommand>() == 44);
    assert!(std::mem::offset_of!(EthtoolCommand, speed_high) == 28);
};

/// A network device.
#[derive(Debug)]
pub(crate) struct Interface {
    socket: OwnedFd,
    request: libc::ifreq,
}

impl Interface {
    /// Returns `None` if the process has no descriptor left.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).ok()?;
        // SAFETY: the structure has only integers and a pointer, of which zero is a value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        let len = request.ifr_name.len() - 1;
        for (place, byte) in request.ifr_name[..len].iter_mut().zip(name.bytes()) {
            *place = c_char::from_ne_bytes([byte]);
        }
        Some(Self { socket, request })
    }

    /// The index of the device.
    pub(crate) fn index(&mut self) -> Option<i32> {
        self.ask(libc::SIOCGIFINDEX)?;
        // SAFETY: the call has stored the index.
        Some(unsafe { self.request.ifr_ifru.ifru_ifindex })
    }

    /// True if the device is up and its link works.
    pub(crate) fn is_running(&mut self) -> bool {
        // SAFETY: the call has stored the flags.
        let flags = self
            .ask(libc::SIOCGIFFLAGS)
            .map(|()| unsafe { self.request.ifr_ifru.ifru_flags });
        flags.is_some_and(|flags| i32::from(flags) & libc::IFF_RUNNING != 0)
    }

    /// The Ethernet address; `None` for a device that has none, such as the loopback device.
    pub(crate) fn ethernet_address(&mut self) -> Option<[u8; 6]> {
        self.ask(libc::SIOCGIFHWADDR)?;
        // SAFETY: the call has stored the address.
        let address = unsafe { self.request.ifr_ifru.ifru_hwaddr };
        let [a, b, c, d, e, f, ..] = address.sa_data.map(|byte| byte.to_ne_bytes()[0]);
        let mac = [a, b, c, d, e, f];
        (address.sa_family == libc::ARPHRD_ETHER && mac != [0; 6]).then_some(mac)
    }

    /// The speed in Mb/s; `None` if the device reports none.
    pub(crate) fn speed(&mut self) -> Option<u32> {
        let mut command = EthtoolCommand {
            command: ETHTOOL_GSET,
            ..EthtoolCommand::default()
        };
        self.request.ifr_ifru.ifru_data = (&raw mut command).cast();
        self.ask(libc::SIOCETHTOOL)?;
        let speed = u32::from(command.speed_high) << 16 | u32::from(command.speed);
        (speed != 0 && speed != SPEED_UNKNOWN && speed != u32::from(u16::MAX)).then_some(speed)
    }

    fn ask(&mut self, code: libc::c_ulong) -> Option<()> {
        // SAFETY: each of the requests above reads and writes the structure, and SIOCETHTOOL also
        // the command to which the structure points.
        let answer =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, &raw mut self.request) };
        (answer == 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_an_index_and_no_ethernet_address() {
        let mut loopback = Interface::of("lo").unwrap();
        assert_eq!(loopback.index(), Some(1));
        assert_eq!(loopback.ethernet_address(), None);
        assert_eq!(loopback.speed(), None);
        assert_eq!(Interface::of("no such device").unwrap().index(), None);
    }
}
