//! Address families and the protocol number by which a program names a stack.
//!
//! | `socket` | Stack |
//! |---|---|
//! | `AF_INET_SDP`, `AF_INET6_SDP`, `IPPROTO_SDP` | SDP |
//! | `AF_INET_OFFLOAD`, `AF_INET6_OFFLOAD` | any offload protocol |
//! | `AF_INET_DIRECT`, `AF_INET6_DIRECT` | the kernel's |
//!
//! The socket of such a program is a TCP socket, which is marked with the [`Wish`]. Linux has
//! meanwhile given the numbers of OFED's families for SDP to families without stream sockets, and
//! the other families are above those of Linux, so no other program uses them here. `ops_socket.h`
//! has the numbers.

use std::ffi::c_int;

use libc::{
    AF_INET, AF_INET6, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, sockaddr,
    sockaddr_storage, socklen_t,
};
use ops::Wish;

use crate::fd::SDP;

const AF_INET_SDP: c_int = 27;
const AF_INET6_SDP: c_int = 28;
const AF_INET_OFFLOAD: c_int = 220;
const AF_INET6_OFFLOAD: c_int = 221;
const AF_INET_DIRECT: c_int = 222;
const AF_INET6_DIRECT: c_int = 223;

/// From Solaris, which calls it `PROTO_SDP`.
const IPPROTO_SDP: c_int = 257;

/// The arguments of a `socket`, as the kernel is to see them, and the stack that they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) family: c_int,
    pub(crate) protocol: c_int,
    pub(crate) wish: Wish,
}

/// The family of TCP that replaces a family of this module, and the stack that the latter names.
fn of_tcp(family: c_int) -> Option<(c_int, Wish)> {
    Some(match family {
        AF_INET_SDP => (AF_INET, Wish::Protocol(SDP)),
        AF_INET6_SDP => (AF_INET6, Wish::Protocol(SDP)),
        AF_INET_OFFLOAD => (AF_INET, Wish::Offload),
        AF_INET6_OFFLOAD => (AF_INET6, Wish::Offload),
        AF_INET_DIRECT => (AF_INET, Wish::Kernel),
        AF_INET6_DIRECT => (AF_INET6, Wish::Kernel),
        _ => return None,
    })
}

/// Translates the arguments of a `socket`.
pub(crate) fn of_socket(family: c_int, kind: c_int, protocol: c_int) -> Made {
    let made = Made {
        family,
        protocol,
        wish: Wish::None,
    };
    let is_stream = kind & !(SOCK_NONBLOCK | SOCK_CLOEXEC) == SOCK_STREAM;
    let named = of_tcp(family).or(match family {
        AF_INET | AF_INET6 => Some((family, Wish::None)),
        _ => None,
    });
    match named.filter(|_| is_stream) {
        // SDP is no protocol of the kernel's stack, so the kernel refuses the number.
        Some((_, Wish::Kernel)) if protocol == IPPROTO_SDP => made,
        Some((family, _)) if protocol == IPPROTO_SDP => Made {
            family,
            protocol: IPPROTO_TCP,
            wish: Wish::Protocol(SDP),
        },
        Some((family, wish)) => Made {
            family,
            wish,
            ..made
        },
        None => made,
    }
}

/// Returns a copy of an address with the family of TCP; `None` unless its family is one of this
/// module.
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
    let (family, _) = of_tcp(family.into())?;
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
    fn only_streams_of_named_stacks_get_the_family_of_tcp() {
        let sdp = Wish::Protocol(SDP);
        for ((family, kind, protocol), (of_kernel, tcp, wish)) in [
            ((AF_INET_SDP, SOCK_STREAM, 0), (AF_INET, 0, sdp)),
            (
                (AF_INET_SDP, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP),
                (AF_INET, IPPROTO_TCP, sdp),
            ),
            (
                (AF_INET6_SDP, SOCK_STREAM | SOCK_NONBLOCK, IPPROTO_SDP),
                (AF_INET6, IPPROTO_TCP, sdp),
            ),
            ((AF_INET_SDP, SOCK_DGRAM, 0), (AF_INET_SDP, 0, Wish::None)),
            (
                (AF_INET, SOCK_STREAM, IPPROTO_SDP),
                (AF_INET, IPPROTO_TCP, sdp),
            ),
            (
                (AF_INET6, SOCK_STREAM, IPPROTO_SDP),
                (AF_INET6, IPPROTO_TCP, sdp),
            ),
            (
                (AF_INET, SOCK_DGRAM, IPPROTO_SDP),
                (AF_INET, IPPROTO_SDP, Wish::None),
            ),
            (
                (AF_INET_OFFLOAD, SOCK_STREAM, 0),
                (AF_INET, 0, Wish::Offload),
            ),
            (
                (AF_INET6_OFFLOAD, SOCK_STREAM, IPPROTO_SDP),
                (AF_INET6, IPPROTO_TCP, sdp),
            ),
            ((AF_INET_DIRECT, SOCK_STREAM, 0), (AF_INET, 0, Wish::Kernel)),
            (
                (AF_INET6_DIRECT, SOCK_STREAM, IPPROTO_TCP),
                (AF_INET6, IPPROTO_TCP, Wish::Kernel),
            ),
            (
                (AF_INET_DIRECT, SOCK_STREAM, IPPROTO_SDP),
                (AF_INET_DIRECT, IPPROTO_SDP, Wish::None),
            ),
            ((AF_INET, SOCK_STREAM, 0), (AF_INET, 0, Wish::None)),
            ((AF_UNIX, SOCK_STREAM, 0), (AF_UNIX, 0, Wish::None)),
        ] {
            let expected = Made {
                family: of_kernel,
                protocol: tcp,
                wish,
            };
            assert_eq!(
                of_socket(family, kind, protocol),
                expected,
                "{family} {kind} {protocol}"
            );
        }
    }

    #[test]
    fn only_addresses_of_named_stacks_are_copied() {
        let mut address = [7_u8; 28];
        for (family, len, expected) in [
            (AF_INET_SDP, 16, Some(AF_INET)),
            (AF_INET6_OFFLOAD, 28, Some(AF_INET6)),
            (AF_INET_DIRECT, 16, Some(AF_INET)),
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
