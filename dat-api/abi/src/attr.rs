//! Attributes of the IA, the provider, endpoints and shared receive queues (DAT 2.0 chapter 6).

use crate::*;
use core::ffi::c_char;

/// A name field: a NUL-terminated string in a fixed array.
pub type DatName = [c_char; DAT_NAME_MAX_LENGTH];

/// `DAT_NAMED_ATTR`: an attribute as a pair of strings.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatNamedAttr {
    /// Name.
    pub name: *const c_char,
    /// Value.
    pub value: *const c_char,
}

/// `DAT_IA_ATTR`. Strings and pointers belong to the provider and live as long as the IA is open.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatIaAttr {
    /// Name of the adapter.
    pub adapter_name: DatName,
    /// Name of the vendor.
    pub vendor_name: DatName,
    /// Hardware version, major.
    pub hardware_version_major: DatUint32,
    /// Hardware version, minor.
    pub hardware_version_minor: DatUint32,
    /// Firmware version, major.
    pub firmware_version_major: DatUint32,
    /// Firmware version, minor.
    pub firmware_version_minor: DatUint32,
    /// Address of the adapter; consumers expect `AF_INET`.
    pub ia_address_ptr: DatIaAddressPtr,
    /// Maximum number of endpoints.
    pub max_eps: DatCount,
    /// Maximum number of posted operations on one endpoint.
    pub max_dto_per_ep: DatCount,
    /// Maximum number of concurrent incoming RDMA reads on one endpoint.
    pub max_rdma_read_per_ep_in: DatCount,
    /// Maximum number of concurrent outgoing RDMA reads on one endpoint.
    pub max_rdma_read_per_ep_out: DatCount,
    /// Maximum number of event dispatchers.
    pub max_evds: DatCount,
    /// Maximum number of events in one dispatcher.
    pub max_evd_qlen: DatCount,
    /// Maximum number of segments of one operation.
    pub max_iov_segments_per_dto: DatCount,
    /// Maximum number of local memory regions.
    pub max_lmrs: DatCount,
    /// Maximum size of one local memory region, in bytes.
    pub max_lmr_block_size: DatSegLength,
    /// Highest address that can be registered.
    pub max_lmr_virtual_address: DatVaddr,
    /// Maximum number of protection zones.
    pub max_pzs: DatCount,
    /// Maximum length of one message, in bytes.
    pub max_message_size: DatSegLength,
    /// Maximum length of one RDMA operation, in bytes.
    pub max_rdma_size: DatSegLength,
    /// Maximum number of remote memory regions.
    pub max_rmrs: DatCount,
    /// Highest address that can be a remote target.
    pub max_rmr_target_address: DatVaddr,
    /// Maximum number of shared receive queues.
    pub max_srqs: DatCount,
    /// Maximum number of endpoints on one shared receive queue.
    pub max_ep_per_srq: DatCount,
    /// Maximum number of receives posted on one shared receive queue.
    pub max_recv_per_srq: DatCount,
    /// Maximum number of segments of one RDMA read.
    pub max_iov_segments_per_rdma_read: DatCount,
    /// Maximum number of segments of one RDMA write.
    pub max_iov_segments_per_rdma_write: DatCount,
    /// Maximum number of concurrent incoming RDMA reads on the adapter.
    pub max_rdma_read_in: DatCount,
    /// Maximum number of concurrent outgoing RDMA reads on the adapter.
    pub max_rdma_read_out: DatCount,
    /// True if every endpoint gets `max_rdma_read_per_ep_in`.
    pub max_rdma_read_per_ep_in_guaranteed: DatBoolean,
    /// True if every endpoint gets `max_rdma_read_per_ep_out`.
    pub max_rdma_read_per_ep_out_guaranteed: DatBoolean,
    /// True if zero-based addressing is supported.
    pub zb_supported: DatBoolean,
    /// Family of extensions.
    pub extension_supported: DatExtension,
    /// Version of the extensions.
    pub extension_version: DatCount,
    /// Entries in `transport_attr`.
    pub num_transport_attr: DatCount,
    /// Attributes of the transport.
    pub transport_attr: *mut DatNamedAttr,
    /// Entries in `vendor_attr`.
    pub num_vendor_attr: DatCount,
    /// Attributes of the vendor's choice.
    pub vendor_attr: *mut DatNamedAttr,
}

/// The number of rows and of columns of [`DatProviderAttr::evd_stream_merging_supported`]: one for
/// each kind of event stream.
pub const DAT_EVD_STREAM_COUNT: usize = 6;

