//! Parameter masks: one bit for each member that a query or modify call concerns.
//!
//! Providers fill whole structures for every mask, because consumers in the field read members that
//! they did not request.

/// Mask for dat_ia_query, adapter part.
pub type DatIaAttrMask = u64;

constants! { DatIaAttrMask:
    /// No member.
    DAT_IA_FIELD_NONE = 0,
    /// `adapter_name`.
    DAT_IA_FIELD_IA_ADAPTER_NAME = 1,
    /// `vendor_name`.
    DAT_IA_FIELD_IA_VENDOR_NAME = 2,
    /// `hardware_major_version`.
    DAT_IA_FIELD_IA_HARDWARE_MAJOR_VERSION = 4,
    /// `hardware_minor_version`.
    DAT_IA_FIELD_IA_HARDWARE_MINOR_VERSION = 8,
    /// `firmware_major_version`.
    DAT_IA_FIELD_IA_FIRMWARE_MAJOR_VERSION = 0x10,
    /// `firmware_minor_version`.
    DAT_IA_FIELD_IA_FIRMWARE_MINOR_VERSION = 0x20,
    /// `ia_address_ptr`.
    DAT_IA_FIELD_IA_ADDRESS_PTR = 0x40,
    /// `max_eps`.
    DAT_IA_FIELD_IA_MAX_EPS = 0x80,
    /// `max_dto_per_ep`.
    DAT_IA_FIELD_IA_MAX_DTO_PER_EP = 0x100,
    /// `max_rdma_read_per_ep_in`.
    DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN = 0x200,
    /// `max_rdma_read_per_ep_out`.
    DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT = 0x400,
    /// `max_evds`.
    DAT_IA_FIELD_IA_MAX_EVDS = 0x800,
    /// `max_evd_qlen`.
    DAT_IA_FIELD_IA_MAX_EVD_QLEN = 0x1000,
    /// `max_iov_segments_per_dto`.
    DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_DTO = 0x2000,
    /// `max_lmrs`.
    DAT_IA_FIELD_IA_MAX_LMRS = 0x4000,
    /// `max_lmr_block_size`.
    DAT_IA_FIELD_IA_MAX_LMR_BLOCK_SIZE = 0x8000,
    /// `max_lmr_virtual_address`.
    DAT_IA_FIELD_IA_MAX_LMR_VIRTUAL_ADDRESS = 0x0001_0000,
    /// `max_pzs`.
    DAT_IA_FIELD_IA_MAX_PZS = 0x0002_0000,
    /// `max_message_size`.
    DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE = 0x0004_0000,
    /// Older name of [`DAT_IA_FIELD_IA_MAX_MESSAGE_SIZE`].
    DAT_IA_FIELD_IA_MAX_MTU_SIZE = 0x0004_0000,
    /// `max_rdma_size`.
    DAT_IA_FIELD_IA_MAX_RDMA_SIZE = 0x0008_0000,
    /// `max_rmrs`.
    DAT_IA_FIELD_IA_MAX_RMRS = 0x0010_0000,
    /// `max_rmr_target_address`.
    DAT_IA_FIELD_IA_MAX_RMR_TARGET_ADDRESS = 0x0020_0000,
    /// `max_srqs`.
    DAT_IA_FIELD_IA_MAX_SRQS = 0x0040_0000,
    /// `max_ep_per_srq`.
    DAT_IA_FIELD_IA_MAX_EP_PER_SRQ = 0x0080_0000,
    /// `max_recv_per_srq`.
    DAT_IA_FIELD_IA_MAX_RECV_PER_SRQ = 0x0100_0000,
    /// `max_iov_segments_per_rdma_read`.
    DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_READ = 0x0200_0000,
    /// `max_iov_segments_per_rdma_write`.
    DAT_IA_FIELD_IA_MAX_IOV_SEGMENTS_PER_RDMA_WRITE = 0x0400_0000,
    /// `max_rdma_read_in`.
    DAT_IA_FIELD_IA_MAX_RDMA_READ_IN = 0x0800_0000,
    /// `max_rdma_read_out`.
    DAT_IA_FIELD_IA_MAX_RDMA_READ_OUT = 0x1000_0000,
    /// `max_rdma_read_per_ep_in_guaranteed`.
    DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_IN_GUARANTEED = 0x2000_0000,
    /// `max_rdma_read_per_ep_out_guaranteed`.
    DAT_IA_FIELD_IA_MAX_RDMA_READ_PER_EP_OUT_GUARANTEED = 0x4000_0000,
    /// `zb_supported`.
    DAT_IA_FIELD_IA_ZB_SUPPORTED = 0x8000_0000,
    /// `extension_supported`.
    DAT_IA_FIELD_IA_EXTENSION = 0x0001_0000_0000,
    /// Other name of [`DAT_IA_FIELD_IA_EXTENSION`].
    DAT_IA_FIELD_IA_EXTENSIONS_SUPPORTED = 0x0001_0000_0000,
    /// `extension_version`.
    DAT_IA_FIELD_IA_EXTENSION_VERSION = 0x0002_0000_0000,
    /// `num_transport_attr`.
    DAT_IA_FIELD_IA_NUM_TRANSPORT_ATTR = 0x0004_0000_0000,
    /// `transport_attr`.
    DAT_IA_FIELD_IA_TRANSPORT_ATTR = 0x0008_0000_0000,
    /// `num_vendor_attr`.
    DAT_IA_FIELD_IA_NUM_VENDOR_ATTR = 0x0010_0000_0000,
    /// `vendor_attr`.
    DAT_IA_FIELD_IA_VENDOR_ATTR = 0x0020_0000_0000,
    /// Same as [`DAT_IA_FIELD_ALL`].
    DAT_IA_ALL = 0x003F_FFFF_FFFF,
    /// Every member.
    DAT_IA_FIELD_ALL = 0x003F_FFFF_FFFF,
}

