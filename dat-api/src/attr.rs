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
    /// Value as text; empty for an attribute that has a name only.
    pub value: String,
}

/// Family of extensions of an interface adapter (`DAT_EXTENSION`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extension {
    /// No extension.
    None,
    /// InfiniBand operations.
    Ib,
    /// iWARP Socket Service Points.
    Iw,
    /// A number that this crate does not define.
    Other(u32),
}

/// Attributes of an interface adapter (`DAT_IA_ATTR`). Sizes are in bytes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IaAttr {
    /// Name of the adapter.
    pub adapter_name: String,
    /// Name of the vendor.
    pub vendor_name: String,
    /// Hardware version, major and minor.
    pub hardware_version: (u32, u32),
    /// Firmware version, major and minor.
    pub firmware_version: (u32, u32),
    /// Network address of the adapter.
    pub address: Option<SocketAddr>,
    /// Maximum number of endpoints.
    pub max_eps: i32,
    /// Maximum number of outstanding work requests of one kind per endpoint.
    pub max_dto_per_ep: i32,
    /// Maximum number of RDMA Reads that one endpoint serves concurrently.
    pub max_rdma_read_per_ep_in: i32,
    /// Maximum number of RDMA Reads that one endpoint can have outstanding.
    pub max_rdma_read_per_ep_out: i32,
    /// Maximum number of event dispatchers.
    pub max_evds: i32,
    /// Maximum length of an event queue.
    pub max_evd_qlen: i32,
    /// Maximum number of local segments of a Send or Receive.
    pub max_iov_segments_per_dto: i32,
    /// Maximum number of local memory regions.
    pub max_lmrs: i32,
    /// Maximum size of a local memory region, in bytes.
    pub max_lmr_block_size: u32,
    /// Highest address that can be registered.
    pub max_lmr_virtual_address: u64,
    /// Maximum number of protection zones.
    pub max_pzs: i32,
    /// Maximum length of a Send, in bytes.
    pub max_message_size: u32,
    /// Maximum length of an RDMA Read or Write, in bytes.
    pub max_rdma_size: u32,
    /// Maximum number of memory windows.
    pub max_rmrs: i32,
    /// Highest remote address.
    pub max_rmr_target_address: u64,
    /// Maximum number of shared receive queues.
    pub max_srqs: i32,
    /// Maximum number of endpoints on one shared receive queue.
    pub max_ep_per_srq: i32,
    /// Maximum number of receives on one shared receive queue.
    pub max_recv_per_srq: i32,
    /// Maximum number of local segments of an RDMA Read.
    pub max_iov_segments_per_rdma_read: i32,
    /// Maximum number of local segments of an RDMA Write.
    pub max_iov_segments_per_rdma_write: i32,
    /// Maximum number of RDMA Reads that the adapter serves concurrently.
    pub max_rdma_read_in: i32,
    /// Maximum number of RDMA Reads that the adapter can have outstanding.
    pub max_rdma_read_out: i32,
    /// True if every endpoint gets the inbound RDMA Read depth `max_rdma_read_per_ep_in`.
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    /// True if every endpoint gets the outbound RDMA Read depth `max_rdma_read_per_ep_out`.
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    /// True if zero-based addressing is supported.
    pub zb_supported: bool,
    /// Family of extensions.
    pub extension: Extension,
    /// Version of the extensions.
    pub extension_version: i32,
    /// Attributes of the transport.
    pub transport: Vec<NamedAttr>,
    /// Attributes of the vendor's choice.
    pub vendor: Vec<NamedAttr>,
}

