//! Addresses: those of DAT, `it_net_addr_t` and paths.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dat_abi::*;

use crate::abi::*;
use crate::status::*;

/// The one spigot of an adapter.
pub(crate) const SPIGOT: usize = 0;

/// Checks the number of a spigot.
pub(crate) fn check_spigot(spigot: usize) -> Outcome {
    (spigot == SPIGOT).then_some(()).ok_or(INVALID_SPIGOT)
}

/// The address behind a pointer of DAT; `None` if it is null or not an IP address.
pub(crate) fn of_dat(address: DatIaAddressPtr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: DAT's addresses are complete and stay for as long as their object.
    unsafe { read_socket_addr(address) }.ok()
}

/// The address as `it_net_addr_t`.
pub(crate) fn to_net(address: Option<IpAddr>) -> NetAddr {
    let mut net = NetAddr {
        kind: IT_IPV4,
        bytes: [0; 68],
    };
    match address {
        Some(IpAddr::V4(v4)) => net.bytes[..4].copy_from_slice(&v4.octets()),
        Some(IpAddr::V6(v6)) => {
            net.kind = IT_IPV6;
            net.bytes[..16].copy_from_slice(&v6.octets());
        }
        None => {}
    }
    net
}

/// The IP address in an `it_net_addr_t`.
pub(crate) fn from_net(net: &NetAddr) -> Outcome<IpAddr> {
    match net.kind {
        IT_IPV4 => Ok(v4(&net.bytes).into()),
        IT_IPV6 | IT_IB_GID => Ok(v6(&net.bytes).into()),
        _ => Err(INVALID_NETADDR),
    }
}

/// A path from one address to another.
pub(crate) fn path(local: Option<IpAddr>, remote: Option<IpAddr>) -> Path {
    let [local, remote] = [local, remote].map(to_net);
    let version = match remote.kind {
        IT_IPV6 => IT_IP_VERS_IPV6,
        _ => IT_IP_VERS_IPV4,
    };
    let first = |net: NetAddr| std::array::from_fn(|index| net.bytes[index]);
    Path {
        spigot: SPIGOT,
        timeout_us: u64::MAX,
        ip_version: version,
        local: first(local),
        remote: first(remote),
        _rest: [0; 36],
    }
}

/// The remote address of a path.
pub(crate) fn remote_of(path: &Path) -> Outcome<IpAddr> {
    match path.ip_version {
        IT_IP_VERS_IPV4 => Ok(v4(&path.remote).into()),
        IT_IP_VERS_IPV6 => Ok(v6(&path.remote).into()),
        _ => Err(INVALID_ADDRESS),
    }
}

fn v4(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::from(std::array::from_fn::<u8, 4, _>(|index| bytes[index]))
}

fn v6(bytes: &[u8]) -> Ipv6Addr {
    Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|index| bytes[index]))
}

/// A time limit of DAT: microseconds, or no limit.
pub(crate) fn timeout(us: u64) -> DatTimeout {
    DatTimeout::try_from(us).unwrap_or(DAT_TIMEOUT_INFINITE)
}

#[unsafe(no_mangle)]
extern "C" fn it_convert_net_addr(source: In<NetAddr>, kind: u32, to: Out<NetAddr>) -> Status {
    answer(|| {
        let address = from_net(&source.read()?)?;
        let mut net = match (kind, address) {
            (IT_IPV4, IpAddr::V6(v6)) => {
                to_net(Some(v6.to_ipv4_mapped().ok_or(INVALID_CONVERSION)?.into()))
            }
            (IT_IPV4, IpAddr::V4(_)) | (IT_IPV6 | IT_IB_GID, IpAddr::V6(_)) => {
                to_net(Some(address))
            }
            (IT_IPV6 | IT_IB_GID, IpAddr::V4(v4)) => to_net(Some(v4.to_ipv6_mapped().into())),
            _ => return Err(INVALID_CONVERSION),
        };
        net.kind = kind;
        to.required()?.write(net);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn it_hton64(value: u64) -> u64 {
    value.to_be()
}

#[unsafe(no_mangle)]
extern "C" fn it_ntoh64(value: u64) -> u64 {
    u64::from_be(value)
}

#[unsafe(no_mangle)]
extern "C" fn it_make_rdma_addr_absolute(address: u64) -> u64 {
    address
}

#[unsafe(no_mangle)]
extern "C" fn it_make_rdma_addr_relative(offset: u64) -> u64 {
    offset
}