/// Mask for dat_ia_query, provider part.
pub type DatProviderAttrMask = u64;

constants! { DatProviderAttrMask:
    /// No member.
    DAT_PROVIDER_FIELD_NONE = 0,
    /// `provider_name`.
    DAT_PROVIDER_FIELD_PROVIDER_NAME = 1,
    /// `provider_version_major`.
    DAT_PROVIDER_FIELD_PROVIDER_VERSION_MAJOR = 2,
    /// `provider_version_minor`.
    DAT_PROVIDER_FIELD_PROVIDER_VERSION_MINOR = 4,
    /// `dapl_version_major`.
    DAT_PROVIDER_FIELD_DAPL_VERSION_MAJOR = 8,
    /// `dapl_version_minor`.
    DAT_PROVIDER_FIELD_DAPL_VERSION_MINOR = 0x10,
    /// `lmr_mem_type_supported`.
    DAT_PROVIDER_FIELD_LMR_MEM_TYPE_SUPPORTED = 0x20,
    /// `iov_ownership`.
    DAT_PROVIDER_FIELD_IOV_OWNERSHIP = 0x40,
    /// `dat_qos_supported`.
    DAT_PROVIDER_FIELD_DAT_QOS_SUPPORTED = 0x80,
    /// `completion_flags_supported`.
    DAT_PROVIDER_FIELD_COMPLETION_FLAGS_SUPPORTED = 0x100,
    /// `is_thread_safe`.
    DAT_PROVIDER_FIELD_IS_THREAD_SAFE = 0x200,
    /// `max_private_data_size`.
    DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE = 0x400,
    /// `supports_multipath`.
    DAT_PROVIDER_FIELD_SUPPORTS_MULTIPATH = 0x800,
    /// `ep_creator`.
    DAT_PROVIDER_FIELD_EP_CREATOR = 0x1000,
    /// `pz_support`.
    DAT_PROVIDER_FIELD_PZ_SUPPORT = 0x2000,
    /// `optimal_buffer_alignment`.
    DAT_PROVIDER_FIELD_OPTIMAL_BUFFER_ALIGNMENT = 0x4000,
    /// `evd_stream_merging_supported`.
    DAT_PROVIDER_FIELD_EVD_STREAM_MERGING_SUPPORTED = 0x8000,
    /// `srq_supported`.
    DAT_PROVIDER_FIELD_SRQ_SUPPORTED = 0x0001_0000,
    /// `srq_watermarks_supported`.
    DAT_PROVIDER_FIELD_SRQ_WATERMARKS_SUPPORTED = 0x0002_0000,
    /// `srq_ep_pz_difference_supported`.
    DAT_PROVIDER_FIELD_SRQ_EP_PZ_DIFFERENCE_SUPPORTED = 0x0004_0000,
    /// `srq_info_supported`.
    DAT_PROVIDER_FIELD_SRQ_INFO_SUPPORTED = 0x0008_0000,
    /// `ep_recv_info_supported`.
    DAT_PROVIDER_FIELD_EP_RECV_INFO_SUPPORTED = 0x0010_0000,
    /// `lmr_sync_req`.
    DAT_PROVIDER_FIELD_LMR_SYNC_REQ = 0x0020_0000,
    /// `dto_async_return_guaranteed`.
    DAT_PROVIDER_FIELD_DTO_ASYNC_RETURN_GUARANTEED = 0x0040_0000,
    /// `rdma_write_for_rdma_read_req`.
    DAT_PROVIDER_FIELD_RDMA_WRITE_FOR_RDMA_READ_REQ = 0x0080_0000,
    /// `rdma_read_lmr_rmr_context_exposure`.
    DAT_PROVIDER_FIELD_RDMA_READ_LMR_RMR_CONTEXT_EXPOSURE = 0x0100_0000,
    /// `rmr_scope_supported`.
    DAT_PROVIDER_FIELD_RMR_SCOPE_SUPPORTED = 0x0200_0000,
    /// `is_signal_safe`.
    DAT_PROVIDER_FIELD_IS_SIGNAL_SAFE = 0x0400_0000,
    /// `ha_supported`.
    DAT_PROVIDER_FIELD_HA_SUPPORTED = 0x0800_0000,
    /// `ha_lb`.
    DAT_PROVIDER_FIELD_HA_LB = 0x1000_0000,
    /// `num_provider_specific_attr`.
    DAT_PROVIDER_FIELD_NUM_PROVIDER_SPECIFIC_ATTR = 0x2000_0000,
    /// `provider_specific_attr`.
    DAT_PROVIDER_FIELD_PROVIDER_SPECIFIC_ATTR = 0x4000_0000,
    /// Every member.
    DAT_PROVIDER_FIELD_ALL = 0x7FFF_FFFF,
}

