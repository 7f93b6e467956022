//! `DAT_IA_ATTR` and `DAT_PROVIDER_ATTR` of an open IA, built once.
//!
//! Owns every string and the socket address to which the two structures point, so they stay valid
//! as long as the IA is open. Both structures are complete for any mask of the consumer, because
//! the test tools of OFA set one bit and read another field.

mod named;

use std::ffi::c_char;

use dat_abi::*;

use self::named::NamedAttrs;
use crate::addr::SharedAddress;
use crate::rnic::RnicAttr;

/// Version of the DAT interface, major part, as OFA's providers report it here. The release of this
/// provider is the attribute `DAT_RS_VERSION`.
const PROVIDER_VERSION_MAJOR: u32 = 2;
/// Version of the DAT interface, minor part.
const PROVIDER_VERSION_MINOR: u32 = 0;

/// Streams in the order of rows and columns of `evd_stream_merging_supported`.
const STREAMS: [DatEvdFlags; DAT_EVD_STREAM_COUNT] = [
    DAT_EVD_SOFTWARE_FLAG,
    DAT_EVD_CR_FLAG,
    DAT_EVD_DTO_FLAG,
    DAT_EVD_CONNECTION_FLAG,
    DAT_EVD_RMR_BIND_FLAG,
    DAT_EVD_ASYNC_FLAG,
];

/// Both attribute structures and the data to which they point.
#[derive(Debug)]
pub(crate) struct Attributes {
    ia: Box<DatIaAttr>,
    provider: Box<DatProviderAttr>,
    /// Boxed, so that its address does not change when this structure moves.
    address: Box<SharedAddress>,
    /// Owns the target of `provider_specific_attr`.
    _named: NamedAttrs,
}

// SAFETY: the raw pointers inside are to memory that this structure owns (boxed) and never changes.
unsafe impl Send for Attributes {}
// SAFETY: as for Send.
unsafe impl Sync for Attributes {}

impl Attributes {
    pub(crate) fn new(ia_name: &str, attr: &RnicAttr) -> Self {
        let address = Box::new(SharedAddress::new());
        address.set(attr.address);
        let named = NamedAttrs::new(attr);
        let mut ia = Box::new(ia_attr(attr));
        ia.ia_address_ptr = address.as_dat();
        let mut provider = Box::new(provider_attr(ia_name, attr));
        provider.num_provider_specific_attr = named.count();
        provider.provider_specific_attr = named.as_dat();
        Self {
            ia,
            provider,
            address,
            _named: named,
        }
    }

    pub(crate) fn ia(&self) -> &DatIaAttr {
        &self.ia
    }

    pub(crate) fn provider(&self) -> &DatProviderAttr {
        &self.provider
    }

    pub(crate) fn address(&self) -> DatIaAddressPtr {
        self.address.as_dat()
    }
}

fn ia_attr(attr: &RnicAttr) -> DatIaAttr {
    let (extension_supported, extension_version) = extension_of(attr);
    let read_in = count(attr.ird_max);
    let read_out = count(attr.ord_max);
    DatIaAttr {
        adapter_name: name(&attr.adapter_name),
        vendor_name: name(&attr.vendor_name),
        max_eps: count(attr.qp_max),
        max_dto_per_ep: count(attr.wr_max),
        max_rdma_read_per_ep_in: read_in,
        max_rdma_read_per_ep_out: read_out,
        max_evds: count(attr.cq_max),
        max_evd_qlen: count(attr.cqe_max),
        max_iov_segments_per_dto: count(attr.sge_max),
        max_lmrs: count(attr.mr_max),
        // The DAT field has 32 bits, although regions may be longer.
        max_lmr_block_size: u32::try_from(attr.mr_len_max).unwrap_or(u32::MAX),
        max_lmr_virtual_address: u64::MAX,
        max_pzs: count(attr.pd_max),
        max_message_size: attr.message_len_max,
        max_rdma_size: attr.message_len_max,
        max_rmrs: count(attr.mw_max),
        max_rmr_target_address: u64::MAX,
        max_srqs: count(attr.srq_max),
        max_ep_per_srq: if attr.srq_max > 0 {
            count(attr.qp_max)
        } else {
            0
        },
        max_recv_per_srq: if attr.srq_max > 0 {
            count(attr.srq_wr_max)
        } else {
            0
        },
        max_iov_segments_per_rdma_read: count(attr.read_sge_max),
        max_iov_segments_per_rdma_write: count(attr.sge_max),
        max_rdma_read_in: times(attr.ird_max, attr.qp_max),
        max_rdma_read_out: times(attr.ord_max, attr.qp_max),
        max_rdma_read_per_ep_in_guaranteed: DAT_TRUE,
        max_rdma_read_per_ep_out_guaranteed: DAT_TRUE,
        zb_supported: DatBoolean::from(attr.zero_based_regions),
        extension_supported,
        extension_version,
        ..DatIaAttr::zeroed()
    }
}

