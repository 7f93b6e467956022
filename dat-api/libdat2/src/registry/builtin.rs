//! The registry of a machine without any `dat.conf`: the software provider on every local address.
//!
//! Each interface that is up and has an address gets an entry named `iwarp-<interface>`, so that a
//! program works without any configuration. An interface whose only address is link-local IPv6 gets
//! no entry, because each veth device of a container has such an address. Loopback is the last
//! entry, so that a program that takes the first name gets an adapter that other machines can
//! reach.
//!
//! With a `dat.conf`, these entries are not listed, and a program may still open them by name, or
//! by an address or the name of the host: another package's file does not hide them.

use dat_conf::{Api, Entry};
use host::netlink::interfaces::{Interface, interfaces, is_link_local};
use std::ffi::{CStr, CString};
use std::net::IpAddr;

/// Library of the software provider.
const LIBRARY: &CStr = c"libdapl-iwarp.so.2";

/// Returns entries for the current interfaces.
///
/// # Errors
/// The kernel cannot list the interfaces.
pub fn entries() -> Result<Vec<Entry>, host::netlink::Error> {
    let names = devices(interfaces()?);
    Ok(names.iter().filter_map(|name| entry(name)).collect())
}

/// Returns the entry that a program opens by this name: `iwarp-` and an interface, a local address,
/// or the name of this host, which stands for the first entry.
///
/// Other names of hosts are not looked up: a misspelt name would ask name servers.
pub fn named(name: &CStr) -> Option<Entry> {
    let name = name.to_str().ok()?;
    // A failure to list the interfaces is reported as an unknown name.
    let interfaces = interfaces().ok()?;
    let place = match name.parse::<IpAddr>() {
        Ok(address) => {
            let mut up = interfaces.iter().filter(|it| it.is_up);
            up.find(|it| it.address == address).map(|_| name.to_owned())
        }
        Err(_) => {
            let is_host = is_host_name(name);
            let is_it = |device: &String| is_host || name.strip_prefix("iwarp-") == Some(device);
            devices(interfaces).into_iter().find(is_it)
        }
    };
    entry_named(name, &place?)
}

/// Returns true for the name of this host, with or without its domain.
fn is_host_name(name: &str) -> bool {
    let of_system = rustix::system::uname();
    let Ok(host) = of_system.nodename().to_str() else {
        return false;
    };
    let short = host.split('.').next();
    !name.is_empty() && (name == host || Some(name) == short)
}

/// Returns the entry of an interface; `None` if the name contains a zero byte and therefore cannot
/// be converted to a C string.
fn entry(interface: &str) -> Option<Entry> {
    entry_named(&format!("iwarp-{interface}"), interface)
}

/// Returns the entry with this name of an interface or a local address.
fn entry_named(name: &str, place: &str) -> Option<Entry> {
    Some(Entry {
        ia_name: CString::new(name).ok()?,
        api: Api::User,
        major: 2,
        minor: 0,
        thread_safe: false,
        default: true,
        lib_path: LIBRARY.to_owned(),
        ia_params: CString::new(format!("{place} 0")).ok()?,
        line: 0,
    })
}

/// Returns the devices that are up and have an address.
fn devices(mut interfaces: Vec<Interface>) -> Vec<String> {
    interfaces.retain(|it| it.is_up && !is_link_local(&it.address));
    interfaces.sort_by_key(|it| it.is_loopback);
    let mut names: Vec<String> = Vec::new();
    for interface in interfaces {
        if !names.contains(&interface.name) {
            names.push(interface.name);
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_interface_and_library() {
        let entry = entry("eth0").expect("short name");
        assert_eq!(entry.ia_name.as_c_str(), c"iwarp-eth0");
        assert_eq!(entry.ia_params.as_c_str(), c"eth0 0");
        assert_eq!(entry.lib_path.as_c_str(), c"libdapl-iwarp.so.2");
        assert!(entry.is_registered());
    }

    #[test]
    fn the_name_of_the_host_stands_for_the_first_entry() {
        let host = rustix::system::uname().nodename().to_owned();
        let first = entries().unwrap().into_iter().next();
        let named = named(&host);
        assert_eq!(
            named.as_ref().map(|it| &it.ia_params),
            first.as_ref().map(|it| &it.ia_params)
        );
        assert_eq!(named.map(|it| it.ia_name), first.map(|_| host));
    }

    fn interface(name: &str, address: &str, is_up: bool) -> Interface {
        Interface {
            name: name.to_owned(),
            address: address.parse().expect("an address"),
            scope_id: 0,
            is_up,
            is_loopback: name == "lo",
        }
    }

    #[test]
    fn an_address_of_ipv6_counts_unless_it_is_link_local() {
        let counts = |address, is_up| !devices(vec![interface("eth0", address, is_up)]).is_empty();
        assert!(counts("2001:db8::1", true));
        assert!(counts("fd00::1", true));
        assert!(!counts("fe80::1", true));
        assert!(!counts("2001:db8::1", false));
    }

    #[test]
    fn every_interface_appears_once_and_loopback_last() {
        let all = [
            ("lo", "127.0.0.1"),
            ("lo", "192.0.2.3"),
            ("eth0", "192.0.2.1"),
            ("lo", "::1"),
            ("eth0", "192.0.2.2"),
            ("eth1", "2001:db8::1"),
        ];
        let all = all.map(|(name, address)| interface(name, address, true));
        assert_eq!(devices(all.to_vec()), ["eth0", "eth1", "lo"]);
    }
}
