//! The structures and numbers of `it_api.h`, as far as the library reads or writes them.
//!
//! `tests/c/itapi_layout.c` compares the sizes with the header.

mod event;
mod pointer;

pub(crate) use event::*;
pub(crate) use pointer::{In, Out};

/// A handle: a number that C has as a pointer and never dereferences.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Handle(pub(crate) u64);

impl Handle {
    pub(crate) const NULL: Self = Self(0);

    pub(crate) fn is_null(self) -> bool {
        self == Self::NULL
    }
}

/// `it_boolean_t`.
pub(crate) type Boolean = u32;

pub(crate) const IT_IANA_PORT: u32 = 1;
pub(crate) const IT_IANA_LR_PORT: u32 = 8;

/// `it_conn_qual_t`.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnQual {
    pub(crate) kind: u32,
    _padding: u32,
    /// The union. Ports are in network byte order: the port or the local port first, then the
    /// remote port.
    pub(crate) words: [u16; 36],
}

impl ConnQual {
    /// The qualifier of a listener's port.
    pub(crate) fn local_port(kind: u32, port: u16) -> Self {
        let mut words = [0; 36];
        words[0] = port.to_be();
        Self {
            kind,
            _padding: 0,
            words,
        }
    }
}

pub(crate) const IT_IPV4: u32 = 1;
pub(crate) const IT_IPV6: u32 = 2;
pub(crate) const IT_IB_GID: u32 = 3;

/// `it_net_addr_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetAddr {
    pub(crate) kind: u32,
    pub(crate) bytes: [u8; 68],
}

pub(crate) const IT_IP_VERS_IPV4: u32 = 1;
pub(crate) const IT_IP_VERS_IPV6: u32 = 2;

/// `it_path_t` with the member of iWARP.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) spigot: usize,
    pub(crate) timeout_us: u64,
    pub(crate) ip_version: u32,
    pub(crate) local: [u8; 16],
    pub(crate) remote: [u8; 16],
    pub(crate) _rest: [u8; 36],
}

/// `it_lmr_triplet_t` and `it_rmr_triplet_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Triplet {
    pub(crate) region: Handle,
    pub(crate) address: u64,
    pub(crate) length: u64,
}

pub(crate) const IT_IWARP_TCP_TRANSPORT: u32 = 4;
pub(crate) const IT_VENDOR_TRANSPORT: u32 = 1000;
pub(crate) const IT_RC_SERVICE: u32 = 1;

/// `it_rmr_type_t`.
pub(crate) const IT_RMR_TYPE_NARROW: u32 = 1;
pub(crate) const IT_RMR_TYPE_WIDE: u32 = 2;

/// `IT_INTERFACE_NAME_SIZE`.
pub(crate) const NAME_SIZE: usize = 128;

/// `it_interface_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interface {
    pub(crate) major_version: u32,
    pub(crate) minor_version: u32,
    pub(crate) transport_type: u32,
    pub(crate) name: [u8; NAME_SIZE],
}

/// `it_spigot_info_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct SpigotInfo {
    pub(crate) spigot_id: usize,
    pub(crate) max_rc_send_len: usize,
    pub(crate) max_rc_rdma_len: usize,
    pub(crate) max_ud_send_len: usize,
    pub(crate) spigot_online: Boolean,
    pub(crate) active_side_conn_qual: u32,
    pub(crate) passive_side_conn_qual: u32,
    pub(crate) num_net_addr: usize,
    pub(crate) net_addr: *mut NetAddr,
}

/// `it_ia_info_t`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct IaInfo {
    pub(crate) ia_name: *mut u8,
    pub(crate) api_major_version: u32,
    pub(crate) api_minor_version: u32,
    pub(crate) sw_major_version: u32,
    pub(crate) sw_minor_version: u32,
    pub(crate) vendor: [u64; 10],
    pub(crate) dto_alignment_hint: u32,
    pub(crate) transport_type: u32,
    pub(crate) supported_service_types: u32,
    pub(crate) ep_work_queues_resizable: Boolean,
    pub(crate) three_way_handshake_support: Boolean,
    pub(crate) private_data_support: Boolean,
    pub(crate) max_message_size_support: Boolean,
    pub(crate) ird_ord_ia_support: Boolean,
    pub(crate) ird_ord_suppressible: Boolean,
    pub(crate) spigot_online_support: Boolean,
    pub(crate) spigot_offline_support: Boolean,
    pub(crate) connect_private_data_len: usize,
    pub(crate) accept_private_data_len: usize,
    pub(crate) reject_private_data_len: usize,
    pub(crate) disconnect_private_data_len: usize,
    pub(crate) ud_req_private_data_len: usize,
    pub(crate) ud_rep_private_data_len: usize,
    pub(crate) num_spigots: usize,
    pub(crate) spigot_info: *mut SpigotInfo,
    pub(crate) affiliated_err_evd: Handle,
    pub(crate) unaffiliated_err_evd: Handle,
    pub(crate) srq_support: Boolean,
    pub(crate) hard_hi_watermark_support: Boolean,
    pub(crate) soft_hi_watermark_support: Boolean,
    pub(crate) srq_resizable: Boolean,
    pub(crate) extended_iwarp_qp_states: Boolean,
    pub(crate) socket_conversion_support: Boolean,
    pub(crate) rdma_read_ord_increasable: Boolean,
    pub(crate) rdma_read_ird_modifiable: Boolean,
    pub(crate) rmr_types_supported: u32,
    pub(crate) addr_mode_relative_support: Boolean,
    pub(crate) rdma_read_requires_remote_write: Boolean,
    pub(crate) ep_rdma_enables_modifiable: Boolean,
    pub(crate) rdma_read_local_extensions: Boolean,
    pub(crate) dto_evd_overflow_detection: Boolean,
    pub(crate) atomic_support: Boolean,
    pub(crate) lmr_link_support: Boolean,
    pub(crate) direct_lmr_handle_support: Boolean,
    pub(crate) direct_lmr_handle: Handle,
    pub(crate) post_send_unlink_remote_support: Boolean,
    pub(crate) narrow_rmr_unlink_support: Boolean,
    pub(crate) wide_rmr_unlink_support: Boolean,
    pub(crate) unlink_fence_support: Boolean,
    pub(crate) iobl_types_supported: u32,
}

