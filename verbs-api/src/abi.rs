//! Structures of `infiniband/verbs.h` that `verbs-dl` does not declare.

use std::net::{IpAddr, Ipv6Addr};

use verbs_dl::types::{ibv_ah_attr, ibv_context, ibv_port_attr};

/// `union ibv_gid`: an IPv6 address, or an IPv4 address as IPv4-mapped IPv6 address.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gid(pub(crate) [u8; 16]);

impl Gid {
    pub(crate) fn of(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        })
    }

    pub(crate) fn address(self) -> IpAddr {
        IpAddr::V6(Ipv6Addr::from(self.0)).to_canonical()
    }
}

/// `struct ibv_ah_attr`, with the members of `struct ibv_global_route` at its start.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct AddressVector {
    pub(crate) dgid: Gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

impl AddressVector {
    pub(crate) fn of(attr: &ibv_ah_attr) -> Self {
        // SAFETY: both types have the size of the C structure, and every pattern of bits is a value
        // of `AddressVector`, which has only integers.
        unsafe { std::ptr::from_ref(attr).cast::<Self>().read() }
    }

    /// Returns the path to a host.
    pub(crate) fn to(dgid: Gid, port_num: u8) -> Self {
        Self {
            dgid,
            flow_label: 0,
            sgid_index: 0,
            hop_limit: 64,
            traffic_class: 0,
            dlid: 0,
            sl: 0,
            src_path_bits: 0,
            static_rate: 0,
            is_global: 1,
            port_num,
        }
    }

    pub(crate) fn store(self, attr: &mut ibv_ah_attr) {
        // SAFETY: both types have the size of the C structure, which has only integers.
        unsafe { std::ptr::from_mut(attr).cast::<Self>().write(self) };
    }
}

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct GidEntry {
    pub(crate) gid: Gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

/// `IBV_GID_TYPE_ROCE_V2`, the type in [`GidEntry`].
pub(crate) const GID_TYPE_ROCE_V2: u32 = 2;
/// `IBV_GID_TYPE_SYSFS_ROCE_V2`, the type that `ibv_query_gid_type` returns.
pub(crate) const GID_TYPE_SYSFS_ROCE_V2: libc::c_int = 1;

/// The type of `query_port` in `struct verbs_context`.
pub(crate) type QueryPort =
    unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> libc::c_int;

/// A member of `struct verbs_context` that the library does not implement. The inline functions of
/// the header return `EOPNOTSUPP` for it, or use an exported function.
pub(crate) type Absent = usize;

/// `struct verbs_context`: operations that were added after `struct ibv_context` was fixed, as
/// pointers to functions.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct VerbsContext {
    pub(crate) query_port: Option<QueryPort>,
    pub(crate) _from_advise_mr: [Absent; 13],
    pub(crate) alloc_parent_domain: *const (),
    pub(crate) dealloc_td: *const (),
    pub(crate) alloc_td: *const (),
    pub(crate) _from_modify_cq: [Absent; 8],
    pub(crate) create_cq_ex: *const (),
    pub(crate) _priv: Absent,
    pub(crate) query_device_ex: *const (),
    pub(crate) _from_destroy_flow: [Absent; 5],
    pub(crate) create_qp_ex: *const (),
    pub(crate) _get_srq_num: Absent,
    pub(crate) create_srq_ex: *const (),
    pub(crate) _from_open_xrcd: [Absent; 3],
    /// The size of this structure, by which the header decides which members exist.
    pub(crate) size: usize,
    pub(crate) context: ibv_context,
}

/// `__VERBS_ABI_IS_EXTENDED`: the value of `ibv_context.abi_compat` that announces a
/// `struct verbs_context`.
pub(crate) const IS_EXTENDED: *mut libc::c_void = std::ptr::without_provenance_mut(usize::MAX);

const _: () = {
    assert!(size_of::<AddressVector>() == size_of::<ibv_ah_attr>());
    assert!(std::mem::offset_of!(AddressVector, dlid) == 24);
    assert!(size_of::<GidEntry>() == 32);
    assert!(std::mem::offset_of!(VerbsContext, create_cq_ex) == 25 * 8);
    assert!(std::mem::offset_of!(VerbsContext, create_qp_ex) == 33 * 8);
    assert!(std::mem::offset_of!(VerbsContext, context) == 40 * 8);
};
