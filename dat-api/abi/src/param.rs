//! Results of the query calls (`DAT_*_PARAM`). Each call fills the whole structure.

use crate::*;
use core::fmt;

/// `DAT_EVD_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatEvdParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// Number of events that the queue holds; at least the number that was asked for.
    pub evd_qlen: DatCount,
    /// State bits.
    pub evd_state: DatEvdState,
    /// CNO that the EVD triggers, or null.
    pub cno_handle: DatCnoHandle,
    /// Event streams that the EVD accepts.
    pub evd_flags: DatEvdFlags,
}

/// The union inside [`DatCnoParam`]; the proxy type selects the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatCnoProxy {
    /// For [`DAT_PROXY_TYPE_AGENT`].
    pub agent: DatOsWaitProxyAgent,
    /// For [`DAT_PROXY_TYPE_FD`].
    pub fd: DatFd,
    /// For [`DAT_PROXY_TYPE_NONE`].
    pub none: DatPvoid,
}

impl fmt::Debug for DatCnoProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatCnoProxy(..)")
    }
}

/// `DAT_CNO_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatCnoParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// Kind of proxy that the CNO notifies.
    pub proxy_type: DatProxyType,
    /// Proxy that the CNO notifies.
    pub proxy: DatCnoProxy,
}

/// `DAT_LMR_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatLmrParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// Kind of memory.
    pub mem_type: DatMemType,
    /// The memory as it was described at creation.
    pub region_desc: DatRegionDescription,
    /// Length asked for, in bytes.
    pub length: DatVlen,
    /// Protection zone.
    pub pz_handle: DatPzHandle,
    /// Privileges.
    pub mem_priv: DatMemPrivFlags,
    /// Address type: virtual or zero-based.
    pub va_type: DatVaType,
    /// Local key.
    pub lmr_context: DatLmrContext,
    /// Remote key.
    pub rmr_context: DatRmrContext,
    /// Length granted, in bytes.
    pub registered_size: DatVlen,
    /// First byte granted.
    pub registered_address: DatVaddr,
}

/// `DAT_RMR_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatRmrParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// Protection zone.
    pub pz_handle: DatPzHandle,
    /// The memory to which the window is bound.
    pub lmr_triplet: DatLmrTriplet,
    /// Privileges.
    pub mem_priv: DatMemPrivFlags,
    /// Remote key.
    pub rmr_context: DatRmrContext,
    /// Scope in which the key may be used.
    pub rmr_scope: DatRmrScope,
    /// Address type: virtual or zero-based.
    pub va_type: DatVaType,
}

/// `DAT_SRQ_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatSrqParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// State.
    pub srq_state: DatSrqState,
    /// Protection zone.
    pub pz_handle: DatPzHandle,
    /// Number of receives that the queue can hold.
    pub max_recv_dtos: DatCount,
    /// Segments per receive.
    pub max_recv_iov: DatCount,
    /// Number of posted receives below which an asynchronous event is delivered.
    pub low_watermark: DatCount,
    /// Number of receives posted, or [`DAT_VALUE_UNKNOWN`].
    pub available_dto_count: DatCount,
    /// Number of receives taken by endpoints and not completed, or [`DAT_VALUE_UNKNOWN`].
    pub outstanding_dto_count: DatCount,
}

/// `DAT_PZ_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatPzParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
}

/// `DAT_PSP_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatPspParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// Connection qualifier on which the service point listens.
    pub conn_qual: DatConnQual,
    /// EVD that receives the connection requests.
    pub evd_handle: DatEvdHandle,
    /// Side that supplies the endpoints: consumer or provider.
    pub psp_flags: DatPspFlags,
}

/// `DAT_RSP_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatRspParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// Connection qualifier on which the service point listens.
    pub conn_qual: DatConnQual,
    /// EVD that receives the connection request.
    pub evd_handle: DatEvdHandle,
    /// The endpoint reserved for the connection.
    pub ep_handle: DatEpHandle,
}

/// `DAT_CSP_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatCspParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// Communicator.
    pub comm: *mut DatComm,
    /// Address on which the service point listens.
    pub address_ptr: DatIaAddressPtr,
    /// EVD that receives the connection requests.
    pub evd_handle: DatEvdHandle,
}