/// `DAT_PROVIDER_ATTR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatProviderAttr {
    /// Name of the provider.
    pub provider_name: DatName,
    /// Version of the provider, major.
    pub provider_version_major: DatUint32,
    /// Version of the provider, minor.
    pub provider_version_minor: DatUint32,
    /// Version of the interface: 2. A registry uses this value as a key to find the provider again.
    pub dapl_version_major: DatUint32,
    /// Version of the interface: 0.
    pub dapl_version_minor: DatUint32,
    /// Memory types, OR-ed.
    pub lmr_mem_types_supported: DatMemType,
    /// Owner of the segment lists after posting.
    pub iov_ownership_on_return: DatIovOwnership,
    /// Qualities of service, OR-ed.
    pub dat_qos_supported: DatQos,
    /// Completion flags, OR-ed.
    pub completion_flags_supported: DatCompletionFlags,
    /// True if calls on one object may overlap. A registry uses this value as a key to find the
    /// provider again.
    pub is_thread_safe: DatBoolean,
    /// Maximum length of private data, in bytes.
    pub max_private_data_size: DatCount,
    /// True if connections can use several paths.
    pub supports_multipath: DatBoolean,
    /// Policy by which the provider creates endpoints for connection requests.
    pub ep_creator: DatEpCreatorForPsp,
    /// Support for sharing protection zones.
    pub pz_support: DatPzSupport,
    /// Best buffer alignment in bytes.
    pub optimal_buffer_alignment: DatUint32,
    /// Event streams that may share an EVD; order: software, CR, DTO, connection, bind, async.
    pub evd_stream_merging_supported: [[DatBoolean; DAT_EVD_STREAM_COUNT]; DAT_EVD_STREAM_COUNT],
    /// True if shared receive queues are supported.
    pub srq_supported: DatBoolean,
    /// Supported watermarks of shared receive queues.
    pub srq_watermarks_supported: DatCount,
    /// True if endpoints may have a different protection zone from their shared receive queue.
    pub srq_ep_pz_difference_supported: DatBoolean,
    /// Counts that `dat_srq_query` can return.
    pub srq_info_supported: DatCount,
    /// Counts that `dat_ep_recv_query` can return.
    pub ep_recv_info_supported: DatCount,
    /// True if `dat_lmr_sync_rdma_*` are needed.
    pub lmr_sync_req: DatBoolean,
    /// True if a failed post is always reported by its completion.
    pub dto_async_return_guaranteed: DatBoolean,
    /// True if the target of an RDMA read needs write privileges.
    pub rdma_write_for_rdma_read_req: DatBoolean,
    /// True if RDMA reads expose the local context to the peer.
    pub rdma_read_lmr_rmr_context_exposure: DatBoolean,
    /// Scopes of RMR contexts.
    pub rmr_scope_supported: DatRmrScope,
    /// True if calls are safe in signal handlers.
    pub is_signal_safe: DatBoolean,
    /// True if related providers can replace each other.
    pub ha_supported: DatBoolean,
    /// Policy by which related providers share load.
    pub ha_loadbalancing: DatHaLb,
    /// Entries in `provider_specific_attr`.
    pub num_provider_specific_attr: DatCount,
    /// Attributes of the provider's choice.
    pub provider_specific_attr: *mut DatNamedAttr,
}

/// `DAT_EP_ATTR`. Zero in a limit means that the consumer has no requirement.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatEpAttr {
    /// Service type.
    pub service_type: DatServiceType,
    /// Maximum length of one message, in bytes.
    pub max_message_size: DatSegLength,
    /// Maximum length of one RDMA operation, in bytes.
    pub max_rdma_size: DatSegLength,
    /// Quality of service.
    pub qos: DatQos,
    /// Completion flags allowed for receives.
    pub recv_completion_flags: DatCompletionFlags,
    /// Completion flags allowed for requests.
    pub request_completion_flags: DatCompletionFlags,
    /// Maximum number of receives posted at once.
    pub max_recv_dtos: DatCount,
    /// Maximum number of requests posted at once.
    pub max_request_dtos: DatCount,
    /// Maximum number of segments of a receive.
    pub max_recv_iov: DatCount,
    /// Maximum number of segments of a request.
    pub max_request_iov: DatCount,
    /// Maximum number of concurrent incoming RDMA reads.
    pub max_rdma_read_in: DatCount,
    /// Maximum number of concurrent outgoing RDMA reads.
    pub max_rdma_read_out: DatCount,
    /// Number of receives taken from the SRQ above which an asynchronous event is delivered.
    pub srq_soft_hw: DatCount,
    /// Maximum number of segments of an RDMA read.
    pub max_rdma_read_iov: DatCount,
    /// Maximum number of segments of an RDMA write.
    pub max_rdma_write_iov: DatCount,
    /// Entries in `ep_transport_specific`.
    pub ep_transport_specific_count: DatCount,
    /// Attributes of the transport.
    pub ep_transport_specific: *mut DatNamedAttr,
    /// Entries in `ep_provider_specific`.
    pub ep_provider_specific_count: DatCount,
    /// Attributes of the provider's choice.
    pub ep_provider_specific: *mut DatNamedAttr,
}

