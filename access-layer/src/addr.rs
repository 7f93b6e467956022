//! Conversion of addresses and connection qualifiers between C, Rust and TCP ports.

use dat_abi::{
    CSocketAddr, DAT_INVALID_ADDRESS_MALFORMED, DAT_INVALID_ADDRESS_UNSUPPORTED, DatReturnSubtype,
    DatSockAddr, OtherFamily, read_socket_addr,
};
use std::ffi::c_void;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

/// First TCP port of the range for connection qualifiers that are too large to be a port.
const FOLDED_PORT_BASE: u64 = 33534;
/// Number of ports in that range.
const FOLDED_PORT_COUNT: u64 = 32001;

/// Returns the TCP port of a connection qualifier: the qualifier itself if it is a port, else a
/// port of the range. The mapping is that of OFA's provider over the RDMA connection manager, so
/// that both providers use the same port.
pub(crate) fn port_of(conn_qual: u64) -> u16 {
    let port = if conn_qual <= u64::from(u16::MAX) {
        conn_qual
    } else {
        conn_qual % FOLDED_PORT_COUNT + FOLDED_PORT_BASE
    };
    u16::try_from(port).unwrap_or(u16::MAX)
}

/// Length of an address for C, in words.
const WORDS: usize = CSocketAddr::LEN / size_of::<u64>();

/// A socket address that may change while a consumer reads it; `dat_ep_query` returns a pointer to
/// it.
///
/// A consumer that reads during a change may receive parts of both addresses, but never an invalid
/// pointer.
#[derive(Debug)]
pub(crate) struct SharedAddress([AtomicU64; WORDS]);

impl SharedAddress {
    /// Creates a value without an address: family `AF_INET`, port and address 0. There is always a
    /// family, because consumers print the address without checking it.
    pub(crate) fn new() -> Self {
        Self(encode(NO_ADDRESS).map(AtomicU64::new))
    }

    /// Replaces the address.
    pub(crate) fn set(&self, address: SocketAddr) {
        for (word, value) in self.0.iter().zip(encode(address)) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Removes the address.
    pub(crate) fn clear(&self) {
        self.set(NO_ADDRESS);
    }

    /// Returns a pointer for C, valid as long as `self` exists and is not moved.
    pub(crate) fn as_dat(&self) -> *mut DatSockAddr {
        std::ptr::from_ref(self).cast_mut().cast::<c_void>().cast()
    }
}

const NO_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn encode(address: SocketAddr) -> [u64; WORDS] {
    let raw = CSocketAddr::from(address);
    let (words, _) = raw.bytes().as_chunks();
    std::array::from_fn(|i| u64::from_ne_bytes(words[i]))
}

/// Reads a consumer's socket address. The error is a subtype of `DAT_INVALID_ADDRESS`.
///
/// # Safety
///
/// `address` is not null and points at as many bytes as the address family at its start requires.
pub(crate) unsafe fn read(address: *const DatSockAddr) -> Result<SocketAddr, DatReturnSubtype> {
    // SAFETY: guaranteed by the caller.
    unsafe { read_socket_addr(address) }.map_err(|OtherFamily(family)| match family {
        0 => DAT_INVALID_ADDRESS_MALFORMED,
        _ => DAT_INVALID_ADDRESS_UNSUPPORTED,
    })
}

/// Returns `address` with another port.
pub(crate) fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) => SocketAddr::new(IpAddr::V4(*v4.ip()), port),
        SocketAddr::V6(mut v6) => {
            v6.set_port(port);
            SocketAddr::V6(v6)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_qualifiers_are_ports_and_large_ones_are_folded() {
        assert_eq!(port_of(45248), 45248);
        assert_eq!(port_of(0xFFFF), 0xFFFF);
        assert_eq!(port_of(0x1_0000), (0x1_0000 % 32001 + 33534) as u16);
        assert_eq!(
            port_of(0x0AFF_AB1E),
            (0x0AFF_AB1E_u64 % 32001 + 33534) as u16
        );
        // The largest folded port is still below 65536.
        assert_eq!(port_of(32000 + 3 * 32001), 65534);
    }

    #[test]
    fn addresses_are_unchanged_by_conversion_to_c_and_back() {
        for text in ["127.0.0.1:7", "[fe80::1%3]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let shared = SharedAddress::new();
            shared.set(address);
            // SAFETY: the memory is large enough for an address of either family.
            assert_eq!(unsafe { read(shared.as_dat()) }, Ok(address));
            shared.clear();
            // SAFETY: the memory is large enough for an address of either family.
            assert_eq!(unsafe { read(shared.as_dat()) }, Ok(NO_ADDRESS));
        }
    }

    #[test]
    fn other_families_are_refused_with_their_own_subtypes() {
        for (family, subtype) in [
            (0, DAT_INVALID_ADDRESS_MALFORMED),
            (1, DAT_INVALID_ADDRESS_UNSUPPORTED),
        ] {
            let c = DatSockAddr {
                sa_family: family,
                sa_data: [0; 14],
            };
            // SAFETY: only the family is read if it is unknown.
            assert_eq!(unsafe { read(&raw const c) }, Err(subtype));
        }
    }
}
