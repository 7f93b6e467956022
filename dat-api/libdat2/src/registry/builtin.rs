//! The registry of a machine without any `dat.conf`: the software provider on every local address.
//!
//! Each interface that is up and has an address gets an entry named `iwarp-<interface>`, so that a
//! program works without any configuration. An interface whose only address is link-local IPv6 gets
//! no entry, because each veth device of a container has such an address. Loopback is the last
//! entry, so that a program that takes the first name gets an adapter that other machines can
//! reach.

use dat_conf::{Api, Entry};
use host::netlink::interfaces::{Interface, interfaces, is_link_local};
use std::ffi::{CStr, CString};

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

/// Returns the entry of an interface; `None` if the name contains a zero byte and therefore cannot
/// be converted to a C string.
fn entry(interface: &str) -> Option<Entry> {
    let with = |before: &[u8], after: &[u8]| {
        CString::new([before, interface.as_bytes(), after].concat()).ok()
    };
    Some(Entry {
        ia_name: with(b"iwarp-", b"")?,
        api: Api::User,
        major: 2,
        minor: 0,
        thread_safe: false,
        default: true,
        lib_path: LIBRARY.to_owned(),
        ia_params: with(b"", b" 0")?,
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
