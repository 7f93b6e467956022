//! Tests that the attributes match the abilities of the RNIC.

use std::ffi::CStr;

use super::*;
use crate::rnic::NamedAttr;
use crate::scripted_rnic;

fn named(attributes: &Attributes, name: &str) -> Vec<String> {
    let provider = attributes.provider();
    let count = usize::try_from(provider.num_provider_specific_attr).unwrap();
    // SAFETY: the array has `count` entries, and lives as long as `attributes`.
    let array = unsafe { std::slice::from_raw_parts(provider.provider_specific_attr, count) };
    // SAFETY: the C strings live as long as `attributes`.
    let text = |text| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    let of_name = array.iter().filter(|attr| text(attr.name) == name);
    of_name.map(|attr| text(attr.value)).collect()
}

#[test]
fn zero_based_addresses_and_watermarks_are_announced_if_supported() {
    for (works, srq_max) in [(true, 4), (false, 4), (true, 0)] {
        let attributes = Attributes::new(
            "ia",
            &RnicAttr {
                zero_based_regions: works,
                recv_watermarks: works,
                srq_max,
                ..scripted_rnic::attr()
            },
        );
        assert_eq!(attributes.ia().zb_supported, DatBoolean::from(works));
        let watermarks = DatCount::from(works && srq_max > 0);
        assert_eq!(attributes.provider().srq_watermarks_supported, watermarks);
    }
}

#[test]
fn the_announced_extension_is_the_usable_one() {
    for (atomics, expected) in [(true, DAT_EXTENSION_IB), (false, DAT_EXTENSION_IW)] {
        let attributes = Attributes::new(
            "ia",
            &RnicAttr {
                immediate_and_atomics: atomics,
                ..scripted_rnic::attr()
            },
        );
        assert_eq!(attributes.ia().extension_supported, expected);
        assert_ne!(attributes.ia().extension_version, 0);
        assert_eq!(named(&attributes, "DAT_COUNTERS"), ["TRUE"]);
    }
}

#[test]
fn the_sink_of_a_read_needs_no_remote_privilege() {
    let attributes = Attributes::new("ia", &scripted_rnic::attr());
    assert_eq!(
        attributes.provider().rdma_write_for_rdma_read_req,
        DAT_FALSE
    );
}

#[test]
fn attributes_of_the_rnic_replace_the_common_ones() {
    let own = [
        ("DAT_IB_DEVICE_NAME", "siw_eth0"),
        ("DAT_IB_CONNECTIVITY_MODE", "INDIRECT"),
        ("DAT_IB_PORT_STATUS", "PORT_DOWN"),
        ("DAT_IB_TRANSPORT_MTU", "1024"),
    ];
    let attributes = Attributes::new(
        "ia",
        &RnicAttr {
            named: own
                .map(|(name, value)| NamedAttr {
                    name,
                    value: value.to_owned(),
                })
                .into(),
            ..scripted_rnic::attr()
        },
    );
    for (name, value) in own {
        assert_eq!(named(&attributes, name), [value], "{name}");
    }
    assert_eq!(named(&attributes, "DAT_IB_RDMA_READ"), ["TRUE"]);
}
