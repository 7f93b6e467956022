//! The addresses of a socket, in the form of the program's address family.

use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{
    AF_INET, AF_INET6, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, TCP_INFO, sockaddr,
    sockaddr_in, sockaddr_in6, socklen_t,
};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use crate::fd;
use crate::process::real;

/// The family that the program passed to `socket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`; IPv4 peers appear with mapped addresses.
    V6,
}

impl Family {
    /// The number of `SO_DOMAIN`.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::V4 => libc::AF_INET,
            Self::V6 => libc::AF_INET6,
        }
    }

    pub(crate) fn shown(self, address: SocketAddr) -> SocketAddr {
        match (self, address.ip()) {
            (Self::V6, IpAddr::V4(ip)) => {
                let mapped: Ipv6Addr = ip.to_ipv6_mapped();
                SocketAddrV6::new(mapped, address.port(), 0, 0).into()
            }
            _ => address,
        }
    }
}

/// Returns family and address of a kernel TCP socket; `None` for everything else.
pub(crate) fn local_of(socket: BorrowedFd<'_>) -> Option<(Family, SocketAddr)> {
    let is_tcp = sockopt::socket_protocol(socket).ok()? == Some(ipproto::TCP)
        && sockopt::socket_type(socket).ok()? == SocketType::STREAM;
    is_tcp.then(|| named(socket)).flatten()
}

/// Returns family and address of a kernel TCP socket that is neither connected nor connecting nor
/// listening; `None` for everything else. MPTCP sockets have the same states, so the caller checks
/// the protocol.
pub(crate) fn of_unconnected(socket: BorrowedFd<'_>) -> Option<(Family, SocketAddr)> {
    // Only a socket in state `TCP_CLOSE` has no port.
    named(socket).filter(|(_, address)| address.port() == 0 || is_closed(socket))
}

/// Returns true for the arguments of a `socket` that makes a TCP socket.
pub(crate) fn is_kind_of_tcp(family: c_int, kind: c_int, protocol: c_int) -> bool {
    matches!(family, AF_INET | AF_INET6)
        && kind & !(SOCK_CLOEXEC | SOCK_NONBLOCK) == SOCK_STREAM
        && matches!(protocol, 0 | IPPROTO_TCP)
}

/// Returns true for a TCP socket. Asks the kernel about a descriptor that is not recorded.
pub(crate) fn is_tcp(socket: BorrowedFd<'_>) -> bool {
    fd::is_made_as_tcp(socket.as_raw_fd())
        || sockopt::socket_protocol(socket) == Ok(Some(ipproto::TCP))
}

/// Returns true in state `TCP_CLOSE`, in which a socket neither listens nor has a peer.
fn is_closed(tcp: BorrowedFd<'_>) -> bool {
    const TCP_CLOSE: u8 = 7;
    let mut state = 0_u8;
    let mut len = size_of_val(&state) as socklen_t;
    let (fd, value) = (tcp.as_raw_fd(), (&raw mut state).cast());
    // SAFETY: the buffer has room for the one byte that is requested, the first of `struct
    // tcp_info`.
    let result = unsafe { real::getsockopt(fd, IPPROTO_TCP, TCP_INFO, value, &raw mut len) };
    result == 0 && state == TCP_CLOSE
}

/// Returns family and address of a socket that is known to be a TCP socket.
pub(crate) fn named(tcp: BorrowedFd<'_>) -> Option<(Family, SocketAddr)> {
    let name = SocketAddr::try_from(rustix::net::getsockname(tcp).ok()?).ok()?;
    let family = match name {
        SocketAddr::V4(_) => Family::V4,
        SocketAddr::V6(_) => Family::V6,
    };
    Some((family, name))
}

/// Returns the local address from which the kernel reaches a peer.
pub(crate) fn source_toward(remote: SocketAddr) -> Option<IpAddr> {
    let (domain, any): (_, IpAddr) = match remote {
        SocketAddr::V4(_) => (AddressFamily::INET, Ipv4Addr::UNSPECIFIED.into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, Ipv6Addr::UNSPECIFIED.into()),
    };
    let flags = SocketFlags::CLOEXEC;
    let probe = socket_with(domain, SocketType::DGRAM, flags, Some(ipproto::UDP)).ok()?;
    rustix::net::connect(&probe, &remote).ok()?;
    let name = rustix::net::getsockname(&probe).ok()?;
    let ip = SocketAddr::try_from(name).ok()?.ip();
    (ip != any).then_some(ip)
}