/// `it_ep_attributes_t` of a reliable connection.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpAttributes {
    pub(crate) max_dto_payload_size: usize,
    pub(crate) max_request_dtos: usize,
    pub(crate) max_recv_dtos: usize,
    pub(crate) max_send_segments: usize,
    pub(crate) max_recv_segments: usize,
    pub(crate) rdma_read_enable: Boolean,
    pub(crate) rdma_write_enable: Boolean,
    pub(crate) max_rdma_read_segments: usize,
    pub(crate) max_rdma_write_segments: usize,
    pub(crate) rdma_read_ird: u32,
    pub(crate) rdma_read_ord: u32,
    pub(crate) srq: Handle,
    pub(crate) soft_hi_watermark: usize,
    pub(crate) hard_hi_watermark: usize,
    pub(crate) atomics_enable: Boolean,
    _padding: u32,
    pub(crate) priv_ops_enable: Boolean,
}

/// `it_ep_state_rc_t`.
pub(crate) type EpState = u32;
pub(crate) const EP_UNCONNECTED: EpState = 0;
pub(crate) const EP_ACTIVE1_CONNECTION_PENDING: EpState = 1;
pub(crate) const EP_PASSIVE_CONNECTION_PENDING: EpState = 3;
pub(crate) const EP_CONNECTED: EpState = 4;
pub(crate) const EP_NONOPERATIONAL: EpState = 5;
pub(crate) const EP_PASSIVE_WAIT_RDMA_TRANS_REQ: EpState = 6;

/// `it_ep_param_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct EpParam {
    pub(crate) ia: Handle,
    pub(crate) spigot: usize,
    pub(crate) state: EpState,
    pub(crate) service_type: u32,
    pub(crate) dst_path: Path,
    pub(crate) pz: Handle,
    pub(crate) request_sevd: Handle,
    pub(crate) recv_sevd: Handle,
    pub(crate) connect_sevd: Handle,
    pub(crate) attr: EpAttributes,
}

/// `it_evd_param_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct EvdParam {
    pub(crate) ia: Handle,
    pub(crate) event_number: u32,
    pub(crate) flags: u32,
    pub(crate) queue_size: usize,
    pub(crate) threshold: usize,
    pub(crate) aevd: Handle,
    pub(crate) fd: i32,
    pub(crate) is_bound: Boolean,
    pub(crate) is_enabled: Boolean,
    pub(crate) is_overflowed: Boolean,
    pub(crate) has_callback: Boolean,
}

/// `it_listen_param_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenParam {
    pub(crate) ia: Handle,
    pub(crate) spigot: usize,
    pub(crate) evd: Handle,
    pub(crate) conn_qual: ConnQual,
}

/// `it_lmr_param_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct LmrParam {
    pub(crate) ia: Handle,
    pub(crate) pz: Handle,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) privileges: u32,
    pub(crate) flags: u32,
    pub(crate) shared_id: u32,
    pub(crate) rmr_context: u64,
    pub(crate) actual_address: u64,
    pub(crate) actual_length: u64,
    pub(crate) address_mode: u32,
    pub(crate) is_linked: Boolean,
    pub(crate) iobl_elements: usize,
    pub(crate) iobl_type: u32,
}

/// `it_rmr_param_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct RmrParam {
    pub(crate) ia: Handle,
    pub(crate) pz: Handle,
    pub(crate) is_linked: Boolean,
    pub(crate) lmr: Handle,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) privileges: u32,
    pub(crate) rmr_context: u64,
    pub(crate) kind: u32,
    pub(crate) address_mode: u32,
}

/// `it_srq_param_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct SrqParam {
    pub(crate) ia: Handle,
    pub(crate) pz: Handle,
    pub(crate) max_recv_dtos: usize,
    pub(crate) max_recv_segments: usize,
    pub(crate) low_watermark: usize,
}

/// Checks the mask of a query or modify call, whose members have the bits up to `highest`.
pub(crate) fn check_mask(mask: u32, highest: u32) -> crate::status::Outcome {
    match mask != 0 && mask < highest * 2 {
        true => Ok(()),
        false => Err(crate::status::INVALID_MASK),
    }
}

const _: () = {
    assert!(size_of::<ConnQual>() == 80);
    assert!(size_of::<NetAddr>() == 72);
    assert!(size_of::<Path>() == 88);
    assert!(size_of::<Triplet>() == 24);
    assert!(size_of::<Interface>() == 140);
    assert!(size_of::<SpigotInfo>() == 64);
    assert!(size_of::<IaInfo>() == 336);
    assert!(size_of::<EpAttributes>() == 112);
    assert!(size_of::<EpParam>() == 256);
    assert!(size_of::<EvdParam>() == 64);
    assert!(size_of::<ListenParam>() == 104);
    assert!(size_of::<LmrParam>() == 96);
    assert!(size_of::<RmrParam>() == 72);
    assert!(size_of::<SrqParam>() == 40);
};