/// Mask for dat_ep_query and dat_ep_modify.
pub type DatEpParamMask = u64;

constants! { DatEpParamMask:
    /// `ia_handle`.
    DAT_EP_FIELD_IA_HANDLE = 1,
    /// `ep_state`.
    DAT_EP_FIELD_EP_STATE = 2,
    /// `comm`.
    DAT_EP_FIELD_COMM = 4,
    /// `local_ia_address_ptr`.
    DAT_EP_FIELD_LOCAL_IA_ADDRESS_PTR = 8,
    /// `local_port_qual`.
    DAT_EP_FIELD_LOCAL_PORT_QUAL = 0x10,
    /// `remote_ia_address_ptr`.
    DAT_EP_FIELD_REMOTE_IA_ADDRESS_PTR = 0x20,
    /// `remote_port_qual`.
    DAT_EP_FIELD_REMOTE_PORT_QUAL = 0x40,
    /// `pz_handle`.
    DAT_EP_FIELD_PZ_HANDLE = 0x80,
    /// `recv_evd_handle`.
    DAT_EP_FIELD_RECV_EVD_HANDLE = 0x100,
    /// `request_evd_handle`.
    DAT_EP_FIELD_REQUEST_EVD_HANDLE = 0x200,
    /// `connect_evd_handle`.
    DAT_EP_FIELD_CONNECT_EVD_HANDLE = 0x400,
    /// `srq_handle`.
    DAT_EP_FIELD_SRQ_HANDLE = 0x800,
    /// `service_type`.
    DAT_EP_FIELD_EP_ATTR_SERVICE_TYPE = 0x1000,
    /// `max_message_size`.
    DAT_EP_FIELD_EP_ATTR_MAX_MESSAGE_SIZE = 0x2000,
    /// `max_rdma_size`.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_SIZE = 0x4000,
    /// `qos`.
    DAT_EP_FIELD_EP_ATTR_QOS = 0x8000,
    /// `recv_completion_flags`.
    DAT_EP_FIELD_EP_ATTR_RECV_COMPLETION_FLAGS = 0x0001_0000,
    /// `request_completion_flags`.
    DAT_EP_FIELD_EP_ATTR_REQUEST_COMPLETION_FLAGS = 0x0002_0000,
    /// `max_recv_dtos`.
    DAT_EP_FIELD_EP_ATTR_MAX_RECV_DTOS = 0x0004_0000,
    /// `max_request_dtos`.
    DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_DTOS = 0x0008_0000,
    /// `max_recv_iov`.
    DAT_EP_FIELD_EP_ATTR_MAX_RECV_IOV = 0x0010_0000,
    /// `max_request_iov`.
    DAT_EP_FIELD_EP_ATTR_MAX_REQUEST_IOV = 0x0020_0000,
    /// `max_rdma_read_in`.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IN = 0x0040_0000,
    /// `max_rdma_read_out`.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_OUT = 0x0080_0000,
    /// `srq_soft_hw`.
    DAT_EP_FIELD_EP_ATTR_SRQ_SOFT_HW = 0x0100_0000,
    /// `max_rdma_read_iov`.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_READ_IOV = 0x0200_0000,
    /// `max_rdma_write_iov`.
    DAT_EP_FIELD_EP_ATTR_MAX_RDMA_WRITE_IOV = 0x0400_0000,
    /// `num_transport_attr`.
    DAT_EP_FIELD_EP_ATTR_NUM_TRANSPORT_ATTR = 0x0800_0000,
    /// `transport_specific_attr`.
    DAT_EP_FIELD_EP_ATTR_TRANSPORT_SPECIFIC_ATTR = 0x1000_0000,
    /// `num_provider_attr`.
    DAT_EP_FIELD_EP_ATTR_NUM_PROVIDER_ATTR = 0x2000_0000,
    /// `provider_specific_attr`.
    DAT_EP_FIELD_EP_ATTR_PROVIDER_SPECIFIC_ATTR = 0x4000_0000,
    /// Every member of the EP attributes.
    DAT_EP_FIELD_EP_ATTR_ALL = 0x7FFF_F000,
    /// Every member.
    DAT_EP_FIELD_ALL = 0x7FFF_FFFF,
}

