//! Attributes of an interface adapter and of its provider, as owned Rust values.

use std::ffi::c_char;
use std::net::SocketAddr;

use dat_abi::*;

use crate::address::read_address;
use crate::error::owned_text;

/// A named attribute (`DAT_NAMED_ATTR`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttr {
    /// Name.
    pub name: String,
    /// Value as text; empty where the name alone says it.
    pub value: String,
}

/// Which family of extensions an interface adapter has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// None.
    None,
    /// InfiniBand operations.
    Ib,
    /// iWARP Socket Service Points.
    Iw,
    /// A number this crate does not know.
    Other(u32),
}

/// Attributes of an interface adapter (`DAT_IA_ATTR`). Sizes are in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IaAttr {
    /// Name of the adapter.
    pub adapter_name: String,
    /// Its maker.
    pub vendor_name: String,
    /// Hardware version, major and minor.
    pub hardware_version: (u32, u32),
    /// Firmware version, major and minor.
    pub firmware_version: (u32, u32),
    /// Its network address.
    pub address: Option<SocketAddr>,
    /// Endpoints at most.
    pub max_eps: i32,
    /// Work requests of one kind on an endpoint at most.
    pub max_dto_per_ep: i32,
    /// RDMA Reads served at once by one endpoint at most.
    pub max_rdma_read_per_ep_in: i32,
    /// RDMA Reads under way from one endpoint at most.
    pub max_rdma_read_per_ep_out: i32,
    /// Event dispatchers at most.
    pub max_evds: i32,
    /// Longest event queue.
    pub max_evd_qlen: i32,
    /// Local segments of a Send or Receive at most.
    pub max_iov_segments_per_dto: i32,
    /// Local memory regions at most.
    pub max_lmrs: i32,
    /// Largest local memory region.
    pub max_lmr_block_size: u32,
    /// Highest address that can be registered.
    pub max_lmr_virtual_address: u64,
    /// Protection zones at most.
    pub max_pzs: i32,
    /// Longest message of a Send.
    pub max_message_size: u32,
    /// Longest RDMA Read or Write.
    pub max_rdma_size: u32,
    /// Memory windows at most.
    pub max_rmrs: i32,
    /// Highest remote address.
    pub max_rmr_target_address: u64,
    /// Shared receive queues at most.
    pub max_srqs: i32,
    /// Endpoints on one shared receive queue at most.
    pub max_ep_per_srq: i32,
    /// Receives on one shared receive queue at most.
    pub max_recv_per_srq: i32,
    /// Local segments of an RDMA Read at most.
    pub max_iov_segments_per_rdma_read: i32,
    /// Local segments of an RDMA Write at most.
    pub max_iov_segments_per_rdma_write: i32,
    /// RDMA Reads served at once by the whole adapter at most.
    pub max_rdma_read_in: i32,
    /// RDMA Reads under way from the whole adapter at most.
    pub max_rdma_read_out: i32,
    /// Whether the inbound RDMA Read depth of an endpoint is guaranteed.
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    /// Whether the outbound RDMA Read depth of an endpoint is guaranteed.
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    /// Whether zero-based addressing works.
    pub zb_supported: bool,
    /// Family of extensions.
    pub extension: Extension,
    /// Version of the extensions.
    pub extension_version: i32,
    /// Attributes of the transport.
    pub transport: Vec<NamedAttr>,
    /// Attributes of the maker.
    pub vendor: Vec<NamedAttr>,
}

