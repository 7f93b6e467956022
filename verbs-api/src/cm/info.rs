//! Names of events, and `rdma_getaddrinfo(3)`.

use std::ffi::{CStr, c_char, c_int};
use std::net::SocketAddr;

use rustix::io::Errno;
use verbs_dl::types::*;

use crate::fault::{self, Fault};

use super::route;

/// `struct rdma_addrinfo`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct AddrInfo {
    pub(super) flags: c_int,
    family: c_int,
    pub(super) qp_type: c_int,
    pub(super) port_space: c_int,
    src_len: libc::socklen_t,
    dst_len: libc::socklen_t,
    pub(super) src_addr: *mut sockaddr,
    pub(super) dst_addr: *mut sockaddr,
    src_canonname: *mut c_char,
    dst_canonname: *mut c_char,
    route_len: usize,
    route: *mut libc::c_void,
    connect_len: usize,
    connect: *mut libc::c_void,
    next: *mut AddrInfo,
}

const _: () = assert!(size_of::<AddrInfo>() == 96);

/// `RAI_PASSIVE` and `RAI_NUMERICHOST`.
pub(super) const PASSIVE: c_int = 1;
const NUMERIC_HOST: c_int = 2;

/// Resolves a name and a service to their first address.
fn resolve(
    node: *const c_char,
    service: *const c_char,
    flags: c_int,
    family: c_int,
) -> Result<SocketAddr, Fault> {
    // SAFETY: the structure has only integers and pointers.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    hints.ai_family = family;
    hints.ai_socktype = libc::SOCK_STREAM;
    if flags & PASSIVE != 0 {
        hints.ai_flags |= libc::AI_PASSIVE;
    }
    if flags & NUMERIC_HOST != 0 {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    let mut list = std::ptr::null_mut();
    // SAFETY: the program passes null or strings.
    let code = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut list) };
    if code != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: on success the list has an entry, whose address is whole.
    unsafe {
        let address = route::read((*list).ai_addr);
        libc::freeaddrinfo(list);
        address?.ok_or(Errno::INVAL)
    }
}

/// Returns a copy of an address that `rdma_freeaddrinfo` frees, and its length.
fn boxed(address: SocketAddr) -> (*mut sockaddr, libc::socklen_t) {
    let len = match address {
        SocketAddr::V4(_) => size_of::<libc::sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<libc::sockaddr_in6>(),
    };
    let storage = Box::into_raw(Box::new(route::storage(address)));
    (storage.cast(), len as libc::socklen_t)
}

fn info(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&AddrInfo>,
) -> Result<*mut AddrInfo, Fault> {
    let (flags, family) = hints.map_or((0, 0), |hints| (hints.flags, hints.family));
    // SAFETY: the program passes null or addresses of its structure.
    let hinted = |select: fn(&AddrInfo) -> *mut sockaddr| unsafe {
        hints.map_or(Ok(None), |hints| route::read(select(hints)))
    };
    let (src, dst) = match node.is_null() && service.is_null() {
        true if hints.is_none() => return Err(Errno::INVAL),
        true => (
            hinted(|hints| hints.src_addr)?,
            hinted(|hints| hints.dst_addr)?,
        ),
        false => {
            let address = Some(resolve(node, service, flags, family)?);
            match flags & PASSIVE {
                0 => (hinted(|hints| hints.src_addr)?, address),
                _ => (address, None),
            }
        }
    };
    let family = match dst.or(src) {
        Some(SocketAddr::V4(_)) => libc::AF_INET,
        Some(SocketAddr::V6(_)) => libc::AF_INET6,
        None => family,
    };
    let none = (std::ptr::null_mut(), 0);
    let [src, dst] = [src, dst].map(|address| address.map_or(none, boxed));
    let is_datagram = hints.is_some_and(|hints| {
        hints.port_space == RDMA_PS_UDP as c_int || hints.qp_type == IBV_QPT_UD as c_int
    });
    let (port_space, qp_type) = match is_datagram {
        true => (RDMA_PS_UDP, IBV_QPT_UD),
        false => (RDMA_PS_TCP, IBV_QPT_RC),
    };
    Ok(Box::into_raw(Box::new(AddrInfo {
        flags,
        family,
        qp_type: qp_type as c_int,
        port_space: port_space as c_int,
        src_len: src.1,
        dst_len: dst.1,
        src_addr: src.0,
        dst_addr: dst.0,
        src_canonname: std::ptr::null_mut(),
        dst_canonname: std::ptr::null_mut(),
        route_len: 0,
        route: std::ptr::null_mut(),
        connect_len: 0,
        connect: std::ptr::null_mut(),
        next: std::ptr::null_mut(),
    })))
}

/// `rdma_getaddrinfo(3)`: the first address of a name, or the address of a passive end; without
/// both, the addresses of the hints.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const AddrInfo,
    out: *mut *mut AddrInfo,
) -> c_int {
    // SAFETY: the program passes null or a structure, and a pointer to its variable.
    let found = info(node, service, unsafe { hints.as_ref() });
    // SAFETY: as above.
    fault::minus_one(found.map(|found| unsafe { out.write(found) }))
}

/// `rdma_freeaddrinfo(3)`.
///
/// # Safety
/// As the manual page says.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_freeaddrinfo(info: *mut AddrInfo) {
    if info.is_null() {
        return;
    }
    // SAFETY: `rdma_getaddrinfo` made the structure and its addresses of boxes of these types.
    unsafe {
        let info = Box::from_raw(info);
        for address in [info.src_addr, info.dst_addr] {
            if !address.is_null() {
                drop(Box::from_raw(address.cast::<libc::sockaddr_storage>()));
            }
        }
    }
}

/// `rdma_event_str(3)`.
#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
    const NAMES: [&CStr; 16] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    ];
    let name = NAMES.get(event as usize).copied();
    name.unwrap_or(c"UNKNOWN EVENT").as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_the_addresses_are_those_of_the_hints() {
        let none = std::ptr::null();
        assert_eq!(info(none, none, None).err(), Some(Errno::INVAL));
        let remote: SocketAddr = "192.0.2.7:7174".parse().unwrap();
        let (dst_addr, dst_len) = boxed(remote);
        let hints = AddrInfo {
            flags: 0,
            family: libc::AF_INET,
            qp_type: 0,
            port_space: RDMA_PS_TCP as c_int,
            src_len: 0,
            dst_len,
            src_addr: std::ptr::null_mut(),
            dst_addr,
            src_canonname: std::ptr::null_mut(),
            dst_canonname: std::ptr::null_mut(),
            route_len: 0,
            route: std::ptr::null_mut(),
            connect_len: 0,
            connect: std::ptr::null_mut(),
            next: std::ptr::null_mut(),
        };
        let found = info(none, none, Some(&hints)).unwrap();
        // SAFETY: both structures and their addresses are boxes of these types.
        unsafe {
            assert_eq!(route::read((*found).dst_addr), Ok(Some(remote)));
            assert!((*found).src_addr.is_null() && (*found).dst_addr != dst_addr);
            rdma_freeaddrinfo(found);
            drop(Box::from_raw(dst_addr.cast::<libc::sockaddr_storage>()));
        }
    }
}
