//! Addresses as C wants them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use verbs_dl::types::{sockaddr, sockaddr_storage};

/// A socket address in the layout of its family.
pub(crate) struct CAddress(sockaddr_storage);

impl From<SocketAddr> for CAddress {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        let place = &raw mut storage;
        match address {
            SocketAddr::V4(v4) => {
                let name = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is larger than any family's structure and as aligned.
                unsafe { place.cast::<libc::sockaddr_in>().write(name) };
            }
            SocketAddr::V6(v6) => {
                let name = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(name) };
            }
        }
        Self(storage)
    }
}

impl CAddress {
    /// For calls that take an address; they do not change it.
    pub(crate) fn as_ptr(&mut self) -> *mut sockaddr {
        (&raw mut self.0).cast()
    }
}

/// Reads an address that C has filled in; `None` for families other than IP.
///
/// # Safety
/// `address` points to a structure as long as its family says.
pub(crate) unsafe fn read(address: *const sockaddr) -> Option<SocketAddr> {
    // SAFETY: every address begins with its family (caller).
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in (caller).
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6 (caller).
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in [
            "10.9.9.1:0",
            "192.0.2.7:65535",
            "[2001:db8::1]:80",
            "[fe80::1%7]:5",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let mut name = CAddress::from(address);
            // SAFETY: the structure was written for its family just now.
            assert_eq!(unsafe { read(name.as_ptr()) }, Some(address), "{text}");
        }
    }

    #[test]
    fn other_families_are_no_addresses() {
        // SAFETY: a structure of numbers, for which zero is a value.
        let mut name = CAddress(unsafe { std::mem::zeroed() });
        // SAFETY: long enough for every family.
        assert_eq!(unsafe { read(name.as_ptr()) }, None);
    }
}
