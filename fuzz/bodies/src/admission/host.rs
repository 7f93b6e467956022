//! A network namespace with one address of each class.

use std::cell::Cell;
use std::fs;
use std::net::{SocketAddr, SocketAddrV6};
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use ops::netlink::NetStack;

/// The commands that make the addresses. No packet leaves the namespace: there is no default
/// route, and the far end of the device has no address.
const SETUP: &str = "\
ip link set lo up
ip link add d0 type veth peer name d1
sysctl -qw net.ipv6.conf.d0.addr_gen_mode=1 net.ipv6.conf.d1.addr_gen_mode=1
ip link set d0 up
ip link set d1 up
ip addr add 127.0.0.5/32 dev lo
ip addr add 192.0.2.1/24 broadcast 192.0.2.255 dev d0
ip addr add 2001:db8::1/64 dev d0 nodad
ip addr add fe80::1/64 dev d0 nodad
ip route add local 198.51.100.0/24 dev lo
ip -6 route add local 2001:db8:5::/64 dev lo
";

/// All addresses, without ports; `%` stands for the scope of the device. The first stands for no
/// address at all.
pub const ADDRESSES: [&str; 24] = [
    "",
    "127.0.0.1",
    "192.0.2.1",
    "0.0.0.0",
    "::1",
    "2001:db8::1",
    "::",
    "::ffff:127.0.0.1",
    "127.0.0.5",
    "127.0.0.9",
    "198.51.100.7",
    "2001:db8:5::7",
    "fe80::1%",
    "::ffff:192.0.2.1",
    "203.0.113.9",
    "2001:db8:9::9",
    "fe80::1",
    "224.0.0.1",
    "255.255.255.255",
    "192.0.2.255",
    "127.255.255.255",
    "ff02::1%",
    "::ffff:0.0.0.0",
    "::1%",
];

/// The number of addresses at which a socket can listen: the first ones.
pub const LISTENING: usize = 14;

/// The namespace of the calling thread, which stays in it.
#[derive(Debug)]
pub struct Host {
    /// The network stack, as the library uses it.
    pub stack: NetStack,
    scope: u32,
    unprivileged: Cell<u16>,
    is_nonlocal: Cell<bool>,
    next_port: Cell<u16>,
}

impl Host {
    /// Moves the calling thread into a namespace of its own.
    ///
    /// # Errors
    /// The reason why this host does not permit it.
    pub fn enter() -> Result<Self, String> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| format!("no namespace: {errno}"))?;
        let made = Command::new("sh").args(["-ec", SETUP]).output();
        let made = made.map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let scope = nix::net::if_::if_nametoindex("d0").map_err(|errno| errno.to_string());
        Ok(Self {
            stack: NetStack::open().map_err(|error| error.to_string())?,
            scope: scope?,
            unprivileged: Cell::new(1024),
            is_nonlocal: Cell::new(false),
            next_port: Cell::new(20_000),
        })
    }

    /// Sets the lowest port of programs without privileges, and whether every program may bind
    /// foreign addresses.
    pub fn set(&self, unprivileged: u16, is_nonlocal: bool) {
        if self.unprivileged.replace(unprivileged) != unprivileged {
            write("ipv4/ip_unprivileged_port_start", unprivileged);
        }
        if self.is_nonlocal.replace(is_nonlocal) != is_nonlocal {
            write("ipv4/ip_nonlocal_bind", u16::from(is_nonlocal));
            write("ipv6/ip_nonlocal_bind", u16::from(is_nonlocal));
        }
    }

    /// Returns a port that no socket has used lately.
    pub fn port(&self) -> u16 {
        let port = self.next_port.get();
        self.next_port
            .set(if port == 29_999 { 20_000 } else { port + 1 });
        port
    }

    /// Returns an address of [`ADDRESSES`] with a port; `None` for the first.
    ///
    /// # Panics
    /// If the index is beyond the table.
    pub fn address(&self, index: usize, port: u16) -> Option<SocketAddr> {
        let text = ADDRESSES[index];
        if let Some(ip) = text.strip_suffix('%') {
            let ip = ip.parse().expect("an IPv6 address");
            return Some(SocketAddrV6::new(ip, port, 0, self.scope).into());
        }
        (!text.is_empty()).then(|| SocketAddr::new(text.parse().expect("an address"), port))
    }
}

fn write(setting: &str, value: u16) {
    let path = format!("/proc/sys/net/{setting}");
    fs::write(&path, value.to_string()).unwrap_or_else(|error| panic!("{path}: {error}"));
}
