//! Conversion between Rust's and C's socket addresses.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::{DatIaAddressPtr, DatSockAddr, DatSockAddr6};

/// `AF_INET` of Linux.
const AF_INET: u16 = 2;
/// `AF_INET6` of Linux.
const AF_INET6: u16 = 10;

/// A `struct sockaddr_in` or `struct sockaddr_in6`, filled with zeros up to [`CSocketAddr::LEN`]:
/// the target of a `DAT_IA_ADDRESS_PTR`.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CSocketAddr([u8; Self::LEN]);

impl CSocketAddr {
    /// Length of a `struct sockaddr_in6` in bytes, rounded up to a multiple of 8.
    pub const LEN: usize = size_of::<DatSockAddr6>().next_multiple_of(8);

    /// Returns a pointer for C. DAT's calls take addresses by pointers to mutable data, but only
    /// read them.
    pub fn as_ptr(&mut self) -> DatIaAddressPtr {
        core::ptr::from_mut(self).cast()
    }

    /// Returns all bytes, in C's layout.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl From<SocketAddr> for CSocketAddr {
    fn from(address: SocketAddr) -> Self {
        let mut bytes = [0; Self::LEN];
        bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        let family = match address {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                AF_INET
            }
            SocketAddr::V6(v6) => {
                // `flowinfo` is in host order in Rust, and in network order in C.
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                AF_INET6
            }
        };
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        Self(bytes)
    }
}

impl fmt::Debug for CSocketAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: the array is long enough for either family.
        match unsafe { read_socket_addr(self.0.as_ptr().cast()) } {
            Ok(address) => write!(f, "CSocketAddr({address})"),
            Err(OtherFamily(family)) => write!(f, "CSocketAddr(family {family})"),
        }
    }
}

/// The address family of an address that is not an IP address; 0 is `AF_UNSPEC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherFamily(pub u16);

/// Reads an address that C wrote.
///
/// # Errors
/// The family of an address that is not an IP address; then only its family was read.
///
/// # Safety
/// `address` points to as many bytes as the family at its start requires, and no thread writes the
/// bytes during the call. The bytes need not be aligned.
pub unsafe fn read_socket_addr(address: *const DatSockAddr) -> Result<SocketAddr, OtherFamily> {
    // SAFETY: every address begins with its family; the caller guarantees that it is readable.
    match unsafe { address.cast::<u16>().read_unaligned() } {
        AF_INET => {
            // SAFETY: the caller guarantees as many bytes as this family requires.
            let raw = unsafe { address.read_unaligned() };
            let [high, low, a, b, c, d, ..] = raw.sa_data;
            let ip = IpAddr::V4(Ipv4Addr::new(a, b, c, d));
            Ok(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
        }
        AF_INET6 => {
            // SAFETY: the caller guarantees as many bytes as this family requires.
            let raw = unsafe { address.cast::<DatSockAddr6>().read_unaligned() };
            let ip = Ipv6Addr::from(raw.sin6_addr);
            let port = u16::from_be(raw.sin6_port);
            let flowinfo = u32::from_be(raw.sin6_flowinfo);
            Ok(SocketAddrV6::new(ip, port, flowinfo, raw.sin6_scope_id).into())
        }
        family => Err(OtherFamily(family)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    extern crate std;
    use std::format;

    #[test]
    fn addresses_are_unchanged_by_a_round_trip_through_c() {
        for text in [
            "192.0.2.7:4711",
            "0.0.0.0:0",
            "[2001:db8::1]:80",
            "[fe80::1%7]:65535",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = CSocketAddr::from(address);
            // SAFETY: the structure was just written for its family.
            assert_eq!(unsafe { read_socket_addr(raw.as_ptr()) }, Ok(address));
            assert_eq!(format!("{raw:?}"), format!("CSocketAddr({text})"));
        }
    }

    #[test]
    fn bytes_are_those_of_c() {
        let v4 = CSocketAddr::from(SocketAddr::from(([192, 0, 2, 7], 0x1234)));
        assert_eq!(v4.bytes()[2..8], [0x12, 0x34, 192, 0, 2, 7]);
        assert_eq!(v4.bytes()[8..], [0; 24]);
        let address = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0x1234, 0x0a0b_0c0d, 7);
        let mut v6 = CSocketAddr::from(SocketAddr::V6(address));
        // SAFETY: the structure was just written for this family.
        let raw = unsafe { *v6.as_ptr().cast::<DatSockAddr6>() };
        // SAFETY: the structure was written for this family.
        assert_eq!(unsafe { read_socket_addr(v6.as_ptr()) }, Ok(address.into()));
        assert_eq!(raw.sin6_port, 0x1234_u16.to_be());
        assert_eq!(raw.sin6_flowinfo.to_ne_bytes(), [0x0a, 0x0b, 0x0c, 0x0d]);
        assert_eq!(raw.sin6_scope_id, 7);
        assert_eq!(raw.sin6_addr, Ipv6Addr::LOCALHOST.octets());
    }

    #[test]
    fn addresses_may_have_any_alignment() {
        let address: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        let mut bytes = [0; CSocketAddr::LEN + 1];
        bytes[1..].copy_from_slice(CSocketAddr::from(address).bytes());
        // SAFETY: the array is long enough for either family.
        let read = unsafe { read_socket_addr(bytes[1..].as_ptr().cast()) };
        assert_eq!(read, Ok(address));
    }

    #[test]
    fn of_other_families_only_the_family_is_read() {
        for family in [0_u16, 1, u16::MAX] {
            // SAFETY: the family is readable; for other families nothing else is read.
            let read = unsafe { read_socket_addr((&raw const family).cast()) };
            assert_eq!(read, Err(OtherFamily(family)));
        }
    }
}
