//! Named attributes of the provider.

use std::ffi::{CStr, CString};

use dat_abi::*;

use crate::rnic::RnicAttr;

/// Pairs of strings and the C array that points at them.
#[derive(Debug)]
pub(super) struct NamedAttrs {
    array: Box<[DatNamedAttr]>,
    /// Owns the strings to which the array points.
    _strings: Vec<(CString, CString)>,
}

impl NamedAttrs {
    pub(super) fn new(attr: &RnicAttr) -> Self {
        let strings: Vec<_> = pairs(attr);
        let array = strings
            .iter()
            .map(|(name, value)| DatNamedAttr {
                name: name.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        Self {
            array,
            _strings: strings,
        }
    }

    pub(super) fn count(&self) -> DatCount {
        DatCount::try_from(self.array.len()).unwrap_or(DatCount::MAX)
    }

    pub(super) fn as_dat(&self) -> *mut DatNamedAttr {
        self.array.as_ptr().cast_mut()
    }
}

/// The largest MTU of InfiniBand. Messages may be longer here, but consumers that read the
/// attribute allocate hundreds of buffers of that size.
const TRANSPORT_MTU: u32 = 4096;

/// Returns the attributes that this layer reports for every RNIC, unless the RNIC reports them
/// itself, and the attributes that the RNIC adds. Consumers written for OFA's providers search for
/// the `DAT_IB_*` names on any transport.
fn pairs(attr: &RnicAttr) -> Vec<(CString, CString)> {
    let mtu = attr.message_len_max.min(TRANSPORT_MTU).to_string();
    let mut pairs: Vec<_> = [
        ("DAT_IB_DEVICE_NAME", attr.adapter_name.as_str()),
        ("DAT_IB_CONNECTIVITY_MODE", "DIRECT"),
        ("DAT_IB_RDMA_READ", "TRUE"),
        ("DAT_IB_PORT_STATUS", "PORT_ACTIVE"),
        // The other version numbers are those of DAT or the device; this is the release.
        ("DAT_RS_VERSION", env!("CARGO_PKG_VERSION")),
        ("DAT_IB_TRANSPORT_MTU", &mtu),
    ]
    .into_iter()
    .filter(|(name, _)| !attr.named.iter().any(|known| known.name == *name))
    .map(|(name, value)| pair(name, value))
    .collect();
    pairs.push(pair_c(DAT_IB_ATTR_COUNTERS, "TRUE"));
    pairs.extend(extension_pairs(attr));
    pairs.extend(
        attr.named
            .iter()
            .map(|known| pair(known.name, &known.value)),
    );
    pairs
}

/// Returns the attributes of the supported extensions.
fn extension_pairs(attr: &RnicAttr) -> Vec<(CString, CString)> {
    let mut pairs = vec![pair_c(DAT_EXTENSION_ATTR, "TRUE")];
    if attr.immediate_and_atomics {
        for name in [
            DAT_IB_ATTR_FETCH_AND_ADD,
            DAT_IB_ATTR_CMP_AND_SWAP,
            DAT_IB_ATTR_IMMED_DATA,
        ] {
            pairs.push(pair_c(name, "TRUE"));
        }
    }
    pairs.push((
        DAT_EXTENSION_ATTR_VERSION.to_owned(),
        DAT_EXTENSION_ATTR_VERSION_VALUE.to_owned(),
    ));
    pairs.push(pair_c(DAT_IW_ATTR_SSP, "TRUE"));
    pairs
}

fn pair(name: &str, value: &str) -> (CString, CString) {
    (text(name), text(value))
}

fn pair_c(name: &CStr, value: &str) -> (CString, CString) {
    (name.to_owned(), text(value))
}

/// Converts text to a C string, up to its first zero byte.
fn text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().take_while(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}
