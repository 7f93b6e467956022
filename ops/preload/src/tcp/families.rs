//! The address families of OFED's kernel module for SDP, which programs may name.
//!
//! Such a program gets a TCP socket, to which the rules apply as to any other. Linux has meanwhile
//! given the numbers to families without stream sockets, so no other program uses them here.

use std::ffi::c_int;

use libc::{
    AF_INET, AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, sockaddr, sockaddr_storage,
    socklen_t,
};

const AF_INET_SDP: c_int = 27;
const AF_INET6_SDP: c_int = 28;

/// The family of TCP that replaces a family of SDP.
fn of_tcp(family: c_int) -> Option<c_int> {
    match family {
        AF_INET_SDP => Some(AF_INET),
        AF_INET6_SDP => Some(AF_INET6),
        _ => None,
    }
}

/// Returns the family with which the kernel is to make a socket.
pub(crate) fn of_socket(family: c_int, kind: c_int) -> c_int {
    let is_stream = kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) == SOCK_STREAM;
    of_tcp(family).filter(|_| is_stream).unwrap_or(family)
}

/// Returns a copy of an address with the family of TCP; `None` unless its family is one of SDP.
///
/// # Safety
/// `address` is null or has `len` bytes.
pub(crate) unsafe fn with_family_of_tcp(
    address: *const sockaddr,
    len: socklen_t,
) -> Option<sockaddr_storage> {
    let len = len as usize;
    if address.is_null() || !(size_of::<sockaddr>()..=size_of::<sockaddr_storage>()).contains(&len)
    {
        return None;
    }
    // SAFETY: the address is at least as long as a `sockaddr` (check above, caller), which may be
    // misaligned.
    let family = unsafe { address.read_unaligned() }.sa_family;
    let family = of_tcp(family.into())?;
    // SAFETY: the structure consists of numbers, for which zero is a value.
    let mut copy: sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: the caller's `len` bytes are not more than those of the copy (check above).
    unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), (&raw mut copy).cast(), len) };
    copy.ss_family = family as libc::sa_family_t;
    Some(copy)
}

#[cfg(test)]
mod tests {
    use libc::{AF_UNIX, SOCK_DGRAM};

    use super::*;

    #[test]
    fn only_streams_of_sdp_get_the_family_of_tcp() {
        for (family, kind, expected) in [
            (AF_INET_SDP, SOCK_STREAM, AF_INET),
            (AF_INET_SDP, SOCK_STREAM | SOCK_CLOEXEC, AF_INET),
            (AF_INET6_SDP, SOCK_STREAM | SOCK_NONBLOCK, AF_INET6),
            (AF_INET_SDP, SOCK_DGRAM, AF_INET_SDP),
            (AF_INET, SOCK_STREAM, AF_INET),
            (AF_UNIX, SOCK_STREAM, AF_UNIX),
        ] {
            assert_eq!(of_socket(family, kind), expected, "{family} {kind}");
        }
    }

    #[test]
    fn only_addresses_of_sdp_are_copied() {
        let mut address = [7_u8; 28];
        for (family, len, expected) in [
            (AF_INET_SDP, 16, Some(AF_INET)),
            (AF_INET6_SDP, 28, Some(AF_INET6)),
            (AF_INET_SDP, 15, None),
            (AF_INET_SDP, 0, None),
            (AF_INET, 16, None),
        ] {
            address[..2].copy_from_slice(&(family as u16).to_ne_bytes());
            // SAFETY: the array has at least `len` bytes.
            let copy = unsafe { with_family_of_tcp(address.as_ptr().cast(), len) };
            let copied = copy.map(|copy| c_int::from(copy.ss_family));
            assert_eq!(copied, expected, "{family} {len}");
        }
        // SAFETY: null is permitted.
        assert!(unsafe { with_family_of_tcp(std::ptr::null(), 16) }.is_none());
    }
}