/// Returns the family of extensions, for which DAT has only one field. With atomics and immediate
/// data it is IB, because OFA's tools check for IB; a named attribute then announces Socket Service
/// Points.
///
/// Without atomics it is iWARP, even if the device cannot connect over a socket: only then does the
/// registry library pass on the calls, so that they can return the reason of the refusal
/// (`DAT_MODEL_NOT_SUPPORTED`). To consumers (`dtest -w`, `dtestx`) IB would mean that a write with
/// immediate data is supported.
fn extension_of(attr: &RnicAttr) -> (DatExtension, DatCount) {
    if attr.immediate_and_atomics {
        (DAT_EXTENSION_IB, DAT_IB_EXTENSION_VERSION)
    } else {
        (DAT_EXTENSION_IW, DAT_IW_EXTENSION_VERSION)
    }
}

fn provider_attr(ia_name: &str, attr: &RnicAttr) -> DatProviderAttr {
    let has_srq = DatBoolean::from(attr.srq_max > 0);
    let has_watermarks = attr.srq_max > 0 && attr.recv_watermarks;
    DatProviderAttr {
        provider_name: name(ia_name),
        provider_version_major: PROVIDER_VERSION_MAJOR,
        provider_version_minor: PROVIDER_VERSION_MINOR,
        // Registry libraries use these three values as a key to find the provider when an IA is
        // closed.
        dapl_version_major: DAT_VERSION_MAJOR,
        dapl_version_minor: DAT_VERSION_MINOR,
        is_thread_safe: DAT_FALSE,
        // The types are OR-ed; virtual memory is the absence of bits.
        lmr_mem_types_supported: DAT_MEM_TYPE_VIRTUAL
            | DAT_MEM_TYPE_LMR
            | DAT_MEM_TYPE_SHARED_VIRTUAL,
        iov_ownership_on_return: DAT_IOV_CONSUMER,
        dat_qos_supported: DAT_QOS_BEST_EFFORT,
        completion_flags_supported: DAT_COMPLETION_SUPPRESS_FLAG
            | DAT_COMPLETION_SOLICITED_WAIT_FLAG
            | DAT_COMPLETION_UNSIGNALLED_FLAG
            | DAT_COMPLETION_BARRIER_FENCE_FLAG
            | DAT_COMPLETION_EVD_THRESHOLD_FLAG
            | DAT_RS_COMPLETION_INLINE_FLAG,
        max_private_data_size: count(attr.private_data_len_max),
        supports_multipath: DAT_FALSE,
        ep_creator: DAT_PSP_CREATES_EP_IFASKED,
        pz_support: DAT_PZ_UNIQUE,
        optimal_buffer_alignment: DAT_OPTIMAL_ALIGNMENT,
        evd_stream_merging_supported: merging(),
        srq_supported: has_srq,
        srq_watermarks_supported: DatCount::from(has_watermarks),
        srq_ep_pz_difference_supported: DAT_FALSE,
        srq_info_supported: has_srq as DatCount,
        ep_recv_info_supported: 1,
        lmr_sync_req: DAT_FALSE,
        dto_async_return_guaranteed: DAT_TRUE,
        // The sink of an RDMA Read needs no privilege for the peer. If the device needs one, the
        // provider sets it.
        rdma_write_for_rdma_read_req: DAT_FALSE,
        rdma_read_lmr_rmr_context_exposure: DAT_TRUE,
        rmr_scope_supported: DAT_RMR_SCOPE_ANY,
        is_signal_safe: DAT_FALSE,
        ha_supported: DAT_FALSE,
        ha_loadbalancing: DAT_HA_LB_NONE,
        ..DatProviderAttr::zeroed()
    }
}

/// Returns the pairs of streams that `dat_evd_create` accepts.
fn merging() -> [[DatBoolean; DAT_EVD_STREAM_COUNT]; DAT_EVD_STREAM_COUNT] {
    STREAMS.map(|row| STREAMS.map(|column| DatBoolean::from(is_mergeable(row | column))))
}

/// Returns true if these streams may share an EVD. Asynchronous events may not, nor may data
/// transfers share it with connection events, because two queues could not keep their relative
/// order. The provider attribute `evd_stream_merging_supported` reports the same pairs.
pub(crate) fn is_mergeable(flags: DatEvdFlags) -> bool {
    let known = DAT_EVD_SOFTWARE_FLAG
        | DAT_EVD_CR_FLAG
        | DAT_EVD_CONNECTION_FLAG
        | DAT_EVD_DTO_FLAG
        | DAT_EVD_RMR_BIND_FLAG
        | DAT_IB_EVD_EXTENSION_FLAG;
    let both = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG;
    flags & !known == 0 && flags & both != both
}

/// Converts a limit to DAT's signed type.
fn count(limit: u32) -> DatCount {
    DatCount::try_from(limit).unwrap_or(DatCount::MAX)
}

fn times(each: u32, number: u32) -> DatCount {
    count(each.saturating_mul(number))
}

/// Returns the text in a name field, truncated to leave space for the terminating zero.
fn name(text: &str) -> DatName {
    let mut field = [0; DAT_NAME_MAX_LENGTH];
    let bytes = text
        .bytes()
        .take_while(|byte| *byte != 0)
        .take(DAT_NAME_MAX_LENGTH - 1);
    for (place, byte) in field.iter_mut().zip(bytes) {
        *place = c_char::from_ne_bytes([byte]);
    }
    field
}

#[cfg(test)]
mod tests;
