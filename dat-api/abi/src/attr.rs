//! Attributes of the IA, the provider, endpoints and shared receive queues (DAT 2.0 chapter 6).

use crate::*;
use core::ffi::c_char;

/// A name field: a NUL-terminated string in a fixed array.
pub type DatName = [c_char; DAT_NAME_MAX_LENGTH];

c_structs! {
    /// `DAT_NAMED_ATTR`: an attribute as a pair of strings.
    pub struct DatNamedAttr, size 16 {
        name @ 0: *const c_char,
        value @ 8: *const c_char,
    }

    /// `DAT_IA_ATTR`. Strings and pointers belong to the provider and live as long as the IA is
    /// open.
    pub struct DatIaAttr, size 688 {
        adapter_name @ 0: DatName,
        vendor_name @ 256: DatName,
        hardware_version_major @ 512: DatUint32,
        hardware_version_minor @ 516: DatUint32,
        firmware_version_major @ 520: DatUint32,
        firmware_version_minor @ 524: DatUint32,
        /// Address of the adapter; consumers expect `AF_INET`.
        ia_address_ptr @ 528: DatIaAddressPtr,
        max_eps @ 536: DatCount,
        /// Maximum number of posted operations on one endpoint.
        max_dto_per_ep @ 540: DatCount,
        /// Maximum number of concurrent incoming RDMA reads on one endpoint.
        max_rdma_read_per_ep_in @ 544: DatCount,
        /// Maximum number of concurrent outgoing RDMA reads on one endpoint.
        max_rdma_read_per_ep_out @ 548: DatCount,
        max_evds @ 552: DatCount,
        /// Maximum number of events in one dispatcher.
        max_evd_qlen @ 556: DatCount,
        /// Maximum number of segments of one operation.
        max_iov_segments_per_dto @ 560: DatCount,
        max_lmrs @ 564: DatCount,
        /// Maximum size of one local memory region, in bytes.
        max_lmr_block_size @ 568: DatSegLength,
        /// Highest address that can be registered.
        max_lmr_virtual_address @ 576: DatVaddr,
        max_pzs @ 584: DatCount,
        /// Maximum length of one message, in bytes.
        max_message_size @ 588: DatSegLength,
        /// Maximum length of one RDMA operation, in bytes.
        max_rdma_size @ 592: DatSegLength,
        max_rmrs @ 596: DatCount,
        /// Highest address that can be a remote target.
        max_rmr_target_address @ 600: DatVaddr,
        max_srqs @ 608: DatCount,
        /// Maximum number of endpoints on one shared receive queue.
        max_ep_per_srq @ 612: DatCount,
        /// Maximum number of receives posted on one shared receive queue.
        max_recv_per_srq @ 616: DatCount,
        /// Maximum number of segments of one RDMA read.
        max_iov_segments_per_rdma_read @ 620: DatCount,
        /// Maximum number of segments of one RDMA write.
        max_iov_segments_per_rdma_write @ 624: DatCount,
        /// Maximum number of concurrent incoming RDMA reads on the adapter.
        max_rdma_read_in @ 628: DatCount,
        /// Maximum number of concurrent outgoing RDMA reads on the adapter.
        max_rdma_read_out @ 632: DatCount,
        /// True if every endpoint gets `max_rdma_read_per_ep_in`.
        max_rdma_read_per_ep_in_guaranteed @ 636: DatBoolean,
        /// True if every endpoint gets `max_rdma_read_per_ep_out`.
        max_rdma_read_per_ep_out_guaranteed @ 640: DatBoolean,
        zb_supported @ 644: DatBoolean,
        extension_supported @ 648: DatExtension,
        extension_version @ 652: DatCount,
        num_transport_attr @ 656: DatCount,
        transport_attr @ 664: *mut DatNamedAttr,
        num_vendor_attr @ 672: DatCount,
        vendor_attr @ 680: *mut DatNamedAttr,
    }
}

/// The number of rows and of columns of [`DatProviderAttr::evd_stream_merging_supported`]: one for
/// each kind of event stream.
pub const DAT_EVD_STREAM_COUNT: usize = 6;