/// Mask of `dat_evd_query`.
pub type DatEvdParamMask = u32;

constants! { DatEvdParamMask:
    /// `ia_handle`.
    DAT_EVD_FIELD_IA_HANDLE = 1,
    /// `evd_qlen`.
    DAT_EVD_FIELD_EVD_QLEN = 2,
    /// `evd_state`.
    DAT_EVD_FIELD_EVD_STATE = 4,
    /// `cno`.
    DAT_EVD_FIELD_CNO = 8,
    /// `evd_flags`.
    DAT_EVD_FIELD_EVD_FLAGS = 0x10,
    /// Every member.
    DAT_EVD_FIELD_ALL = 0x1F,
}

/// Mask of `dat_cno_query`.
pub type DatCnoParamMask = u32;

constants! { DatCnoParamMask:
    /// `ia_handle`.
    DAT_CNO_FIELD_IA_HANDLE = 1,
    /// `proxy_type`.
    DAT_CNO_FIELD_PROXY_TYPE = 2,
    /// `proxy`; the value is that of the shipped C header.
    DAT_CNO_FIELD_PROXY = 3,
    /// Every member; the value is that of the shipped C header.
    DAT_CNO_FIELD_ALL = 4,
}

/// Mask of `dat_lmr_query`.
pub type DatLmrParamMask = u32;

constants! { DatLmrParamMask:
    /// `ia_handle`.
    DAT_LMR_FIELD_IA_HANDLE = 1,
    /// `mem_type`.
    DAT_LMR_FIELD_MEM_TYPE = 2,
    /// `region_desc`.
    DAT_LMR_FIELD_REGION_DESC = 4,
    /// `length`.
    DAT_LMR_FIELD_LENGTH = 8,
    /// `pz_handle`.
    DAT_LMR_FIELD_PZ_HANDLE = 0x10,
    /// `mem_priv`.
    DAT_LMR_FIELD_MEM_PRIV = 0x20,
    /// `va_type`.
    DAT_LMR_FIELD_VA_TYPE = 0x40,
    /// `lmr_context`.
    DAT_LMR_FIELD_LMR_CONTEXT = 0x80,
    /// `rmr_context`.
    DAT_LMR_FIELD_RMR_CONTEXT = 0x100,
    /// `registered_size`.
    DAT_LMR_FIELD_REGISTERED_SIZE = 0x200,
    /// `registered_address`.
    DAT_LMR_FIELD_REGISTERED_ADDRESS = 0x400,
    /// Every member.
    DAT_LMR_FIELD_ALL = 0x7FF,
}

/// Mask of `dat_rmr_query`.
pub type DatRmrParamMask = u32;