/// Attributes of a provider (`DAT_PROVIDER_ATTR`).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProviderAttr {
    /// Name of the provider.
    pub name: String,
    /// Its version, major and minor.
    pub version: (u32, u32),
    /// The DAT version it implements, major and minor.
    pub dapl_version: (u32, u32),
    /// Bits of the memory types that can be registered.
    pub lmr_mem_types_supported: u32,
    /// Who owns a list of segments after a post returned (`DAT_IOV_OWNERSHIP`).
    pub iov_ownership_on_return: u32,
    /// Bits of the qualities of service.
    pub qos_supported: u32,
    /// Bits of the completion flags.
    pub completion_flags_supported: u32,
    /// Whether it declares itself thread safe. Compatible providers say no whatever they do.
    pub is_thread_safe: bool,
    /// Private data of a connection request in bytes at most.
    pub max_private_data_size: i32,
    /// Whether multipath connections work.
    pub supports_multipath: bool,
    /// When the provider creates endpoints for a service point (`DAT_EP_CREATOR_FOR_PSP`).
    pub ep_creator: u32,
    /// Whether protection zones can be shared (`DAT_PZ_SUPPORT`).
    pub pz_support: u32,
    /// Buffer alignment in bytes that suits it best.
    pub optimal_buffer_alignment: u32,
    /// Which event streams one dispatcher can merge: software, connection request, DTO, connection,
    /// bind, asynchronous.
    pub evd_stream_merging_supported: [[bool; DAT_EVD_STREAM_COUNT]; DAT_EVD_STREAM_COUNT],
    /// Whether there are shared receive queues.
    pub srq_supported: bool,
    /// Watermarks of shared receive queues that work.
    pub srq_watermarks_supported: i32,
    /// Whether a shared receive queue and its endpoints may have different protection zones.
    pub srq_ep_pz_difference_supported: bool,
    /// What a query of a shared receive queue tells.
    pub srq_info_supported: i32,
    /// What a query of the receive side of an endpoint tells.
    pub ep_recv_info_supported: i32,
    /// Whether memory must be synchronised explicitly.
    pub lmr_sync_req: bool,
    /// Whether posting never blocks.
    pub dto_async_return_guaranteed: bool,
    /// Whether the sink of an RDMA Read needs the right of remote write.
    pub rdma_write_for_rdma_read_req: bool,
    /// Whether the sink of an RDMA Read is exposed to the peer.
    pub rdma_read_lmr_rmr_context_exposure: bool,
    /// Scope of memory windows (`DAT_RMR_SCOPE`).
    pub rmr_scope_supported: u32,
    /// Whether calls may be made from signal handlers.
    pub is_signal_safe: bool,
    /// Whether the high-availability calls work.
    pub ha_supported: bool,
    /// Load balancing it can do.
    pub ha_loadbalancing: u32,
    /// Attributes of its own, extensions included.
    pub specific: Vec<NamedAttr>,
}

impl IaAttr {
    /// # Safety
    ///
    /// `raw` was filled by `dat_ia_query` and its IA is open, so its pointers are null or valid.
    pub(crate) unsafe fn from_raw(raw: &DatIaAttr) -> Self {
        // SAFETY: the caller vouches for the address and the two lists of `raw`.
        let (address, transport, vendor) = unsafe {
            (
                read_address(raw.ia_address_ptr),
                read_named(raw.transport_attr, raw.num_transport_attr),
                read_named(raw.vendor_attr, raw.num_vendor_attr),
            )
        };
        Self {
            adapter_name: text_of(&raw.adapter_name),
            vendor_name: text_of(&raw.vendor_name),
            hardware_version: (raw.hardware_version_major, raw.hardware_version_minor),
            firmware_version: (raw.firmware_version_major, raw.firmware_version_minor),
            address,
            max_eps: raw.max_eps,
            max_dto_per_ep: raw.max_dto_per_ep,
            max_rdma_read_per_ep_in: raw.max_rdma_read_per_ep_in,
            max_rdma_read_per_ep_out: raw.max_rdma_read_per_ep_out,
            max_evds: raw.max_evds,
            max_evd_qlen: raw.max_evd_qlen,
            max_iov_segments_per_dto: raw.max_iov_segments_per_dto,
            max_lmrs: raw.max_lmrs,
            max_lmr_block_size: raw.max_lmr_block_size,
            max_lmr_virtual_address: raw.max_lmr_virtual_address,
            max_pzs: raw.max_pzs,
            max_message_size: raw.max_message_size,
            max_rdma_size: raw.max_rdma_size,
            max_rmrs: raw.max_rmrs,
            max_rmr_target_address: raw.max_rmr_target_address,
            max_srqs: raw.max_srqs,
            max_ep_per_srq: raw.max_ep_per_srq,
            max_recv_per_srq: raw.max_recv_per_srq,
            max_iov_segments_per_rdma_read: raw.max_iov_segments_per_rdma_read,
            max_iov_segments_per_rdma_write: raw.max_iov_segments_per_rdma_write,
            max_rdma_read_in: raw.max_rdma_read_in,
            max_rdma_read_out: raw.max_rdma_read_out,
            max_rdma_read_per_ep_in_guaranteed: raw.max_rdma_read_per_ep_in_guaranteed != DAT_FALSE,
            max_rdma_read_per_ep_out_guaranteed: raw.max_rdma_read_per_ep_out_guaranteed
                != DAT_FALSE,
            zb_supported: raw.zb_supported != DAT_FALSE,
            extension: Extension::from_raw(raw.extension_supported),
            extension_version: raw.extension_version,
            transport,
            vendor,
        }
    }
}