c_structs! {
    /// `DAT_PROVIDER_ATTR`.
    pub struct DatProviderAttr, size 520 {
        provider_name @ 0: DatName,
        provider_version_major @ 256: DatUint32,
        provider_version_minor @ 260: DatUint32,
        /// Version of the interface: 2. A registry uses this value as a key to find the provider
        /// again.
        dapl_version_major @ 264: DatUint32,
        /// Version of the interface: 0.
        dapl_version_minor @ 268: DatUint32,
        /// Memory types, OR-ed.
        lmr_mem_types_supported @ 272: DatMemType,
        /// Owner of the segment lists after posting.
        iov_ownership_on_return @ 276: DatIovOwnership,
        /// Qualities of service, OR-ed.
        dat_qos_supported @ 280: DatQos,
        /// Completion flags, OR-ed.
        completion_flags_supported @ 284: DatCompletionFlags,
        /// True if calls on one object may overlap. A registry uses this value as a key to find the
        /// provider again.
        is_thread_safe @ 288: DatBoolean,
        /// Maximum length of private data, in bytes.
        max_private_data_size @ 292: DatCount,
        /// True if connections can use several paths.
        supports_multipath @ 296: DatBoolean,
        /// Policy by which the provider creates endpoints for connection requests.
        ep_creator @ 300: DatEpCreatorForPsp,
        /// Support for sharing protection zones.
        pz_support @ 304: DatPzSupport,
        /// Best buffer alignment in bytes.
        optimal_buffer_alignment @ 308: DatUint32,
        /// Event streams that may share an EVD; order: software, CR, DTO, connection, bind, async.
        evd_stream_merging_supported @ 312:
            [[DatBoolean; DAT_EVD_STREAM_COUNT]; DAT_EVD_STREAM_COUNT],
        srq_supported @ 456: DatBoolean,
        /// Supported watermarks of shared receive queues.
        srq_watermarks_supported @ 460: DatCount,
        /// True if endpoints may have a different protection zone from their shared receive queue.
        srq_ep_pz_difference_supported @ 464: DatBoolean,
        /// Counts that `dat_srq_query` can return.
        srq_info_supported @ 468: DatCount,
        /// Counts that `dat_ep_recv_query` can return.
        ep_recv_info_supported @ 472: DatCount,
        /// True if `dat_lmr_sync_rdma_*` are needed.
        lmr_sync_req @ 476: DatBoolean,
        /// True if a post returns before its transfer is done.
        dto_async_return_guaranteed @ 480: DatBoolean,
        /// True if the target of an RDMA read needs write privileges.
        rdma_write_for_rdma_read_req @ 484: DatBoolean,
        /// True if RDMA reads expose the local context to the peer.
        rdma_read_lmr_rmr_context_exposure @ 488: DatBoolean,
        rmr_scope_supported @ 492: DatRmrScope,
        /// True if calls are safe in signal handlers.
        is_signal_safe @ 496: DatBoolean,
        /// True if related providers can replace each other.
        ha_supported @ 500: DatBoolean,
        /// Policy by which related providers share load.
        ha_loadbalancing @ 504: DatHaLb,
        num_provider_specific_attr @ 508: DatCount,
        provider_specific_attr @ 512: *mut DatNamedAttr,
    }

    /// `DAT_EP_ATTR`. Zero in a limit means that the consumer has no requirement.
    pub struct DatEpAttr, size 88 {
        service_type @ 0: DatServiceType,
        /// Maximum length of one message, in bytes.
        max_message_size @ 4: DatSegLength,
        /// Maximum length of one RDMA operation, in bytes.
        max_rdma_size @ 8: DatSegLength,
        qos @ 12: DatQos,
        /// Completion flags allowed for receives.
        recv_completion_flags @ 16: DatCompletionFlags,
        /// Completion flags allowed for requests.
        request_completion_flags @ 20: DatCompletionFlags,
        /// Maximum number of receives posted at once.
        max_recv_dtos @ 24: DatCount,
        /// Maximum number of requests posted at once.
        max_request_dtos @ 28: DatCount,
        /// Maximum number of segments of a receive.
        max_recv_iov @ 32: DatCount,
        /// Maximum number of segments of a request.
        max_request_iov @ 36: DatCount,
        /// Maximum number of concurrent incoming RDMA reads.
        max_rdma_read_in @ 40: DatCount,
        /// Maximum number of concurrent outgoing RDMA reads.
        max_rdma_read_out @ 44: DatCount,
        /// Number of receives taken from the SRQ above which an asynchronous event is delivered.
        srq_soft_hw @ 48: DatCount,
        /// Maximum number of segments of an RDMA read.
        max_rdma_read_iov @ 52: DatCount,
        /// Maximum number of segments of an RDMA write.
        max_rdma_write_iov @ 56: DatCount,
        ep_transport_specific_count @ 60: DatCount,
        ep_transport_specific @ 64: *mut DatNamedAttr,
        ep_provider_specific_count @ 72: DatCount,
        ep_provider_specific @ 80: *mut DatNamedAttr,
    }

    /// `DAT_SRQ_ATTR`.
    pub struct DatSrqAttr, size 12 {
        /// Maximum number of receives posted at once.
        max_recv_dtos @ 0: DatCount,
        /// Maximum number of segments of a receive.
        max_recv_iov @ 4: DatCount,
        /// Number of posted receives below which an asynchronous event is delivered.
        low_watermark @ 8: DatCount,
    }
}
