//! The RDMA device that carries the connections of a suite, in place of the software provider.
//!
//! | Variable | Contents |
//! |---|---|
//! | `STACK_TESTS_DEVICE` | the `ia_params` of the device |
//! | `STACK_TESTS_ADDRESS` | the address of the device; the loopback address if it is not set |
//! | `STACK_TESTS_TMP` | a directory for files, on a machine on which the build is read-only |
//!
//! The process of the suite must find `libibverbs.so.1` and `librdmacm.so.1`, those of the system
//! or the staged ones.

use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use crate::not_run;

/// The provider of devices, as the staged `libdat2` finds it.
const DEVICES: &str = "libdapl-ib.so.2";

/// The provider of the software adapters, as the staged `libdat2` finds it.
pub const SOFTWARE: &str = "libdapl-iwarp.so.2";

/// The `ia_params` of the device; `None` for the software provider.
pub fn device() -> Option<String> {
    env::var("STACK_TESTS_DEVICE").ok()
}

/// The name of the provider of the suite.
pub fn provider_name() -> &'static str {
    if device().is_some() {
        DEVICES
    } else {
        SOFTWARE
    }
}

/// The address of the adapter of the suite.
pub fn adapter_address() -> IpAddr {
    let set = env::var("STACK_TESTS_ADDRESS").ok();
    let parsed = set.and_then(|address| address.parse().ok());
    parsed.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// True if a device carries the connections. Reports then that the calling test cannot run, for
/// this reason.
#[must_use]
pub fn not_over_devices(why: &str) -> bool {
    let is_device = device().is_some();
    if is_device {
        not_run(&format!("over a device: {why}"));
    }
    is_device
}

/// The directory for files, or `default`.
pub fn scratch(default: &str) -> PathBuf {
    env::var_os("STACK_TESTS_TMP").map_or_else(|| default.into(), PathBuf::from)
}
