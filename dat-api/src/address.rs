//! Socket addresses on their way in and out of DAT, and durations as DAT timeouts.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use dat_abi::{DAT_TIMEOUT_INFINITE, DatIaAddressPtr, DatTimeout};

/// A `sockaddr` of either family with room for both, to be passed to C for the length of a call.
#[repr(C)]
pub(crate) union RawAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl RawAddress {
    pub(crate) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(v4) => Self {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from_ne_bytes(v4.ip().octets()),
                    },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(v6) => Self {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: v6.ip().octets(),
                    },
                    sin6_scope_id: v6.scope_id(),
                },
            },
        }
    }

    pub(crate) fn as_ptr(&mut self) -> DatIaAddressPtr {
        std::ptr::from_mut(self).cast()
    }
}

/// Reads an address that a library handed out; `None` for null and for unknown families.
///
/// # Safety
///
/// `address` is null or points at a `sockaddr` that is as long as its family says and is not
/// written during the call.
pub(crate) unsafe fn read_address(address: DatIaAddressPtr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every sockaddr begins with its family; the caller vouches for the pointer.
    let family = c_int::from(unsafe { (*address).sa_family });
    match family {
        libc::AF_INET => {
            // SAFETY: the family says that a sockaddr_in is there; it may be less aligned than
            // ours.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: as above, for a sockaddr_in6.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddr::V6(SocketAddrV6::new(
                ip,
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            )))
        }
        _ => None,
    }
}

/// A DAT timeout: microseconds rounded up, `None` for ever; a finite time never becomes "for ever".
pub(crate) fn timeout_us(timeout: Option<Duration>) -> DatTimeout {
    match timeout {
        None => DAT_TIMEOUT_INFINITE,
        Some(timeout) => {
            let us = timeout.as_nanos().div_ceil(1000);
            DatTimeout::try_from(us)
                .unwrap_or(DatTimeout::MAX)
                .min(DAT_TIMEOUT_INFINITE - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_survive_the_trip_through_c() {
        for text in [
            "192.0.2.7:4711",
            "[2001:db8::1]:80",
            "[fe80::1%3]:80",
            "0.0.0.0:0",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = RawAddress::new(address);
            // SAFETY: `raw` is a complete socket address of its family.
            assert_eq!(unsafe { read_address(raw.as_ptr()) }, Some(address));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read_address(std::ptr::null_mut()) }, None);
    }

    #[test]
    fn timeouts_round_up_and_stay_finite() {
        assert_eq!(timeout_us(None), DAT_TIMEOUT_INFINITE);
        assert_eq!(timeout_us(Some(Duration::ZERO)), 0);
        assert_eq!(timeout_us(Some(Duration::from_nanos(1))), 1);
        assert_eq!(timeout_us(Some(Duration::from_micros(25))), 25);
        assert_eq!(
            timeout_us(Some(Duration::from_secs(1 << 40))),
            DAT_TIMEOUT_INFINITE - 1
        );
    }
}
