//! Results of the query calls (`DAT_*_PARAM`). Each call fills the whole structure.

use crate::*;
use core::fmt;

c_structs! {
    /// `DAT_EVD_PARAM`.
    pub struct DatEvdParam, size 32 {
        ia_handle @ 0: DatIaHandle,
        /// Number of events that the queue holds; at least the number that was asked for.
        evd_qlen @ 8: DatCount,
        evd_state @ 12: DatEvdState,
        /// CNO that the EVD triggers, or null.
        cno_handle @ 16: DatCnoHandle,
        /// Event streams that the EVD accepts.
        evd_flags @ 24: DatEvdFlags,
    }
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

c_structs! {
    /// `DAT_CNO_PARAM`.
    pub struct DatCnoParam, size 32 {
        ia_handle @ 0: DatIaHandle,
        proxy_type @ 8: DatProxyType,
        proxy @ 16: DatCnoProxy,
    }

    /// `DAT_LMR_PARAM`.
    pub struct DatLmrParam, size 80 {
        ia_handle @ 0: DatIaHandle,
        mem_type @ 8: DatMemType,
        /// The memory as it was described at creation.
        region_desc @ 16: DatRegionDescription,
        /// Length asked for, in bytes.
        length @ 32: DatVlen,
        pz_handle @ 40: DatPzHandle,
        mem_priv @ 48: DatMemPrivFlags,
        /// Address type: virtual or zero-based.
        va_type @ 52: DatVaType,
        /// Local key.
        lmr_context @ 56: DatLmrContext,
        /// Remote key.
        rmr_context @ 60: DatRmrContext,
        /// Length granted, in bytes.
        registered_size @ 64: DatVlen,
        /// First byte granted.
        registered_address @ 72: DatVaddr,
    }

    /// `DAT_RMR_PARAM`.
    pub struct DatRmrParam, size 48 {
        ia_handle @ 0: DatIaHandle,
        pz_handle @ 8: DatPzHandle,
        /// The memory to which the window is bound.
        lmr_triplet @ 16: DatLmrTriplet,
        mem_priv @ 32: DatMemPrivFlags,
        /// Remote key.
        rmr_context @ 36: DatRmrContext,
        /// Scope in which the key may be used.
        rmr_scope @ 40: DatRmrScope,
        /// Address type: virtual or zero-based.
        va_type @ 44: DatVaType,
    }

    /// `DAT_SRQ_PARAM`.
    pub struct DatSrqParam, size 48 {
        ia_handle @ 0: DatIaHandle,
        srq_state @ 8: DatSrqState,
        pz_handle @ 16: DatPzHandle,
        /// Number of receives that the queue can hold.
        max_recv_dtos @ 24: DatCount,
        max_recv_iov @ 28: DatCount,
        /// Number of posted receives below which an asynchronous event is delivered.
        low_watermark @ 32: DatCount,
        /// Number of receives posted, or [`DAT_VALUE_UNKNOWN`].
        available_dto_count @ 36: DatCount,
        /// Number of receives taken by endpoints and not completed, or [`DAT_VALUE_UNKNOWN`].
        outstanding_dto_count @ 40: DatCount,
    }

    /// `DAT_PZ_PARAM`.
    pub struct DatPzParam, size 8 {
        ia_handle @ 0: DatIaHandle,
    }

    /// `DAT_PSP_PARAM`.
    pub struct DatPspParam, size 32 {
        ia_handle @ 0: DatIaHandle,
        /// Connection qualifier on which the service point listens.
        conn_qual @ 8: DatConnQual,
        /// EVD that receives the connection requests.
        evd_handle @ 16: DatEvdHandle,
        /// Side that supplies the endpoints: consumer or provider.
        psp_flags @ 24: DatPspFlags,
    }

    /// `DAT_RSP_PARAM`.
    pub struct DatRspParam, size 32 {
        ia_handle @ 0: DatIaHandle,
        /// Connection qualifier on which the service point listens.
        conn_qual @ 8: DatConnQual,
        /// EVD that receives the connection request.
        evd_handle @ 16: DatEvdHandle,
        /// The endpoint reserved for the connection.
        ep_handle @ 24: DatEpHandle,
    }

    /// `DAT_CSP_PARAM`.
    pub struct DatCspParam, size 32 {
        ia_handle @ 0: DatIaHandle,
        comm @ 8: *mut DatComm,
        /// Address on which the service point listens.
        address_ptr @ 16: DatIaAddressPtr,
        /// EVD that receives the connection requests.
        evd_handle @ 24: DatEvdHandle,
    }

    /// `DAT_CR_PARAM`.
    pub struct DatCrParam, size 40 {
        /// Address of the requester.
        remote_ia_address_ptr @ 0: DatIaAddressPtr,
        /// The requester's port.
        remote_port_qual @ 8: DatPortQual,
        private_data_size @ 16: DatCount,
        /// Private data of the requester; writable, owned by the provider until accept or reject
        /// returns.
        private_data @ 24: DatPvoid,
        /// Endpoint that is already reserved for the request, or null.
        local_ep_handle @ 32: DatEpHandle,
    }

    /// `DAT_EP_PARAM`.
    pub struct DatEpParam, size 184 {
        ia_handle @ 0: DatIaHandle,
        ep_state @ 8: DatEpState,
        comm @ 12: DatComm,
        /// This end's address.
        local_ia_address_ptr @ 24: DatIaAddressPtr,
        /// This end's port.
        local_port_qual @ 32: DatPortQual,
        /// The peer's address, once connected.
        remote_ia_address_ptr @ 40: DatIaAddressPtr,
        /// The peer's port, once connected.
        remote_port_qual @ 48: DatPortQual,
        pz_handle @ 56: DatPzHandle,
        recv_evd_handle @ 64: DatEvdHandle,
        request_evd_handle @ 72: DatEvdHandle,
        connect_evd_handle @ 80: DatEvdHandle,
        /// Shared receive queue, or null.
        srq_handle @ 88: DatSrqHandle,
        ep_attr @ 96: DatEpAttr,
    }
}

assert_layout!(DatCnoProxy, size 16, agent @ 0, fd @ 0, none @ 0);

impl_zeroed!(DatCnoProxy);