impl ProviderAttr {
    /// # Safety
    ///
    /// `raw` was filled by `dat_ia_query` and its IA is open, so its pointers are null or valid.
    pub(crate) unsafe fn from_raw(raw: &DatProviderAttr) -> Self {
        // SAFETY: the caller vouches for the list of `raw`.
        let specific =
            unsafe { read_named(raw.provider_specific_attr, raw.num_provider_specific_attr) };
        Self {
            name: text_of(&raw.provider_name),
            version: (raw.provider_version_major, raw.provider_version_minor),
            dapl_version: (raw.dapl_version_major, raw.dapl_version_minor),
            lmr_mem_types_supported: raw.lmr_mem_types_supported,
            iov_ownership_on_return: raw.iov_ownership_on_return,
            qos_supported: raw.dat_qos_supported,
            completion_flags_supported: raw.completion_flags_supported,
            is_thread_safe: raw.is_thread_safe != DAT_FALSE,
            max_private_data_size: raw.max_private_data_size,
            supports_multipath: raw.supports_multipath != DAT_FALSE,
            ep_creator: raw.ep_creator,
            pz_support: raw.pz_support,
            optimal_buffer_alignment: raw.optimal_buffer_alignment,
            evd_stream_merging_supported: raw
                .evd_stream_merging_supported
                .map(|row| row.map(|cell| cell != DAT_FALSE)),
            srq_supported: raw.srq_supported != DAT_FALSE,
            srq_watermarks_supported: raw.srq_watermarks_supported,
            srq_ep_pz_difference_supported: raw.srq_ep_pz_difference_supported != DAT_FALSE,
            srq_info_supported: raw.srq_info_supported,
            ep_recv_info_supported: raw.ep_recv_info_supported,
            lmr_sync_req: raw.lmr_sync_req != DAT_FALSE,
            dto_async_return_guaranteed: raw.dto_async_return_guaranteed != DAT_FALSE,
            rdma_write_for_rdma_read_req: raw.rdma_write_for_rdma_read_req != DAT_FALSE,
            rdma_read_lmr_rmr_context_exposure: raw.rdma_read_lmr_rmr_context_exposure != DAT_FALSE,
            rmr_scope_supported: raw.rmr_scope_supported,
            is_signal_safe: raw.is_signal_safe != DAT_FALSE,
            ha_supported: raw.ha_supported != DAT_FALSE,
            ha_loadbalancing: raw.ha_loadbalancing,
            specific,
        }
    }

    /// The value of one of its own named attributes.
    #[must_use]
    pub fn specific(&self, name: &str) -> Option<&str> {
        self.specific
            .iter()
            .find(|attr| attr.name == name)
            .map(|attr| attr.value.as_str())
    }

    /// Whether Socket Service Points work: the named attribute that says so is present
    /// (DAT 2.0 iWARP extensions 3).
    #[must_use]
    pub fn has_socket_service_points(&self) -> bool {
        DAT_IW_ATTR_SSP
            .to_str()
            .is_ok_and(|name| self.specific(name).is_some())
    }
}

impl Extension {
    fn from_raw(raw: DatExtension) -> Self {
        match raw {
            DAT_EXTENSION_NONE => Self::None,
            DAT_EXTENSION_IB => Self::Ib,
            DAT_EXTENSION_IW => Self::Iw,
            other => Self::Other(other),
        }
    }
}

/// The text of a fixed name field, up to its NUL or its end.
pub(crate) fn text_of(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field
        .iter()
        .take_while(|byte| **byte != 0)
        .flat_map(|byte| byte.to_ne_bytes())
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// # Safety
///
/// `list` is null or points at `count` named attributes whose strings are null or terminated.
unsafe fn read_named(list: *const DatNamedAttr, count: DatCount) -> Vec<NamedAttr> {
    let count = usize::try_from(count).unwrap_or(0);
    if list.is_null() {
        return Vec::new();
    }
    (0..count)
        .map(|index| {
            // SAFETY: `index` is below the length that the caller vouches for.
            let raw = unsafe { list.add(index).read() };
            NamedAttr {
                // SAFETY: the caller vouches for both strings.
                name: unsafe { owned_text(raw.name) }.unwrap_or_default(),
                // SAFETY: as above.
                value: unsafe { owned_text(raw.value) }.unwrap_or_default(),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_field_without_terminator_ends_with_the_field() {
        let full = [b'x' as c_char; 4];
        assert_eq!(text_of(&full), "xxxx");
        let mut short = full;
        short[1] = 0;
        assert_eq!(text_of(&short), "x");
    }

    #[test]
    fn named_attributes_are_copied_and_null_values_become_empty() {
        let list = [
            DatNamedAttr {
                name: c"DAT_IW_ATTR_SSP".as_ptr(),
                value: std::ptr::null(),
            },
            DatNamedAttr {
                name: c"A".as_ptr(),
                value: c"1".as_ptr(),
            },
        ];
        // SAFETY: `list` holds two attributes with constant strings.
        let named = unsafe { read_named(list.as_ptr(), 2) };
        assert_eq!(
            named[0],
            NamedAttr {
                name: "DAT_IW_ATTR_SSP".into(),
                value: String::new()
            }
        );
        assert_eq!(named[1].value, "1");
        // SAFETY: null and negative counts are allowed.
        assert!(unsafe { read_named(std::ptr::null(), 5) }.is_empty());
        // SAFETY: as above.
        assert!(unsafe { read_named(list.as_ptr(), -1) }.is_empty());
    }
}