/// Attributes of a provider (`DAT_PROVIDER_ATTR`).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ProviderAttr {
    /// Name of the provider.
    pub name: String,
    /// Version of the provider, major and minor.
    pub version: (u32, u32),
    /// Version of DAT that the provider implements, major and minor.
    pub dapl_version: (u32, u32),
    /// Bits of the memory types that can be registered.
    pub lmr_mem_types_supported: u32,
    /// Owner of a segment list after a post has returned (`DAT_IOV_OWNERSHIP`).
    pub iov_ownership_on_return: u32,
    /// Bits of the supported qualities of service.
    pub qos_supported: u32,
    /// Bits of the supported completion flags.
    pub completion_flags_supported: u32,
    /// True if the provider declares itself thread safe. Compatible providers declare false even if
    /// they are.
    pub is_thread_safe: bool,
    /// Maximum length of the private data of a connection request, in bytes.
    pub max_private_data_size: i32,
    /// True if multipath connections are supported.
    pub supports_multipath: bool,
    /// Policy by which the provider creates endpoints for a service point
    /// (`DAT_EP_CREATOR_FOR_PSP`).
    pub ep_creator: u32,
    /// Support for sharing protection zones (`DAT_PZ_SUPPORT`).
    pub pz_support: u32,
    /// Buffer alignment, in bytes, that gives the best performance.
    pub optimal_buffer_alignment: u32,
    /// The event streams that one dispatcher can merge. Rows and columns are in the order software,
    /// connection request, DTO, connection, bind, asynchronous.
    pub evd_stream_merging_supported: [[bool; DAT_EVD_STREAM_COUNT]; DAT_EVD_STREAM_COUNT],
    /// True if shared receive queues are supported.
    pub srq_supported: bool,
    /// Supported watermarks of shared receive queues.
    pub srq_watermarks_supported: i32,
    /// True if a shared receive queue and its endpoints may have different protection zones.
    pub srq_ep_pz_difference_supported: bool,
    /// The counts that a query of a shared receive queue can return.
    pub srq_info_supported: i32,
    /// The counts that a query of the receive side of an endpoint can return.
    pub ep_recv_info_supported: i32,
    /// True if the consumer must synchronise memory explicitly.
    pub lmr_sync_req: bool,
    /// True if a post returns before its transfer is done.
    pub dto_async_return_guaranteed: bool,
    /// True if the sink of an RDMA Read needs the privilege of remote write.
    pub rdma_write_for_rdma_read_req: bool,
    /// True if the sink of an RDMA Read is exposed to the peer.
    pub rdma_read_lmr_rmr_context_exposure: bool,
    /// Scope of memory windows (`DAT_RMR_SCOPE`).
    pub rmr_scope_supported: u32,
    /// True if calls may be made from signal handlers.
    pub is_signal_safe: bool,
    /// True if the high-availability calls are supported.
    pub ha_supported: bool,
    /// Supported policy of load balancing (`DAT_HA_LB`).
    pub ha_loadbalancing: u32,
    /// Attributes of the provider's choice, extensions included.
    pub specific: Vec<NamedAttr>,
}

impl IaAttr {
    /// # Safety
    ///
    /// `raw` was filled by `dat_ia_query` and its IA is open, so its pointers are null or valid.
    pub(crate) unsafe fn from_raw(raw: &DatIaAttr) -> Self {
        // SAFETY: the caller guarantees that the address and the two lists of `raw` are null or
        // valid.
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
        // SAFETY: the caller guarantees that the list of `raw` is null or valid.
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

    /// Returns the value of the provider-specific attribute `name`.
    #[must_use]
    pub fn specific(&self, name: &str) -> Option<&str> {
        self.specific
            .iter()
            .find(|attr| attr.name == name)
            .map(|attr| attr.value.as_str())
    }

    /// Returns true if Socket Service Points are supported, which the provider shows by a named
    /// attribute (DAT 2.0 iWARP extensions 3).
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

/// Returns the text of a fixed name field, up to its NUL or its end.
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
            // SAFETY: `index` is below `count`, and the caller guarantees that many entries.
            let raw = unsafe { list.add(index).read() };
            NamedAttr {
                // SAFETY: the caller guarantees that both strings are null or terminated.
                name: unsafe { owned_text(raw.name) }.unwrap_or_default(),
                // SAFETY: the caller guarantees that both strings are null or terminated.
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
        // SAFETY: null and negative counts are allowed.
        assert!(unsafe { read_named(list.as_ptr(), -1) }.is_empty());
    }
}