/// Copies an address out as the C calls do: truncated to the caller's room, with its full length.
///
/// # Safety
/// `to` and `len` are null or what the C call demands.
pub(crate) unsafe fn write_address(
    address: SocketAddr,
    family: Family,
    to: *mut sockaddr,
    len: *mut socklen_t,
) -> Result<(), Errno> {
    if len.is_null() {
        return Err(Errno::FAULT);
    }
    // SAFETY: `len` is not null, and the caller guarantees that it is valid then.
    let room = unsafe { *len };
    let Ok(room) = usize::try_from(i64::from(room.cast_signed())) else {
        return Err(Errno::INVAL);
    };
    let (bytes, whole) = raw(family.shown(address));
    if !to.is_null() {
        // SAFETY: the caller guarantees room for `room` bytes, and `bytes` holds `whole` bytes.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast::<u8>(), whole.min(room));
        }
    } else if room > 0 {
        return Err(Errno::FAULT);
    }
    // SAFETY: the caller guarantees `len`, as above. No address is longer than 28 bytes.
    unsafe { *len = whole as socklen_t };
    Ok(())
}

/// Reads the address that a program passed; `None` if it is too short or of another family.
///
/// # Safety
/// `from` is null or points to `len` bytes.
pub(crate) unsafe fn read_address(from: *const sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if from.is_null() || len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: `from` has at least the family; the read permits any alignment.
    let family = unsafe { ptr::read_unaligned(from.cast::<libc::sa_family_t>()) };
    match i32::from(family) {
        libc::AF_INET if len >= size_of::<sockaddr_in>() => {
            // SAFETY: `from` has at least this many bytes.
            let raw = unsafe { ptr::read_unaligned(from.cast::<sockaddr_in>()) };
            let ip = IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip, u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 if len >= size_of::<sockaddr_in6>() => {
            // SAFETY: `from` has at least this many bytes.
            let raw = unsafe { ptr::read_unaligned(from.cast::<sockaddr_in6>()) };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Returns true for an address of no family, with which `connect` ends a connection.
///
/// # Safety
/// `address` is null or points to `len` bytes.
pub(crate) unsafe fn is_unspecified(address: *const sockaddr, len: socklen_t) -> bool {
    !address.is_null()
        && len as usize >= size_of::<libc::sa_family_t>()
        // SAFETY: the address has at least the family; the read permits any alignment.
        && unsafe { ptr::read_unaligned(address.cast::<libc::sa_family_t>()) }
            == libc::AF_UNSPEC as libc::sa_family_t
}

pub(crate) fn raw(address: SocketAddr) -> ([u8; size_of::<sockaddr_in6>()], usize) {
    let mut bytes = [0; size_of::<sockaddr_in6>()];
    let len = match address {
        SocketAddr::V4(v4) => {
            let raw = sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(v4.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            put(&raw, &mut bytes)
        }
        SocketAddr::V6(v6) => {
            let raw = sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            put(&raw, &mut bytes)
        }
    };
    (bytes, len)
}

fn put<T>(raw: &T, bytes: &mut [u8; size_of::<sockaddr_in6>()]) -> usize {
    let len = size_of::<T>();
    assert!(len <= bytes.len(), "both kinds of address fit");
    // SAFETY: both structures are plain integers without padding, and the length was checked.
    unsafe {
        ptr::copy_nonoverlapping(
            ptr::from_ref(raw).cast::<c_void>(),
            bytes.as_mut_ptr().cast(),
            len,
        );
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stream_sockets_of_tcp_are_of_its_kind() {
        let datagram = libc::SOCK_DGRAM;
        for (family, kind, protocol, is_tcp) in [
            (AF_INET, SOCK_STREAM, 0, true),
            (AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP, true),
            (AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0, true),
            (AF_INET, datagram, 0, false),
            (AF_INET, libc::SOCK_SEQPACKET, 0, false),
            (AF_INET, SOCK_STREAM, libc::IPPROTO_MPTCP, false),
            (AF_INET, SOCK_STREAM, libc::IPPROTO_SCTP, false),
            (libc::AF_UNIX, SOCK_STREAM, 0, false),
        ] {
            let is_found = is_kind_of_tcp(family, kind, protocol);
            assert_eq!(is_found, is_tcp, "{family} {kind} {protocol}");
        }
        for kind in [SocketType::STREAM, SocketType::DGRAM] {
            let made = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None).unwrap();
            // The kernel is asked, because no hook has recorded the number.
            fd::on_closed(made.as_raw_fd());
            let made = std::os::fd::AsFd::as_fd(&made);
            assert_eq!(is_tcp(made), kind == SocketType::STREAM);
        }
    }
}
