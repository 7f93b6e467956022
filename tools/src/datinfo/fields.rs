//! Attributes as names and values.

use dat_api::{Extension, IaAttr, NamedAttr, ProviderAttr};
use serde_json::{Map, Value, json};

use crate::names;

/// Builds an object of the fields named.
macro_rules! object {
    ($attr:ident: $($field:ident),+ $(,)?) => {{
        let mut map = Map::new();
        $(map.insert(stringify!($field).to_owned(), json!($attr.$field));)+
        map
    }};
}

/// Attributes of an adapter.
pub(crate) fn of_ia(attr: &IaAttr) -> Value {
    let mut map = object!(attr: adapter_name, vendor_name);
    map.insert("hardware_version".into(), version(attr.hardware_version));
    map.insert("firmware_version".into(), version(attr.firmware_version));
    map.insert(
        "address".into(),
        json!(attr.address.map(|address| address.ip().to_string())),
    );
    map.extend(object!(attr:
        max_eps,
        max_dto_per_ep,
        max_rdma_read_per_ep_in,
        max_rdma_read_per_ep_out,
        max_evds,
        max_evd_qlen,
        max_iov_segments_per_dto,
        max_lmrs,
        max_lmr_block_size,
        max_lmr_virtual_address,
        max_pzs,
        max_message_size,
        max_rdma_size,
        max_rmrs,
        max_rmr_target_address,
        max_srqs,
        max_ep_per_srq,
        max_recv_per_srq,
        max_iov_segments_per_rdma_read,
        max_iov_segments_per_rdma_write,
        max_rdma_read_in,
        max_rdma_read_out,
        max_rdma_read_per_ep_in_guaranteed,
        max_rdma_read_per_ep_out_guaranteed,
        zb_supported,
    ));
    map.insert("extension".into(), json!(extension(attr.extension)));
    map.insert("extension_version".into(), json!(attr.extension_version));
    map.insert("transport_attr".into(), named(&attr.transport));
    map.insert("vendor_attr".into(), named(&attr.vendor));
    Value::Object(map)
}

pub(crate) fn of_provider(attr: &ProviderAttr) -> Value {
    let mut map = object!(attr: name);
    map.insert("version".into(), version(attr.version));
    map.insert("dapl_version".into(), version(attr.dapl_version));
    map.extend(object!(attr:
        lmr_mem_types_supported,
        iov_ownership_on_return,
        qos_supported,
        completion_flags_supported,
        is_thread_safe,
        max_private_data_size,
        supports_multipath,
        ep_creator,
        pz_support,
        optimal_buffer_alignment,
        evd_stream_merging_supported,
        srq_supported,
        srq_watermarks_supported,
        srq_ep_pz_difference_supported,
        srq_info_supported,
        ep_recv_info_supported,
        lmr_sync_req,
        dto_async_return_guaranteed,
        rdma_write_for_rdma_read_req,
        rdma_read_lmr_rmr_context_exposure,
        rmr_scope_supported,
        is_signal_safe,
        ha_supported,
        ha_loadbalancing,
    ));
    for (name, value) in &mut map {
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        if let Some(names) = number.and_then(|number| names::of(name, number)) {
            *value = json!(names);
        }
    }
    map.insert("provider_specific_attr".into(), named(&attr.specific));
    map.insert(
        "socket_service_points".into(),
        json!(attr.has_socket_service_points()),
    );
    Value::Object(map)
}

fn version((major, minor): (u32, u32)) -> Value {
    json!(format!("{major}.{minor}"))
}

fn extension(extension: Extension) -> String {
    match extension {
        Extension::None => "none".into(),
        Extension::Ib => "IB".into(),
        Extension::Iw => "IW".into(),
        Extension::Other(number) => number.to_string(),
    }
}

fn named(list: &[NamedAttr]) -> Value {
    Value::Object(
        list.iter()
            .map(|attr| (attr.name.clone(), json!(attr.value)))
            .collect(),
    )
}