/// `DAT_SRQ_ATTR`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DatSrqAttr {
    /// Maximum number of receives posted at once.
    pub max_recv_dtos: DatCount,
    /// Maximum number of segments of a receive.
    pub max_recv_iov: DatCount,
    /// Number of posted receives below which an asynchronous event is delivered.
    pub low_watermark: DatCount,
}

assert_layout!(DatNamedAttr, size 16, name @ 0, value @ 8);
assert_layout!(DatIaAttr, size 688, adapter_name @ 0, vendor_name @ 256,
    hardware_version_major @ 512, hardware_version_minor @ 516, firmware_version_major @ 520,
    firmware_version_minor @ 524, ia_address_ptr @ 528, max_eps @ 536, max_dto_per_ep @ 540,
    max_rdma_read_per_ep_in @ 544, max_rdma_read_per_ep_out @ 548, max_evds @ 552,
    max_evd_qlen @ 556, max_iov_segments_per_dto @ 560, max_lmrs @ 564, max_lmr_block_size @ 568,
    max_lmr_virtual_address @ 576, max_pzs @ 584, max_message_size @ 588, max_rdma_size @ 592,
    max_rmrs @ 596, max_rmr_target_address @ 600, max_srqs @ 608, max_ep_per_srq @ 612,
    max_recv_per_srq @ 616, max_iov_segments_per_rdma_read @ 620,
    max_iov_segments_per_rdma_write @ 624, max_rdma_read_in @ 628, max_rdma_read_out @ 632,
    max_rdma_read_per_ep_in_guaranteed @ 636, max_rdma_read_per_ep_out_guaranteed @ 640,
    zb_supported @ 644, extension_supported @ 648, extension_version @ 652,
    num_transport_attr @ 656, transport_attr @ 664, num_vendor_attr @ 672, vendor_attr @ 680);
assert_layout!(DatProviderAttr, size 520, provider_name @ 0, provider_version_major @ 256,
    provider_version_minor @ 260, dapl_version_major @ 264, dapl_version_minor @ 268,
    lmr_mem_types_supported @ 272, iov_ownership_on_return @ 276, dat_qos_supported @ 280,
    completion_flags_supported @ 284, is_thread_safe @ 288, max_private_data_size @ 292,
    supports_multipath @ 296, ep_creator @ 300, pz_support @ 304, optimal_buffer_alignment @ 308,
    evd_stream_merging_supported @ 312, srq_supported @ 456, srq_watermarks_supported @ 460,
    srq_ep_pz_difference_supported @ 464, srq_info_supported @ 468, ep_recv_info_supported @ 472,
    lmr_sync_req @ 476, dto_async_return_guaranteed @ 480, rdma_write_for_rdma_read_req @ 484,
    rdma_read_lmr_rmr_context_exposure @ 488, rmr_scope_supported @ 492, is_signal_safe @ 496,
    ha_supported @ 500, ha_loadbalancing @ 504, num_provider_specific_attr @ 508,
    provider_specific_attr @ 512);
assert_layout!(DatEpAttr, size 88, service_type @ 0, max_message_size @ 4, max_rdma_size @ 8,
    qos @ 12, recv_completion_flags @ 16, request_completion_flags @ 20, max_recv_dtos @ 24,
    max_request_dtos @ 28, max_recv_iov @ 32, max_request_iov @ 36, max_rdma_read_in @ 40,
    max_rdma_read_out @ 44, srq_soft_hw @ 48, max_rdma_read_iov @ 52, max_rdma_write_iov @ 56,
    ep_transport_specific_count @ 60, ep_transport_specific @ 64, ep_provider_specific_count @ 72,
    ep_provider_specific @ 80);
assert_layout!(DatSrqAttr, size 12, max_recv_dtos @ 0, max_recv_iov @ 4, low_watermark @ 8);

impl_zeroed!(
    DatNamedAttr,
    DatIaAttr,
    DatProviderAttr,
    DatEpAttr,
    DatSrqAttr
);
