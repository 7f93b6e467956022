//! Socket addresses of C.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{AF_INET, AF_INET6, socklen_t};

use crate::errno::{Errno, Outcome};
use crate::memory::{In, Len, Out};

const AF_INET_SDP: c_int = 27;
const AF_INET6_SDP: c_int = 28;

/// The number of the protocol, which is that of Solaris.
pub(crate) const IPPROTO_SDP: c_int = 257;

/// The family of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The family with this number, which may be that of OFED's kernel module.
    pub(crate) fn of(number: c_int) -> Outcome<Self> {
        match number {
            AF_INET | AF_INET_SDP => Ok(Self::V4),
            AF_INET6 | AF_INET6_SDP => Ok(Self::V6),
            _ => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }

    /// `AF_INET` or `AF_INET6`.
    pub(crate) fn number(self) -> c_int {
        match self {
            Self::V4 => AF_INET,
            Self::V6 => AF_INET6,
        }
    }

    /// The unspecified address with port 0.
    pub(crate) fn any(self) -> SocketAddr {
        match self {
            Self::V4 => (Ipv4Addr::UNSPECIFIED, 0).into(),
            Self::V6 => (Ipv6Addr::UNSPECIFIED, 0).into(),
        }
    }

    /// Reads the address of a call. An IPv4 address that is mapped to IPv6 is returned as IPv4.
    pub(crate) fn read(self, address: In, len: socklen_t) -> Outcome<SocketAddr> {
        let bytes = address.bytes(len as usize)?;
        let (family, rest) = bytes.split_first_chunk().ok_or(Errno(libc::EINVAL))?;
        if Self::of(u16::from_ne_bytes(*family).into())? != self {
            return Err(Errno(libc::EAFNOSUPPORT));
        }
        let read = || {
            let (port, rest) = rest.split_first_chunk()?;
            let port = u16::from_be_bytes(*port);
            if self == Self::V4 {
                // The structure ends with 8 bytes of padding.
                let (ip, _) = rest.split_first_chunk::<12>()?;
                let (ip, _) = ip.split_first_chunk::<4>()?;
                return Some(SocketAddr::from((*ip, port)));
            }
            let (_flow, rest) = rest.split_first_chunk::<4>()?;
            let (ip, rest) = rest.split_first_chunk::<16>()?;
            let ip = Ipv6Addr::from(*ip);
            let scope = u32::from_ne_bytes(*rest.first_chunk()?);
            let mapped = ip.to_ipv4_mapped().map(|ip| (ip, port).into());
            Some(mapped.unwrap_or_else(|| SocketAddrV6::new(ip, port, 0, scope).into()))
        };
        read().ok_or(Errno(libc::EINVAL))
    }

    /// Writes an address as `getsockname` does.
    pub(crate) fn write(self, address: SocketAddr, to: Out, len: Len) -> Outcome {
        let mut bytes = (self.number() as libc::sa_family_t).to_ne_bytes().to_vec();
        bytes.extend(address.port().to_be_bytes());
        match (self, address) {
            (Self::V4, SocketAddr::V4(address)) => {
                bytes.extend(address.ip().octets());
                bytes.extend([0; 8]);
            }
            (Self::V4, SocketAddr::V6(_)) => return Err(Errno(libc::EAFNOSUPPORT)),
            (Self::V6, _) => {
                let (ip, scope) = match address {
                    SocketAddr::V4(address) => (address.ip().to_ipv6_mapped(), 0),
                    SocketAddr::V6(address) => (*address.ip(), address.scope_id()),
                };
                bytes.extend([0; 4]);
                bytes.extend(ip.octets());
                bytes.extend(scope.to_ne_bytes());
            }
        }
        to.write(&bytes, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::of_test;

    #[test]
    fn an_address_is_read_as_it_was_written_and_not_if_it_is_short() {
        for (family, address, size) in [
            (Family::V4, "192.0.2.1:80", size_of::<libc::sockaddr_in>()),
            (
                Family::V6,
                "[2001:db8::1]:80",
                size_of::<libc::sockaddr_in6>(),
            ),
            // Written as a mapped address.
            (Family::V6, "192.0.2.1:80", size_of::<libc::sockaddr_in6>()),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            let (mut bytes, mut len) = ([0_u8; 28], 28);
            let (from, to, room) = of_test(&mut bytes, &mut len);
            family.write(address, to, room).unwrap();
            assert_eq!(len as usize, size);
            assert_eq!(family.read(from, len), Ok(address));
            for short in 0..len {
                assert_eq!(
                    family.read(from, short),
                    Err(Errno(libc::EINVAL)),
                    "{short}"
                );
            }
            let other = if family == Family::V4 {
                Family::V6
            } else {
                Family::V4
            };
            assert_eq!(other.read(from, len), Err(Errno(libc::EAFNOSUPPORT)));
        }
    }
}