constants! { DatRmrParamMask:
    /// `ia_handle`.
    DAT_RMR_FIELD_IA_HANDLE = 1,
    /// `pz_handle`.
    DAT_RMR_FIELD_PZ_HANDLE = 2,
    /// `lmr_triplet`.
    DAT_RMR_FIELD_LMR_TRIPLET = 4,
    /// `mem_priv`.
    DAT_RMR_FIELD_MEM_PRIV = 8,
    /// `rmr_context`.
    DAT_RMR_FIELD_RMR_CONTEXT = 0x10,
    /// `rmr_scope`.
    DAT_RMR_FIELD_RMR_SCOPE = 0x20,
    /// `va_type`.
    DAT_RMR_FIELD_VA_TYPE = 0x40,
    /// Every member.
    DAT_RMR_FIELD_ALL = 0x7F,
}

/// Mask of `dat_srq_query`.
pub type DatSrqParamMask = u32;

constants! { DatSrqParamMask:
    /// `ia_handle`.
    DAT_SRQ_FIELD_IA_HANDLE = 1,
    /// `srq_state`.
    DAT_SRQ_FIELD_SRQ_STATE = 2,
    /// `pz_handle`.
    DAT_SRQ_FIELD_PZ_HANDLE = 4,
    /// `max_recv_dto`.
    DAT_SRQ_FIELD_MAX_RECV_DTO = 8,
    /// `max_recv_iov`.
    DAT_SRQ_FIELD_MAX_RECV_IOV = 0x10,
    /// `low_watermark`.
    DAT_SRQ_FIELD_LOW_WATERMARK = 0x20,
    /// `available_dto_count`.
    DAT_SRQ_FIELD_AVAILABLE_DTO_COUNT = 0x40,
    /// `outstanding_dto_count`.
    DAT_SRQ_FIELD_OUTSTANDING_DTO_COUNT = 0x80,
    /// Every member.
    DAT_SRQ_FIELD_ALL = 0xFF,
}

/// Mask of `dat_pz_query`.
pub type DatPzParamMask = u32;

constants! { DatPzParamMask:
    /// Every member.
    DAT_PZ_FIELD_ALL = 1,
    /// `ia_handle`.
    DAT_PZ_FIELD_IA_HANDLE = 1,
}

/// Mask of `dat_psp_query`.
pub type DatPspParamMask = u32;

constants! { DatPspParamMask:
    /// `ia_handle`.
    DAT_PSP_FIELD_IA_HANDLE = 1,
    /// `conn_qual`.
    DAT_PSP_FIELD_CONN_QUAL = 2,
    /// `evd_handle`.
    DAT_PSP_FIELD_EVD_HANDLE = 4,
    /// `psp_flags`.
    DAT_PSP_FIELD_PSP_FLAGS = 8,
    /// Every member.
    DAT_PSP_FIELD_ALL = 0xF,
}

/// Mask of `dat_rsp_query`.
pub type DatRspParamMask = u32;

constants! { DatRspParamMask:
    /// `ia_handle`.
    DAT_RSP_FIELD_IA_HANDLE = 1,
    /// `conn_qual`.
    DAT_RSP_FIELD_CONN_QUAL = 2,
    /// `evd_handle`.
    DAT_RSP_FIELD_EVD_HANDLE = 4,
    /// `ep_handle`.
    DAT_RSP_FIELD_EP_HANDLE = 8,
    /// Every member.
    DAT_RSP_FIELD_ALL = 0xF,
}

/// Mask of `dat_csp_query`.
pub type DatCspParamMask = u32;

constants! { DatCspParamMask:
    /// `ia_handle`.
    DAT_CSP_FIELD_IA_HANDLE = 1,
    /// `comm`.
    DAT_CSP_FIELD_COMM = 2,
    /// `ia_address`.
    DAT_CSP_FIELD_IA_ADDRESS = 4,
    /// `evd_handle`.
    DAT_CSP_FIELD_EVD_HANDLE = 8,
    /// Every member.
    DAT_CSP_FIELD_ALL = 0xF,
}

/// Mask of `dat_cr_query`.
pub type DatCrParamMask = u32;

constants! { DatCrParamMask:
    /// `remote_ia_address_ptr`.
    DAT_CR_FIELD_REMOTE_IA_ADDRESS_PTR = 1,
    /// `remote_port_qual`.
    DAT_CR_FIELD_REMOTE_PORT_QUAL = 2,
    /// `private_data_size`.
    DAT_CR_FIELD_PRIVATE_DATA_SIZE = 4,
    /// `private_data`.
    DAT_CR_FIELD_PRIVATE_DATA = 8,
    /// `local_ep_handle`.
    DAT_CR_FIELD_LOCAL_EP_HANDLE = 0x10,
    /// Every member.
    DAT_CR_FIELD_ALL = 0x1F,
}
