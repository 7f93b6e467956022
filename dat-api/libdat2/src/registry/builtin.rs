//! The registry of a machine without any `dat.conf`: the software provider on every local address.
//!
//! Each interface that is up and has an address gets an entry named `iwarp-<interface>`, so that a
//! program works without any configuration. An interface whose only address is link-local IPv6 gets
//! no entry, because each veth device of a container has such an address. Loopback is the last
//! entry, so that a program that takes the first name gets an adapter that other machines can
//! reach.

use dat_conf::{Api, Entry};
use std::ffi::{CStr, CString};
use std::net::Ipv6Addr;
use std::{io, ptr};

/// Library of the software provider.
const LIBRARY: &CStr = c"libdapl-iwarp.so.2";

/// An interface with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: CString,
    is_loopback: bool,
}

/// Returns entries for the current interfaces.
///
/// # Errors
/// The kernel cannot list the interfaces.
pub fn entries() -> io::Result<Vec<Entry>> {
    Ok(interfaces()?
        .into_iter()
        .filter_map(|interface| entry(&interface.name))
        .collect())
}

/// Returns the entry of an interface; `None` if the conversion to C strings fails, which happens
/// only for a zero byte within the name.
fn entry(interface: &CStr) -> Option<Entry> {
    let with = |before: &[u8], after: &[u8]| {
        CString::new([before, interface.to_bytes(), after].concat()).ok()
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

fn interfaces() -> io::Result<Vec<Interface>> {
    let mut list: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: on success the call stores a list that this function owns until it frees it.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list.cast_const();
    // SAFETY: each link of the list is null or points at a record that is valid until the list is
    // freed.
    while let Some(record) = unsafe { next.as_ref() } {
        next = record.ifa_next;
        // SAFETY: the record belongs to the list.
        if let Some(interface) = unsafe { usable(record) }
            && !found.contains(&interface)
        {
            found.push(interface);
        }
    }
    // SAFETY: this is the list from `getifaddrs`, freed once; the results are copies.
    unsafe { libc::freeifaddrs(list) };
    found.sort_by_key(|interface| interface.is_loopback);
    Ok(found)
}

/// # Safety
/// `record` is a record of a live `getifaddrs` list.
unsafe fn usable(record: &libc::ifaddrs) -> Option<Interface> {
    // SAFETY: the address is null or points at a socket address inside the list.
    let address = unsafe { record.ifa_addr.as_ref() }?;
    let flag = |flag: libc::c_int| record.ifa_flags & flag.cast_unsigned() != 0;
    let has_address = match libc::c_int::from(address.sa_family) {
        libc::AF_INET => true,
        libc::AF_INET6 => {
            // SAFETY: the family determines the structure.
            let v6 = unsafe { &*record.ifa_addr.cast::<libc::sockaddr_in6>() };
            !Ipv6Addr::from(v6.sin6_addr.s6_addr).is_unicast_link_local()
        }
        _ => false,
    };
    (has_address && flag(libc::IFF_UP)).then(|| Interface {
        // SAFETY: the name is a C string inside the list.
        name: unsafe { CStr::from_ptr(record.ifa_name) }.to_owned(),
        is_loopback: flag(libc::IFF_LOOPBACK),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_names_interface_and_library() {
        let entry = entry(c"eth0").expect("short name");
        assert_eq!(entry.ia_name.as_c_str(), c"iwarp-eth0");
        assert_eq!(entry.ia_params.as_c_str(), c"eth0 0");
        assert_eq!(entry.lib_path.as_c_str(), c"libdapl-iwarp.so.2");
        assert!(entry.is_registered());
    }

    fn usable_with(address: &str, flags: libc::c_int) -> bool {
        // SAFETY: plain data, for which zeros are a value.
        let (mut record, mut v6): (libc::ifaddrs, libc::sockaddr_in6) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        v6.sin6_addr.s6_addr = address.parse::<Ipv6Addr>().expect("an address").octets();
        record.ifa_name = c"eth0".as_ptr().cast_mut();
        record.ifa_flags = flags.cast_unsigned();
        record.ifa_addr = (&raw mut v6).cast();
        // SAFETY: a record in this frame with the form of a list's record.
        unsafe { usable(&record) }.is_some()
    }

    #[test]
    fn an_address_of_ipv6_counts_unless_it_is_link_local() {
        assert!(usable_with("2001:db8::1", libc::IFF_UP));
        assert!(usable_with("fd00::1", libc::IFF_UP));
        assert!(!usable_with("fe80::1", libc::IFF_UP));
        assert!(!usable_with("2001:db8::1", 0));
    }

    #[test]
    fn every_interface_appears_once_and_loopback_last() {
        let found = interfaces().expect("the kernel lists its interfaces");
        for (index, interface) in found.iter().enumerate() {
            assert!(!found[..index].contains(interface), "{interface:?}");
        }
        assert!(found.is_sorted_by_key(|interface| interface.is_loopback));
    }
}
