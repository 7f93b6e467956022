//! Addresses, and the devices that lead to them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::sync::Mutex;

use host::locks::lock;
use rnic::net_device::{holder_of, interfaces};
use rustix::io::Errno;
use verbs_dl::types::{ibv_context, ibv_pd, rdma_addr, rdma_cm_id, sockaddr};

use crate::context;
use crate::device;
use crate::domains;
use crate::fault::Fault;

/// The contexts that the library has opened, by device. They remain open, as programs expect.
static CONTEXTS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Returns the contexts of all devices, or of those whose network device is `interface`.
pub(super) fn contexts(interface: Option<&str>) -> Result<Vec<*mut ibv_context>, Fault> {
    let mut found = Vec::new();
    for device in device::structures()? {
        // SAFETY: structures of devices are never freed.
        let is_wanted =
            interface.is_none_or(|name| unsafe { device::of(device) }.interface == name);
        if is_wanted {
            found.push(context_of(device)?);
        }
    }
    Ok(found)
}

/// The domains of the contexts, for identifiers whose program names none. They are never freed.
static DOMAINS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Returns the domain of a context of this module; null if there is no memory for it.
pub(super) fn domain_of(context: *mut ibv_context) -> *mut ibv_pd {
    let mut domains = lock(&DOMAINS);
    let key = context.expose_provenance();
    if let Some(domain) = domains.get(&key) {
        return std::ptr::with_exposed_provenance_mut(*domain);
    }
    let Ok(domain) = domains::create_pd(context) else {
        return std::ptr::null_mut();
    };
    domains.insert(key, domain.expose_provenance());
    domain
}

fn context_of(device: *mut verbs_dl::types::ibv_device) -> Result<*mut ibv_context, Fault> {
    let mut contexts = lock(&CONTEXTS);
    let key = device.expose_provenance();
    if let Some(context) = contexts.get(&key) {
        return Ok(std::ptr::with_exposed_provenance_mut(*context));
    }
    let context = context::open(device)?;
    contexts.insert(key, context.expose_provenance());
    Ok(context)
}

/// Returns the network device that has a local address.
pub(super) fn holder(address: IpAddr) -> Result<String, Fault> {
    let interfaces = interfaces().map_err(|_| Errno::NODEV)?;
    let holder = holder_of(&interfaces, address.to_canonical());
    holder.map(str::to_owned).ok_or(Errno::ADDRNOTAVAIL)
}

/// Returns the local address from which the kernel would send to `remote`. Sends nothing.
pub(super) fn source_of(remote: SocketAddr) -> Result<SocketAddr, Fault> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect(remote)?;
        socket.local_addr()
    });
    source
        .map(|source| SocketAddr::new(source.ip(), 0))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NETUNREACH))
}

/// Reads an address of the program; `None` for a null pointer.
///
/// # Safety
/// `address` is null or points to a whole address of its family.
pub(super) unsafe fn read(address: *const sockaddr) -> Result<Option<SocketAddr>, Fault> {
    // SAFETY: the caller guarantees null or an address.
    let Some(family) = (unsafe { address.as_ref() }).map(|address| i32::from(address.sa_family))
    else {
        return Ok(None);
    };
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family has this type (caller).
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(Some(
                SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into(),
            ))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(Some(
                SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into(),
            ))
        }
        _ => Err(Errno::AFNOSUPPORT),
    }
}

/// The local and the remote address of an identifier, at the start of `struct rdma_addr`.
#[repr(C)]
struct Addresses {
    local: libc::sockaddr_storage,
    remote: libc::sockaddr_storage,
}

const _: () = assert!(size_of::<Addresses>() == 256);

/// Stores the addresses of an identifier where the inline functions of the header read them.
pub(super) fn store(to: &mut rdma_addr, local: Option<SocketAddr>, remote: Option<SocketAddr>) {
    let to = std::ptr::from_mut(to).cast::<Addresses>();
    // SAFETY: the structure begins with the storage of both addresses.
    let to = unsafe { &mut *to };
    for (place, address) in [(&mut to.local, local), (&mut to.remote, remote)] {
        if let Some(address) = address {
            *place = storage(address);
        }
    }
}

/// Returns the local and the remote address of an identifier.
///
/// # Safety
/// `id` is a live identifier of this library.
pub(crate) unsafe fn addresses_of(
    id: *const rdma_cm_id,
) -> (Option<SocketAddr>, Option<SocketAddr>) {
    // SAFETY: the caller guarantees the identifier, whose route begins with the storage of both
    // addresses.
    unsafe {
        let addresses = (&raw const (*id).route.addr).cast::<Addresses>();
        let found = |address| read(address).ok().flatten();
        let local = found((&raw const (*addresses).local).cast());
        (local, found((&raw const (*addresses).remote).cast()))
    }
}

/// Returns an address in the form of C.
pub(crate) fn storage(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: the structure has only integers.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(v4) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from(*v4.ip()).to_be(),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is large enough for every family.
            unsafe { place.cast::<libc::sockaddr_in>().write(v4) };
        }
        SocketAddr::V6(v6) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: v6.ip().octets(),
                },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(v6) };
        }
    }
    storage
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for text in ["192.0.2.1:7174", "[2001:db8::1]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            let stored = storage(address);
            // SAFETY: the storage holds an address.
            let read = unsafe { read((&raw const stored).cast()) };
            assert_eq!(read, Ok(Some(address)));
        }
        // SAFETY: a null pointer is permitted.
        assert_eq!(unsafe { read(std::ptr::null()) }, Ok(None));
    }

    #[test]
    fn the_loopback_device_leads_to_its_own_address() {
        let source = source_of("127.0.0.1:9".parse().unwrap()).unwrap();
        assert_eq!(holder(source.ip()).as_deref(), Ok("lo"));
    }
}
