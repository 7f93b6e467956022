//! Network devices and addresses of this host. The first word of `ia_params` names one of them.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

use host::netlink::interfaces::is_link_local;
pub use host::netlink::interfaces::{Interface, interfaces};

use crate::RnicError;

/// Returns the main address of a device: its first IPv4 address, otherwise its first IPv6 address
/// that needs no scope, otherwise its first address.
pub fn address_of(interfaces: &[Interface], name: &str) -> Option<IpAddr> {
    let mut own = interfaces
        .iter()
        .filter(|i| i.name == name)
        .map(|i| i.address);
    let all: Vec<IpAddr> = own.by_ref().collect();
    all.iter()
        .find(|a| a.is_ipv4())
        .or_else(|| all.iter().find(|a| !is_link_local(a)))
        .or(all.first())
        .copied()
}

/// Returns the scope of a device's link-local addresses; 0 for a device that has none.
pub fn scope_of(interfaces: &[Interface], name: &str) -> u32 {
    interfaces
        .iter()
        .filter(|i| i.name == name)
        .map(|i| i.scope_id)
        .max()
        .unwrap_or(0)
}

/// Returns the device that has an address. All of 127/8 belongs to the loopback device.
pub fn holder_of(interfaces: &[Interface], address: IpAddr) -> Option<&str> {
    interfaces
        .iter()
        .find(|i| {
            i.address == address
                || (i.address.is_loopback() && i.address.is_ipv4() && is_loopback_v4(address))
        })
        .map(|i| i.name.as_str())
}

/// True if a consumer's socket with this local address is routed through the adapter with the
/// address `adapter`. A socket without a local address passes, because its route is unknown: it is
/// not connected, which an event reports (DAT 2.0 iWARP extensions 3.1.1.2).
pub fn routes(adapter: IpAddr, local: IpAddr) -> bool {
    let local = local.to_canonical();
    let both_loopback = local.is_loopback() && adapter.is_loopback();
    local.is_unspecified() || local == adapter.to_canonical() || both_loopback
}

fn is_loopback_v4(address: IpAddr) -> bool {
    address.is_ipv4() && address.is_loopback()
}

/// The adapter that the first word of `ia_params` selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapter {
    /// Network device.
    pub name: String,
    /// The address that was resolved, or the main address of the device if its name was resolved.
    pub address: IpAddr,
    /// The scope of the device's link-local addresses, as in [`Interface`].
    pub scope_id: u32,
}

/// Resolves the name of a network device, an address of this machine, or a host name of such an
/// address.
///
/// # Errors
/// [`RnicError::NoDevice`] if `word` is none of these; [`RnicError::Os`] if the devices cannot be
/// listed.
pub fn resolve(word: &str) -> Result<Adapter, RnicError> {
    let interfaces = interfaces().map_err(io::Error::from)?;
    let adapter = |name: &str, address| Adapter {
        name: name.to_owned(),
        address,
        scope_id: scope_of(&interfaces, name),
    };
    let none = || RnicError::NoDevice(word.to_owned());
    if let Some(address) = address_of(&interfaces, word) {
        return Ok(adapter(word, address));
    }
    if let Some((address, name)) = word.split_once('%') {
        let address = address.parse().map_err(|_| none())?;
        let exists = interfaces
            .iter()
            .any(|i| i.name == name && i.address == address && is_link_local(&address));
        return exists.then(|| adapter(name, address)).ok_or_else(none);
    }
    let candidates: Vec<IpAddr> = match word.parse() {
        Ok(address) => vec![address],
        Err(_) => (word, 0)
            .to_socket_addrs()
            .map_err(|_| none())?
            .map(|a| a.ip())
            .collect(),
    };
    candidates
        .into_iter()
        .filter(|address| !address.is_unspecified() && !address.is_multicast())
        .find_map(|address| holder_of(&interfaces, address).map(|name| adapter(name, address)))
        .ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Vec<Interface> {
        let of = |name: &str, address: &str| Interface {
            name: name.to_owned(),
            address: address.parse().unwrap(),
            scope_id: if address.starts_with("fe80") { 7 } else { 0 },
            is_up: true,
            is_loopback: name == "lo",
        };
        vec![
            of("lo", "127.0.0.1"),
            of("lo", "::1"),
            of("eth0", "fe80::1"),
            of("eth0", "2001:db8::1"),
            of("eth0", "192.0.2.1"),
            of("eth0", "192.0.2.2"),
            of("tun0", "fe80::2"),
            of("tap0", "fe80::3"),
            of("tap0", "2001:db8::3"),
        ]
    }

    #[test]
    fn the_main_address_is_the_first_ipv4_address_or_one_without_scope() {
        let address = address_of(&list(), "eth0");
        assert_eq!(address, Some("192.0.2.1".parse().unwrap()));
        let address = address_of(&list(), "lo");
        assert_eq!(address, Some("127.0.0.1".parse().unwrap()));
        let own = |name| address_of(&list(), name).map(|a| a.to_string());
        assert_eq!(own("tap0").as_deref(), Some("2001:db8::3"));
        assert_eq!(own("tun0").as_deref(), Some("fe80::2"));
        assert_eq!(["lo", "tun0"].map(|name| scope_of(&list(), name)), [0, 7]);
        assert_eq!(address_of(&list(), "eth7"), None);
    }

    #[test]
    fn all_of_net_127_belongs_to_loopback() {
        assert_eq!(holder_of(&list(), "127.9.8.7".parse().unwrap()), Some("lo"));
        let devices = list();
        let holder = holder_of(&devices, "192.0.2.2".parse().unwrap());
        assert_eq!(holder, Some("eth0"));
        assert_eq!(holder_of(&list(), "192.0.2.3".parse().unwrap()), None);
    }
}