/// `DAT_CR_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatCrParam {
    /// Address of the requester.
    pub remote_ia_address_ptr: DatIaAddressPtr,
    /// The requester's port.
    pub remote_port_qual: DatPortQual,
    /// Length of the private data in bytes.
    pub private_data_size: DatCount,
    /// Private data of the requester; writable, owned by the provider until accept or reject
    /// returns.
    pub private_data: DatPvoid,
    /// Endpoint that is already reserved for the request, or null.
    pub local_ep_handle: DatEpHandle,
}

/// `DAT_EP_PARAM`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatEpParam {
    /// IA that owns the object.
    pub ia_handle: DatIaHandle,
    /// State.
    pub ep_state: DatEpState,
    /// Communicator.
    pub comm: DatComm,
    /// This end's address.
    pub local_ia_address_ptr: DatIaAddressPtr,
    /// This end's port.
    pub local_port_qual: DatPortQual,
    /// The peer's address, once connected.
    pub remote_ia_address_ptr: DatIaAddressPtr,
    /// The peer's port, once connected.
    pub remote_port_qual: DatPortQual,
    /// Protection zone.
    pub pz_handle: DatPzHandle,
    /// EVD of receive completions.
    pub recv_evd_handle: DatEvdHandle,
    /// EVD of request completions.
    pub request_evd_handle: DatEvdHandle,
    /// EVD of connection events.
    pub connect_evd_handle: DatEvdHandle,
    /// Shared receive queue, or null.
    pub srq_handle: DatSrqHandle,
    /// Attributes.
    pub ep_attr: DatEpAttr,
}

assert_layout!(DatEvdParam, size 32, ia_handle @ 0, evd_qlen @ 8, evd_state @ 12, cno_handle @ 16,
    evd_flags @ 24);
assert_layout!(DatCnoProxy, size 16, agent @ 0, fd @ 0, none @ 0);
assert_layout!(DatCnoParam, size 32, ia_handle @ 0, proxy_type @ 8, proxy @ 16);
assert_layout!(DatLmrParam, size 80, ia_handle @ 0, mem_type @ 8, region_desc @ 16, length @ 32,
    pz_handle @ 40, mem_priv @ 48, va_type @ 52, lmr_context @ 56, rmr_context @ 60,
    registered_size @ 64, registered_address @ 72);
assert_layout!(DatRmrParam, size 48, ia_handle @ 0, pz_handle @ 8, lmr_triplet @ 16, mem_priv @ 32,
    rmr_context @ 36, rmr_scope @ 40, va_type @ 44);
assert_layout!(DatSrqParam, size 48, ia_handle @ 0, srq_state @ 8, pz_handle @ 16,
    max_recv_dtos @ 24, max_recv_iov @ 28, low_watermark @ 32, available_dto_count @ 36,
    outstanding_dto_count @ 40);
assert_layout!(DatPzParam, size 8, ia_handle @ 0);
assert_layout!(DatPspParam, size 32, ia_handle @ 0, conn_qual @ 8, evd_handle @ 16, psp_flags @ 24);
assert_layout!(DatRspParam, size 32, ia_handle @ 0, conn_qual @ 8, evd_handle @ 16, ep_handle @ 24);
assert_layout!(DatCspParam, size 32, ia_handle @ 0, comm @ 8, address_ptr @ 16, evd_handle @ 24);
assert_layout!(DatCrParam, size 40, remote_ia_address_ptr @ 0, remote_port_qual @ 8,
    private_data_size @ 16, private_data @ 24, local_ep_handle @ 32);
assert_layout!(DatEpParam, size 184, ia_handle @ 0, ep_state @ 8, comm @ 12,
    local_ia_address_ptr @ 24, local_port_qual @ 32, remote_ia_address_ptr @ 40,
    remote_port_qual @ 48, pz_handle @ 56, recv_evd_handle @ 64, request_evd_handle @ 72,
    connect_evd_handle @ 80, srq_handle @ 88, ep_attr @ 96);

impl_zeroed!(
    DatEvdParam,
    DatCnoProxy,
    DatCnoParam,
    DatLmrParam,
    DatRmrParam,
    DatSrqParam,
    DatPzParam,
    DatPspParam,
    DatRspParam,
    DatCspParam,
    DatCrParam,
    DatEpParam,
);
